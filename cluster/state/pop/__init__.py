"""Pop consumption: which messages a group has taken, until when, and which are done; pure and replicated.

`ops` has the operations and their encoding, `queue` the rows of one queue, `state` all queues, `applying` the rules.
"""

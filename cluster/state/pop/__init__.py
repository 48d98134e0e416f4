"""Pop consumption: which messages a group has taken, until when, and which are done; pure and replicated.

`ops` has the operations and their encoding, `queue` the rows of one queue, `state` all queues, `applying` the rules.
For groups that consume in order, `ordered` has the message groups of the rows, `ordered_take` and `ordered_applying`
the take and its rules.
"""

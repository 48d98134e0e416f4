"""Pop consumption: which messages a group has taken, until when, and which are done; pure and replicated.

`ops` has the operations and their encoding, `queue` the rows of one queue, `queues` all of them by
group and topic, `state` the part of the broker state, `applying` the rules; `grace` what a new leader adds to leases.

For groups that consume in order, `ordered` has the message groups of the rows, `ordered_take` and `ordered_applying`
the take and its rules.
"""

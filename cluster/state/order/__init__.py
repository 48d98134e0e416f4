"""What groups that consume in order have in the broker state, besides what all groups have; pure and replicated.

`owners` has the consumers that hold the locks of queues, `part` the part of the broker state, with the message groups
of `cluster.state.pop.ordered`.
"""

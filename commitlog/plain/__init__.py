"""The plain log: the CommitLog of one machine, in RocketMQ's files.

Append, flush, read, recovery, damage that an operator has accepted, and the message store on such a log. Replication
is in `commitlog.replicated`. It imports `commitlog.record` and `store`.
"""

"""The replicated log for the message store: `CommitLog` on a Raft node.

Converts records to entries and back, and decides when a new leader may accept puts. Brokers are in `cluster`. It
imports `dledger` and the packages below it in `commitlog`.
"""

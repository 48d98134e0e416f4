"""The replicated log as the message store sees it: `CommitLog` on a Raft node.

Records become entries, entries become records; when a new leader may accept puts is decided here. Brokers are in
`cluster`. It imports `dledger` and the packages below it in `commitlog`.
"""

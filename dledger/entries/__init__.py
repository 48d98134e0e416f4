"""The log of entries on disk: append, read, cut, recover.

`store` is the entry point; index files, recovery, room on the disk and the begin of the log are its parts. No rule of
Raft is here: the driver says what to append and what to cut. Driver, node and tools import it; it imports
`dledger.storage` and `store.fs`.
"""

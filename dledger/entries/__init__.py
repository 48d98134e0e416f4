"""The log of entries on disk: append, read, truncate, recover.

`store` is the entry point; index files, recovery, disk space and the start of the log are its parts. No rule of
Raft is here: the driver decides what to append and truncate. Driver, node and tools import it; it imports
`dledger.storage` and `store.fs`.
"""

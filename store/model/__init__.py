"""The basic types of a message store: messages, topics, flags, hashes, and the ports of its log.

Plain values and pure functions: messages, dispatch batches, findings of checks, the settings of a store. `commit_log`
and `local_log` are ports that `commitlog` implements. It does no I/O. Every higher package may import it; it imports
`store.fs` for a few types and `store.errors`.
"""

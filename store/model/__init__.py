"""The nouns of a message store: messages, topics, flags, hashes, and the ports of the log below it.

Plain values and pure functions: what a client puts, what a dispatch batch holds, what a check has found, which
settings a store has. `commit_log` and `local_log` are ports that `commitlog` implements. No file is read or written
here. Every package above may import it; it imports `store.fs` for a few types and `store.errors`.
"""

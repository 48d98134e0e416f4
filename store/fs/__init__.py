"""The file system of all stores: ports, mapped files, file pools, syncs in other threads.

All disk access uses the ports in `ports`, so that tests and the simulator can replace the operating system. Not here:
messages, queues and logs, and the decisions when to write; `retention_rules` only computes which files of a log may be
deleted. Any package may import this one; it imports `store.errors` only.
"""

"""The file system of all stores: ports, mapped files, file pools, syncs in other threads.

All disk access uses the ports in `ports`, so that tests and the simulator can replace the
operating system. This package does not know messages, queues or logs, and does not decide when to write;
`retention_rules` only computes which files of a log may be deleted. Any package may import this one; it imports
`store.errors` only.
"""

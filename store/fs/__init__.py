"""The file system as all stores see it: ports, mapped files, file pools, syncs in other threads.

Everything that is written to disk goes through the ports in `ports`, so that tests and the simulator can replace the
operating system. Nothing here knows messages, queues or logs, and nothing here decides when to write;
`retention_rules` only computes which files of a log may be deleted. Any package may import this one; it imports
`store.errors` only.
"""

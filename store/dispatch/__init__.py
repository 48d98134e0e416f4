"""Dispatch: consume queues and key index follow the log.

The dispatcher reads batches of the log and updates queues and index; recovery and catch-up make both consistent with
the log when a store is opened; dispatch wakes long polls; the checkpoint records the durable part of each. Reads by
clients are in `store.access`, timers and threads in `store.maintenance`. `store.access` and everything above may import
it.
"""

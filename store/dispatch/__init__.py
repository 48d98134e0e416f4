"""Dispatch: consume queues and key index follow the log.

The dispatcher reads batches of the log and updates queues and index; recovery and catch-up make both equal to the log
when a store is opened; long polls are woken here; the checkpoint records up to where each of them is durable. Reads by
clients are in `store.access`, timers and threads in `store.maintenance`. `store.access` and everything above may
import it.
"""

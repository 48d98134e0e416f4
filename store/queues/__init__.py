"""Consume queues: files with the offset in the log of each message of a queue.

Loading queues, appending units, keeping units in memory until they are written, merging queues in log order. Dispatch
decides which units are added and maintenance decides when they are flushed; neither is here. `store.dispatch` and
everything above may import it; it does not know the key index.
"""

"""Consume queues: files with the offset in the log of each message of a queue.

Loading queues, appending units, keeping units in memory until they are written, merging queues in log order. Not here:
adding units (dispatch) and scheduling flushes (maintenance). `store.dispatch` and all higher packages may import it; it
does not depend on the key index.
"""

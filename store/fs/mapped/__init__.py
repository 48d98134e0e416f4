"""Files of fixed size that follow each other, mapped into memory: queues of files, their pool, and the next file.

Built on the ports of `store.fs`. Not here: what the files contain.
"""

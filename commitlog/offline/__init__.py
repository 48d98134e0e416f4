"""Stores that no process has open: found, read, verified, rebuilt.

Nothing here changes a log; `rebuild` writes new queues and a new index. The command line and the pipeline import it;
a running broker does not, but for the layout of a store directory.
"""

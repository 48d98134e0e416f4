"""Offline access to stores: find, read, verify, rebuild.

Nothing here changes a log; `rebuild` writes new queues and a new index. The command line and the pipeline import it; a
running broker imports only the layout of a store directory.
"""

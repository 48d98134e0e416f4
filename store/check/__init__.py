"""Offline views and checks of consume queues and index files.

Views that show files as they are without repairing them, and checkers that compare them with the log and return
findings. Nothing here writes. `commitlog.offline`, the command line and the pipeline import it; a running store does
not need it.
"""

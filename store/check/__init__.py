"""Offline views and checks of consume queues and index files.

Read-only views of the files, without repairs, and checkers that compare them with the log and return findings.
`commitlog.offline`, the command line and the pipeline import it; a running store does not need it.
"""

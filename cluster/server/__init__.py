"""The composition of server processes: a node of a group, a standalone broker.

Builds everything bottom-up, serves until it receives a signal to stop, and stops everything in reverse order. Only the
command line imports it.
"""

"""The composition of server processes: a node of a group, a standalone broker.

A process builds its parts bottom-up, serves until it receives a signal to stop, and stops the parts in reverse order.
Only the command line imports this package.
"""

"""Common code of all processes: signals, exit codes, log lines, a metrics page, an event loop in a thread.

The code is independent of the role of a process. Every package of `cluster` may import it; it imports none of them.
"""

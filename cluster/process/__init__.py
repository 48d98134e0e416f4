"""Common code of all processes: signals, exit codes, log lines, a metrics page, an event loop in a thread.

No role of a process is known here. Every package of `cluster` may import it; it imports none of them.
"""

"""The simulated network: loss, delay, duplication, reordering, damaged frames.

It carries messages of the core without sockets. The simulator of the core uses it; the simulator of the shell has its
own streams.
"""

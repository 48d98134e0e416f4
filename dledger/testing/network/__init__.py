"""The simulated network: loss, delay, duplication, reordering, damaged frames.

Messages of the core travel here without sockets. The simulator of the core uses it; the simulator of the shell has
its own streams.
"""

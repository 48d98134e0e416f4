"""The simulated event loop: handles and timers in simulated time, worker threads, the transports of connections.

Nodes, services and clients run on it unchanged. The rest of `dledger.testing.shell` imports it.
"""

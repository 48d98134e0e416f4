"""The simulated disk: page cache, durable content, power cuts, crash points.

It implements the ports of `store.fs` in memory. Tests of every package may use it; it knows nothing of nodes.
"""

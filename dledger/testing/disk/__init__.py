"""The simulated disk: page cache, durable content, power cuts, crash points.

It implements the ports of `store.fs` in memory. Tests of every package and both simulators import it; it imports
nothing of nodes.
"""

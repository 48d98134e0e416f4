"""The faults of a simulated run: which, when, and how each of them ends.

The plan is drawn from the seed of the run. Faults act on machines and network through their public methods; no check
is here. Only `dledger.testing.simulation` imports it.
"""

"""Schedules the faults of a simulated run.

The plan is drawn from the seed of the run. Faults act on machines and network through their public methods; checks are
elsewhere. Only `dledger.testing.simulation` imports it.
"""

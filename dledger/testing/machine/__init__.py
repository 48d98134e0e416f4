"""A simulated machine: a persistent disk, and the node processes that run on it one after the other.

Production core, driver and storage on simulated ports. `dledger.testing.nemesis` decides which faults happen. Only the
simulators import this package.
"""

"""A simulated machine: a disk that stays, and the node processes that run on it one after the other.

Production core, driver and storage on simulated ports. Which faults happen is decided in `dledger.testing.nemesis`.
Only the simulators import it.
"""

"""Branch coverage of simulated runs.

Probes in the modules of core, driver and storage, and the census of the branches that many seeds take. Only the
command line of the simulator and its tests import it.
"""

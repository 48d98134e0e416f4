"""The simulators: production code on a simulated clock, network and disk, from one seed.

`simulation` runs the core, driver and entries of a group; `shell` runs nodes, services and clients as well; `script`
runs scenarios of a text file; `checks` has the safety checks, `disk` the simulated disk that tests of other packages
use too. It ships, so that users can repeat a run, but no other package imports it; it may import all of `dledger`.
"""

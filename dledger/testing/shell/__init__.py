"""The simulator of the shell: production clients, services and nodes on simulated event loops, networks and disks.

It draws faults and load from a seed and checks every answer. The event loop is in `loop`, gRPC in `rpc`; the simulator
of the core alone, which is faster, is `dledger.testing.simulation`. Only the command line of the simulators and tests
import it.
"""

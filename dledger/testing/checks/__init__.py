"""Safety checks of every simulated run: elections, logs, clients and state machines.

The checks see a run from outside and change nothing. They know the simulated disk, not the network. The simulators
import them.
"""

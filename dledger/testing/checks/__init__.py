"""Safety checks of every simulated run: elections, logs, clients and state machines.

The checks observe a run and change nothing. They read the simulated disk, not the network. The simulators import them.
"""

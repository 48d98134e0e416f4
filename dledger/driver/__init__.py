"""The driver: feeds events to the consensus core and executes its effects in order.

Synchronous code on ports: no timer, thread or socket. It keeps from the core what the disk cannot accept, and watches
how long the disk takes. Node and simulator import it; it imports the core, `dledger.entries` and `dledger.storage`.
"""

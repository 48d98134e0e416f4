"""The driver: feeds events to the consensus core and executes its effects in order.

Synchronous code on ports: no timer, thread or socket. It rejects events that the disk cannot execute before the core
sees them, and measures the disk. Node and simulator import it; it imports the core, `dledger.entries` and
`dledger.storage`.
"""

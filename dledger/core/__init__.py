"""The consensus core: the rules of Raft as pure functions from events to effects.

`raft` handles one event at a time; the other modules are its rules (elections, replication, membership changes, reads),
`events` and `messages` its vocabulary, `state` its data. No clock, socket, file or thread is here, and no randomness of
its own: the driver executes the effects. Driver, peer transport, node and simulator import it; it imports
`dledger.types` only.
"""

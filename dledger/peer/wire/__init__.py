"""The bytes of the peer transport: frames, their encoding and decoding, and which connection carries which message.

No sockets and no state of a connection, except for the receive buffer. `dledger.peer` imports it, and tests and the
simulator to damage frames.
"""

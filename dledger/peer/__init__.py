"""The peer transport: framed TCP connections between the nodes of a group.

Connections, handshakes, encoding and decoding of the core's messages, and bootstrap connections between nodes that have
not joined yet. What a message means is decided in `dledger.core`. The node imports it, and `cluster` for bootstrap
connections; it does not know the driver.
"""

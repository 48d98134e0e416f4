"""The frames in which clients call unary methods of a server without gRPC: greeting, heads, limits of sizes.

Pure: bytes to values and back. Not here: connections (`dledger.client`, `dledger.service.frames`), and the frames
between nodes (`dledger.peer.wire.frames`). Client and server import it.
"""

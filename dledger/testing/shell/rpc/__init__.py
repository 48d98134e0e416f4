"""Simulated gRPC: channels and servers for the real stubs and servicers, over simulated connections.

The only part of the simulators that imports gRPC. Only `dledger.testing.shell` imports it.
"""

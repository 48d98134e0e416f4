"""Requests that wait: appends, reads, changes of the group, proposals.

Bounds, order and answers of everything that a node has accepted and not answered yet. No gRPC and no disk. Node and
services import it.
"""

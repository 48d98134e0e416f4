"""Pending requests: appends, reads, changes of the group, proposals.

Bounds, order and answers of all requests that a node has accepted and not answered yet. No gRPC and no disk. Node and
services import it.
"""

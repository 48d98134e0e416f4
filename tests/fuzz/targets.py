"""All targets, by name."""

from tests.fuzz import (
    client_frames,
    clients,
    columns,
    kernels,
    pages,
    peers,
    record_kernels,
    remoting,
    rocketmq_grpc,
    stores,
)

_MODULES = (peers, clients, client_frames, remoting, rocketmq_grpc, pages, stores, kernels, record_kernels, columns)
TARGETS = {each.name: each for module in _MODULES for each in module.TARGETS}
# These compare the native module with its reference in Python.
NATIVE = frozenset(each.name for module in (kernels, record_kernels, columns) for each in module.TARGETS)

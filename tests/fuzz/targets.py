"""All targets, by name."""

from tests.fuzz import client_frames, clients, columns, kernels, peers, record_kernels, stores

_MODULES = (peers, clients, client_frames, stores, kernels, record_kernels, columns)
TARGETS = {each.name: each for module in _MODULES for each in module.TARGETS}

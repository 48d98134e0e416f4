"""All targets, by name."""

from tests.fuzz import clients, kernels, peers, record_kernels, stores

TARGETS = {each.name: each for module in (peers, clients, stores, kernels, record_kernels) for each in module.TARGETS}

"""All targets, by name."""

from tests.fuzz import clients, kernels, peers, stores

TARGETS = {each.name: each for module in (peers, clients, stores, kernels) for each in module.TARGETS}

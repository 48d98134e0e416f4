"""All targets, by name."""

from tests.fuzz import clients, peers, stores

TARGETS = {each.name: each for module in (peers, clients, stores) for each in module.TARGETS}

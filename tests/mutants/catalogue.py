"""All planted bugs, by name."""

from tests.mutants.bugs import (
    brought,
    catch_up,
    damage,
    durability,
    elections,
    identity,
    message_store,
    pending_units,
    rare_places,
    reads,
    replicated,
    replication,
    shell,
    shell_snapshots,
    shell_strangers,
    starts,
    store_damage,
    transfer,
)

GROUPS = (
    durability,
    damage,
    elections,
    replication,
    reads,
    transfer,
    catch_up,
    message_store,
    pending_units,
    replicated,
    identity,
    shell,
    shell_snapshots,
    shell_strangers,
    rare_places,
    starts,
    store_damage,
    brought,
)
MUTANTS = {mutant.name: mutant for group in GROUPS for mutant in group.MUTANTS}

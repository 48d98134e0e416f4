"""All planted bugs, by name."""

from tests.mutants.bugs.raft import (
    brought,
    catch_up,
    damage,
    durability,
    elections,
    identity,
    incarnations,
    lost_entries,
    rare_places,
    reads,
    replication,
    starts,
    transfer,
)
from tests.mutants.bugs.security import access, audit, certificates, floods, modes, name_servers, peers
from tests.mutants.bugs.shell import directories, general, snapshots
from tests.mutants.bugs.store import (
    broker_journal,
    changed_bits,
    delays,
    message_store,
    pending_units,
    replicated,
    store_damage,
)

GROUPS = (
    durability,
    damage,
    elections,
    replication,
    reads,
    transfer,
    catch_up,
    changed_bits,
    message_store,
    modes,
    pending_units,
    replicated,
    delays,
    broker_journal,
    identity,
    incarnations,
    lost_entries,
    general,
    snapshots,
    directories,
    rare_places,
    starts,
    store_damage,
    brought,
    certificates,
    access,
    peers,
    floods,
    audit,
    name_servers,
)
MUTANTS = {mutant.name: mutant for group in GROUPS for mutant in group.MUTANTS}

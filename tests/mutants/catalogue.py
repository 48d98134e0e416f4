"""All planted bugs, by name."""

from tests.mutants import catch_up, durability, elections, message_store, reads, replication, transfer

GROUPS = (durability, elections, replication, reads, transfer, catch_up, message_store)
MUTANTS = {mutant.name: mutant for group in GROUPS for mutant in group.MUTANTS}

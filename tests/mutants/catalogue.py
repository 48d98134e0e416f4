"""All planted bugs, by name."""

from tests.mutants import catch_up, durability, elections, reads, replication, transfer

GROUPS = (durability, elections, replication, reads, transfer, catch_up)
MUTANTS = {mutant.name: mutant for group in GROUPS for mutant in group.MUTANTS}

"""Planted bugs of whom and what a node believes: terms, second leaders, groups, directories."""

import dledger.core.trust
from tests.mutants.mutant import Mutant, Tests

TRUST = "tests/unit/core/test_trust.py::"


def any_term_is_believed(patch):
    patch.setattr(dledger.core.trust, "TERM_JUMP_MAX", 1 << 64)
    patch.setattr(dledger.core.trust, "TERM_MAX", 1 << 64)


def node_stands_in_the_last_term(patch):
    patch.setattr("dledger.core.election.TERM_MAX", 1 << 64)


MUTANTS = (
    Mutant(
        any_term_is_believed,
        "a message cannot end all elections",
        Tests(TRUST + "test_a_term_that_no_election_reached_is_neither_taken_nor_saved"),
    ),
    Mutant(
        node_stands_in_the_last_term,
        "what is saved can be sent",
        Tests(TRUST + "test_in_the_last_term_nobody_stands"),
    ),
)

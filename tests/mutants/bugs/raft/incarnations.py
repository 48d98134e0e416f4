"""Planted bugs of the rules that recognise and readmit a node whose disk was lost (ADR 7)."""

import dledger.core.leader
from dledger.core import membership_changes
from dledger.core.state import voting_rights
from tests.mutants.mutant import Mutant, Tests

WIPED = "tests/unit/dledger/core/test_wiped_nodes.py::"


def late_answer_of_an_earlier_process_is_accepted(patch):
    original = voting_rights.recognise

    def recognise(state, progress, incarnation, answered_round):
        if original(state, progress, incarnation, answered_round):
            return True
        progress.incarnation = incarnation
        return incarnation != 0

    patch.setattr(voting_rights, "recognise", recognise)


def incarnation_that_never_answered_replaces_a_later_one(patch):
    """As in earlier versions: only answers of incarnations that had answered before were recognised as late."""
    original, seen = voting_rights.recognise, set()

    def recognise(state, progress, incarnation, answered_round):
        is_new = incarnation not in seen | {0}
        seen.add(incarnation)
        return original(state, progress, incarnation, state.leader.round + 1 if is_new else answered_round)

    patch.setattr(voting_rights, "recognise", recognise)


def first_incarnation_of_a_term_is_never_replaced(patch):
    def recognise(state, progress, incarnation, answered_round):
        del state, answered_round
        if progress.incarnation is None:
            progress.incarnation = incarnation
        return progress.incarnation == incarnation

    patch.setattr(voting_rights, "recognise", recognise)


def refused_push_readmits_a_node(patch):
    original = dledger.core.leader._note_answer

    def note_answer(state, sender):
        progress = original(state, sender)
        if progress.incarnation is not None and progress.incarnation != state.incarnations.get(sender):
            membership_changes.readmit(state, sender, progress)
        return progress

    patch.setattr(dledger.core.leader, "_note_answer", note_answer)


MUTANTS = (
    Mutant(
        late_answer_of_an_earlier_process_is_accepted,
        "acknowledged is durable",
        Tests(WIPED + "test_late_acknowledgements_of_earlier_incarnations_do_not_count"),
    ),
    Mutant(
        incarnation_that_never_answered_replaces_a_later_one,
        "a group works without a minority",
        Tests(
            WIPED + "test_a_late_answer_of_an_incarnation_that_never_answered_before_costs_a_readmitted_node_nothing"
        ),
    ),
    Mutant(
        first_incarnation_of_a_term_is_never_replaced,
        "a wiped node comes back",
        Tests(WIPED + "test_a_node_is_counted_although_the_first_answer_in_the_term_was_a_late_one_of_its_lost_disk"),
    ),
    Mutant(
        refused_push_readmits_a_node,
        "a full disk stops no node",
        Tests(
            "tests/unit/dledger/driver/test_admission.py::"
            "test_wiped_voter_is_readmitted_only_by_answers_for_which_space_was_reserved"
        ),
    ),
)

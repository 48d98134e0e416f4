"""Planted bugs of the rule that a node without entries that it acknowledged gives up its vote (ADR 29)."""

import dledger.core.follower
import dledger.core.replication
import dledger.peer.wire.encoder
from dledger.core.state import voting_rights
from dledger.types import NO_INDEX
from tests.mutants.mutant import Mutant, Scenario, Tests

LOST = "tests/unit/dledger/core/test_lost_entries.py::"


def node_on_an_old_copy_keeps_its_vote(patch):
    patch.setattr(dledger.core.follower, "_has_lost", lambda state, push: False)


def vote_is_given_up_with_the_old_incarnation(patch):
    patch.setattr(dledger.core.state.voting_rights, "give_up_vote", lambda state: None)


def loss_of_another_disk_costs_the_vote(patch):
    _with(patch, lambda state, push: state.is_flush_sync and push.acknowledged_by is not None and push.prev_term >= 0)


def loss_of_unsynced_entries_costs_the_vote(patch):
    _with(patch, lambda state, push: push.acknowledged_by == state.incarnation and push.prev_term >= 0)


def term_that_the_leader_forgot_costs_the_vote(patch):
    _with(patch, lambda state, push: state.is_flush_sync and push.acknowledged_by == state.incarnation)


def entry_that_was_not_acknowledged_costs_the_vote(patch):
    def acknowledged_by(state, peer, progress):
        return progress.incarnation if progress.match_index > NO_INDEX else None

    patch.setattr(dledger.core.replication, "_acknowledged_by", acknowledged_by)


def vote_is_given_up_that_no_majority_can_restore(patch):
    patch.setattr(dledger.core.replication, "_can_readmit", lambda state, peer: True)


def two_nodes_give_up_their_votes_at_once(patch):
    def can_readmit(state, peer):
        timeout_ms, followers = state.config.max_election_timeout_ms, state.leader.progress
        able = [
            voter
            for voter in state.voters
            if voter == state.self_id
            or (
                (voter != peer and followers[voter].is_live(state.now_ms, timeout_ms))
                and voting_rights.counts(state, voter, followers[voter])
            )
        ]
        return len(able) >= state.quorum

    patch.setattr(dledger.core.replication, "_can_readmit", can_readmit)


def first_incarnation_is_sent_as_unknown(patch):
    original = dledger.peer.wire.encoder._push

    def push(message):
        encoded = original(message)
        if encoded.push.acknowledged_by == 0:
            encoded.push.ClearField("acknowledged_by")
        return encoded

    patch.setitem(dledger.peer.wire.encoder._ENCODERS, dledger.peer.wire.encoder.Push, push)


def _with(patch, has_lost):
    patch.setattr(dledger.core.follower, "_has_lost", has_lost)


KEEPS = "a node without a loss keeps its vote"
MUTANTS = (
    Mutant(
        node_on_an_old_copy_keeps_its_vote,
        "acknowledged is durable",
        Scenario("old-copy-of-a-follower"),
    ),
    Mutant(
        vote_is_given_up_with_the_old_incarnation,
        "acknowledged is durable",
        Scenario("old-copy-of-a-follower"),
    ),
    Mutant(
        loss_of_another_disk_costs_the_vote,
        KEEPS,
        Tests(LOST + "test_an_acknowledgement_of_no_or_another_incarnation_costs_nothing"),
    ),
    Mutant(
        loss_of_unsynced_entries_costs_the_vote,
        KEEPS,
        Tests(LOST + "test_acknowledgements_before_a_sync_prove_no_loss"),
    ),
    Mutant(
        term_that_the_leader_forgot_costs_the_vote,
        KEEPS,
        Tests(LOST + "test_a_term_that_the_leader_no_longer_knows_proves_no_loss"),
    ),
    Mutant(
        entry_that_was_not_acknowledged_costs_the_vote,
        KEEPS,
        Tests(LOST + "test_a_probe_of_an_entry_above_the_match_index_names_none"),
    ),
    Mutant(
        vote_is_given_up_that_no_majority_can_restore,
        "a group works without a minority",
        Scenario("old-copy-while-a-voter-is-down"),
    ),
    Mutant(
        two_nodes_give_up_their_votes_at_once,
        "a group works without a minority",
        Tests(LOST + "test_of_two_nodes_that_are_probed_at_once_neither_is_asked"),
    ),
    Mutant(
        first_incarnation_is_sent_as_unknown,
        "acknowledged is durable",
        Tests("tests/unit/dledger/peer/wire/test_frames.py::test_an_unknown_incarnation_is_not_the_first_one"),
    ),
)

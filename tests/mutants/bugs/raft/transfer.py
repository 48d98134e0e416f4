"""Planted bugs of leadership transfer and of membership changes."""

import dledger.core.election
import dledger.core.follower
import dledger.core.leader
import dledger.core.membership_changes
import dledger.core.state.membership
import dledger.core.state.voting_rights
import dledger.core.transfer
import dledger.driver.driver
from dledger.core.events import SaveMemberships
from dledger.core.messages import TimeoutNow
from dledger.core.raft import Raft
from dledger.core.state.log_tail import LogTail
from dledger.core.state.quorum import majority_value
from dledger.driver.disk_watch import SpaceWatch
from dledger.types import NO_INDEX, Membership, Role
from tests.mutants.mutant import Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import with_changes_of_members, with_wipes

TRANSFER = "tests/unit/dledger/core/test_transfer.py::"
MEMBERSHIP = "tests/unit/dledger/core/test_membership.py::"
WIPED = "tests/unit/dledger/core/test_wiped_nodes.py::"


# ------------------------------------------------------------------------------------------- transfer


def target_is_asked_to_campaign_before_it_has_caught_up(patch):
    def ask_target(state):
        if state.transfer is not None and state.role is Role.LEADER:
            state.leader.is_lease_void = True
            state.send(state.transfer.target, TimeoutNow(state.term))

    patch.setattr(dledger.core.transfer, "ask_target", ask_target)


def stale_leader_can_ask_for_a_campaign(patch):
    def receive(self, sender, message):
        if isinstance(message, TimeoutNow):
            dledger.core.election.start_vote(self.state, is_asked_to_campaign=True)
        else:
            original(self, sender, message)

    original = Raft._receive
    patch.setattr(Raft, "_receive", receive)


def appends_are_accepted_during_a_transfer(patch):
    def on_propose(state, proposal, count):
        transfer, state.transfer = state.transfer, None
        original(state, proposal, count)
        state.transfer = transfer

    original = dledger.core.leader.on_propose
    patch.setattr(dledger.core.leader, "on_propose", on_propose)


def failed_transfer_never_ends(patch):
    patch.setattr(dledger.core.transfer, "tick", lambda state: None)


def node_with_a_stalled_disk_starts_an_election(patch):
    original = dledger.core.election._may_campaign

    def may_campaign(state):
        is_disk_stalled, state.is_disk_stalled = state.is_disk_stalled, False
        may = original(state)
        state.is_disk_stalled = is_disk_stalled
        return may

    patch.setattr(dledger.core.election, "_may_campaign", may_campaign)


# ------------------------------------------------------------------------------------------- membership


def _without_refusal_when(patch, code):
    """Make `_check_may_change` ignore one reason."""
    original = dledger.core.membership_changes._check_may_change

    def check(state):
        try:
            original(state)
        except dledger.core.membership_changes._Refused as refused:
            if refused.code.name != code:
                raise

    patch.setattr(dledger.core.membership_changes, "_check_may_change", check)


def membership_changes_before_an_entry_of_the_own_term_commits(patch):
    """The bug of the dissertation, corrected in 2015; without our second check, for live voters."""
    _without_refusal_when(patch, "LEADER_NOT_READY")
    patch.setattr(dledger.core.membership_changes, "_check_quorum_lives", lambda state, wanted: None)


def two_memberships_change_at_once(patch):
    _without_refusal_when(patch, "REPEATED_REQUEST")


def removed_leader_continues_to_count_itself(patch):
    def agreed(state, own, value_of):
        values = [own]
        for voter in state.voters:
            if voter != state.self_id:
                progress = state.leader.progress[voter]
                is_counted = dledger.core.state.voting_rights.counts(state, voter, progress)
                values.append(value_of(progress) if is_counted else NO_INDEX)
        return majority_value(values)

    patch.setattr(dledger.core.state.membership, "agreed", agreed)


def learner_is_counted_in_the_quorum(patch):
    patch.setattr(Membership, "voters", property(lambda self: tuple(member.id for member in self.members)))


def membership_is_not_saved_before_its_entry(patch):
    original = Raft.step

    def step(self, event):
        effects = original(self, event)
        return sorted(effects, key=lambda effect: isinstance(effect, SaveMemberships))

    patch.setattr(Raft, "step", step)


def truncated_membership_stays_in_force(patch):
    patch.setattr(dledger.core.state.membership, "truncate", lambda state, first_index: None)


def removal_may_leave_no_live_majority(patch):
    patch.setattr(dledger.core.membership_changes, "_check_quorum_lives", lambda state, wanted: None)


# ------------------------------------------------------------------------------------------- wiped nodes


def vote_of_a_wiped_node_counts(patch):
    original = dledger.core.election._count_vote

    def count_vote(state, voter, *, is_founding):
        original(state, voter, is_founding=False)

    patch.setattr(dledger.core.election, "_count_vote", count_vote)


def wiped_node_votes_with_its_new_incarnation(patch):
    patch.setattr(dledger.core.state.voting_rights, "has_vote", lambda state, request: True)


def wiped_nodes_elect_a_leader_together(patch):
    patch.setattr(LogTail, "holds_only_no_ops", True)


def wiped_node_counts_before_it_is_readmitted(patch):
    patch.setattr(
        dledger.core.state.voting_rights, "counts", lambda state, peer, progress: progress.incarnation is not None
    )


def wiped_node_counts_for_its_own_readmission(patch):
    """The new name counts as soon as its entry is written, not when it is committed."""
    original = dledger.core.state.membership.refresh

    def refresh(state):
        memberships = state.memberships
        state.memberships = memberships[-1:]
        original(state)
        state.memberships = memberships

    patch.setattr(dledger.core.state.membership, "refresh", refresh)


def wiped_node_keeps_its_incarnation(patch):
    original = dledger.core.follower.note_leader_contact

    def note_leader_contact(state, sender, *, is_founding=False):
        was_founding = state.is_founding
        original(state, sender, is_founding=is_founding)
        if was_founding:
            state.incarnation = 0

    patch.setattr(dledger.core.follower, "note_leader_contact", note_leader_contact)


def acknowledgements_from_before_a_wipe_still_count(patch):
    original = dledger.core.state.voting_rights.recognise

    def recognise(state, progress, incarnation, answered_round):
        match_index = progress.match_index
        is_recognised = original(state, progress, incarnation, answered_round)
        progress.match_index = match_index
        return is_recognised

    patch.setattr(dledger.core.state.voting_rights, "recognise", recognise)


def leader_with_a_full_disk_does_not_transfer(patch):
    patch.setattr(dledger.core.transfer, "leave_full_disk", lambda state: None)


def full_disk_is_not_reported(patch):
    original = dledger.core.follower.HeartbeatResponse

    def respond(*arguments, **fields):
        return original(*arguments, **{**fields, "is_healthy": True})

    patch.setattr(dledger.core.follower, "HeartbeatResponse", respond)


def small_entry_that_fits_admits_a_large_one(patch):
    def found(self, sizes):
        self._sizes = ()

    patch.setattr(SpaceWatch, "found", found)


MUTANTS = (
    Mutant(
        target_is_asked_to_campaign_before_it_has_caught_up,
        "transfer",
        Scenario("transfer-to-a-node-that-lags"),
    ),
    Mutant(
        stale_leader_can_ask_for_a_campaign,
        "transfer",
        Tests(TRANSFER + "test_only_the_leader_of_the_term_can_ask_a_follower_to_campaign"),
    ),
    Mutant(
        appends_are_accepted_during_a_transfer,
        "transfer",
        Scenario("transfer-to-a-dead-node"),
    ),
    Mutant(
        failed_transfer_never_ends,
        "liveness",
        Scenario("transfer-to-a-dead-node"),
    ),
    Mutant(
        node_with_a_stalled_disk_starts_an_election,
        "a leader with a stuck disk steps down",
        Tests(TRANSFER + "test_node_with_a_stalled_disk_lets_others_campaign_first"),
    ),
    Mutant(
        membership_changes_before_an_entry_of_the_own_term_commits,
        "a quorum in common (the dissertation's bug)",
        Scenario("membership-bug-of-the-dissertation"),
    ),
    Mutant(
        two_memberships_change_at_once,
        "a quorum in common",
        # The leader may also ignore a member that left and came back.
        Seeds(("Violation", "KeyError"), with_changes_of_members),
    ),
    Mutant(
        removed_leader_continues_to_count_itself,
        "a quorum of voters",
        Seeds(("Violation: durable commit",), with_changes_of_members),
    ),
    Mutant(
        learner_is_counted_in_the_quorum,
        "a quorum of voters",
        Tests(MEMBERSHIP + "test_a_learner_gets_the_log_and_neither_votes_nor_counts"),
    ),
    Mutant(
        membership_is_not_saved_before_its_entry,
        "memberships survive a crash",
        Tests(MEMBERSHIP + "test_membership_is_in_force_and_saved_before_its_entry_is_written"),
    ),
    Mutant(
        truncated_membership_stays_in_force,
        "a quorum in common",
        Scenario("membership-bug-of-the-dissertation"),
    ),
    Mutant(
        removal_may_leave_no_live_majority,
        "liveness",
        Tests(MEMBERSHIP + "test_removal_that_would_leave_no_live_majority_is_refused"),
    ),
    Mutant(
        wiped_node_votes_with_its_new_incarnation,
        "one vote a term",
        Tests(WIPED + "test_a_node_with_a_new_incarnation_gives_no_vote_to_a_candidate_that_names_the_old_one"),
    ),
    Mutant(
        wiped_nodes_elect_a_leader_together,
        "leader completeness",
        Tests(WIPED + "test_a_wiped_majority_does_not_found_a_new_group_without_the_node_that_holds_the_log"),
    ),
    Mutant(
        vote_of_a_wiped_node_counts,
        "one vote a term",
        Tests(WIPED + "test_the_vote_of_a_wiped_node_does_not_make_a_majority"),
    ),
    Mutant(
        wiped_node_counts_before_it_is_readmitted,
        "acknowledged is durable",
        Scenario("wiped-two-of-three"),
    ),
    Mutant(
        wiped_node_counts_for_its_own_readmission,
        "acknowledged is durable",
        Scenario("wiped-two-of-three"),
    ),
    Mutant(
        wiped_node_keeps_its_incarnation,
        "one vote a term",
        Seeds(("Violation: readmission",), with_wipes),
    ),
    Mutant(
        acknowledgements_from_before_a_wipe_still_count,
        "acknowledged is durable",
        Tests(WIPED + "test_acknowledgements_are_forgotten_when_the_incarnation_changes"),
    ),
    Mutant(
        leader_with_a_full_disk_does_not_transfer, "a leader soon accepts puts", Scenario("disk-full-leader-transfers")
    ),
    Mutant(
        full_disk_is_not_reported,
        "a leader soon accepts puts",
        Tests(TRANSFER + "test_leadership_is_never_transferred_to_a_node_with_a_full_disk"),
    ),
    Mutant(
        small_entry_that_fits_admits_a_large_one,
        "leadership does not flap",
        Tests("tests/unit/dledger/driver/test_disk_watch.py::test_small_entry_that_fits_does_not_admit_a_large_one"),
    ),
)

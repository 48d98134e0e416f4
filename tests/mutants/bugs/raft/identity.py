"""Planted bugs in the checks of senders: terms, second leaders, groups, directories."""

from dataclasses import replace

import dledger.core.follower
import dledger.core.leader
import dledger.core.raft
import dledger.core.reads
import dledger.core.state.voting_rights
import dledger.core.transitions
import dledger.core.trust
from dledger.core.events import RejectReason
from dledger.core.messages import Heartbeat, ReadIndexResponse
from dledger.core.raft import Raft
from dledger.peer.connection import PeerConnection
from dledger.peer.transport import PeerTransport
from dledger.peer.wire.frames import _parse
from dledger.storage.checkpoint import CheckpointFile
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.types import NO_GROUP, NO_INDEX
from tests.mutants.mutant import Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import (
    with_damaged_frames,
    with_wrong_directories,
    with_wrong_directories_from_the_founding,
)

TRUST = "tests/unit/dledger/core/test_trust.py::"
CHECKPOINT = "tests/unit/dledger/storage/test_checkpoint.py::"
FOUNDING = "tests/unit/dledger/core/test_founding_groups.py::"
FLOOR = "tests/unit/dledger/core/test_commit_floor.py::"


def any_term_is_accepted(patch):
    patch.setattr(dledger.core.trust, "TERM_JUMP_MAX", 1 << 64)
    patch.setattr(dledger.core.trust, "TERM_MAX", 1 << 64)


def reset_to_any_index_is_accepted(patch):
    patch.setattr(dledger.core.trust, "INDEX_JUMP_MAX", 1 << 64)


def node_campaigns_in_the_last_term(patch):
    patch.setattr("dledger.core.election.TERM_MAX", 1 << 64)


def messages_of_other_groups_are_accepted(patch):
    original = dledger.core.trust.fault_of

    def fault_of(state, sender, message):
        fault = original(state, sender, message)
        return None if fault is RejectReason.GROUP else fault

    patch.setattr(dledger.core.trust, "fault_of", fault_of)


def reset_may_bring_another_group(patch):
    patch.setattr(dledger.core.trust, "ResetLog", Heartbeat)


def new_nodes_are_rejected_before_the_first_commit(patch):
    original = dledger.core.trust._fault_of_group

    def fault_of_group(state, sender, message):
        known, state.group_id = state.group_id, 0
        fault = original(state, sender, message)
        state.group_id = known
        return fault

    patch.setattr(dledger.core.trust, "_fault_of_group", fault_of_group)


def non_members_lead_an_old_directory(patch):
    patch.setattr(dledger.core.trust, "_may_be_of_our_group", lambda state, sender: True)


def request_for_a_read_raises_the_term(patch):
    class Nothing:
        """Not a message."""

    patch.setattr(dledger.core.raft, "ReadIndexRequest", Nothing)


def answer_to_a_request_for_a_read_raises_the_term(patch):
    original = Raft._compare_terms

    def compare_terms(self, sender, message):
        if isinstance(message, ReadIndexResponse) and message.term > self.state.term:
            dledger.core.transitions.see_term(self.state, message.term, None)
        original(self, sender, message)

    patch.setattr(Raft, "_compare_terms", compare_terms)


def directory_of_any_node_is_accepted(patch):
    original = IdentityFile._load

    def load(self, node_id, group):
        found = self.read()
        return original(self, node_id, group) if found is None else replace(found, node_id=node_id, group=group)

    patch.setattr(IdentityFile, "_load", load)


def directory_without_identity_is_accepted(patch):
    original = IdentityFile.begin

    def begin(self, node_id, group, *, has_state, is_adopting, draw):
        del is_adopting
        return original(self, node_id, group, has_state=has_state, is_adopting=True, draw=draw)

    patch.setattr(IdentityFile, "begin", begin)


def control_frames_are_accepted_without_their_checksum(patch):
    patch.setattr("dledger.peer.wire.decoder.parse_control", lambda control, payload_size: _parse(control))


def only_a_committed_membership_has_the_group_id(patch):
    patch.setattr(dledger.core.state.voting_rights, "accepted_group_id", lambda state: state.committed_group_id)


def agreed_group_id_is_not_saved(patch):
    original = HardStateFile.save
    patch.setattr(HardStateFile, "save", lambda self, state: original(self, replace(state, founding_group_id=NO_GROUP)))


def votes_agree_to_no_group_id(patch):
    patch.setattr(dledger.core.state.voting_rights, "agree_to_group", lambda state, group_id: None)


def founding_node_founds_with_one_that_is_not(patch):
    def is_founded_by(state, candidate):
        return len(candidate.votes) == len(state.voters) and state.log.holds_only_no_ops

    patch.setattr(dledger.core.state.voting_rights, "is_founded_by", is_founded_by)


def wiped_node_keeps_its_agreed_group_id(patch):
    original = dledger.core.state.voting_rights.end_founding

    def end_founding(state, leader_id, *, is_founding):
        guaranteed = state.founding_group_id
        original(state, leader_id, is_founding=is_founding)
        state.founding_group_id = guaranteed

    patch.setattr(dledger.core.state.voting_rights, "end_founding", end_founding)


def each_leader_draws_a_group_id(patch):
    original = dledger.core.leader.become_leader

    def become_leader(state, *, is_founding):
        known, state.group_id = state.group_id, 0
        original(state, is_founding=is_founding)
        state.group_id = state.group_id or known

    patch.setattr(dledger.core.leader, "become_leader", become_leader)


def commit_index_is_forgotten_at_a_restart(patch):
    original = dledger.core.raft.Raft.__init__

    def init(self, config, **arguments):
        original(self, config, **(arguments | {"commit_floor": -1}))

    patch.setattr(dledger.core.raft.Raft, "__init__", init)


def truncation_ignores_the_commit_index(patch):
    original = CheckpointFile.withdraw

    def withdraw(self, first_index):
        self._saved = replace(self._saved, commit_floor=NO_INDEX)
        original(self, first_index)

    patch.setattr(CheckpointFile, "withdraw", withdraw)


def entries_committed_by_an_earlier_process_are_truncated(patch):
    original = dledger.core.follower._take_entries

    def take_entries(state, push, span):
        known, state.commit_floor = state.commit_floor, -1
        is_taken = original(state, push, span)
        state.commit_floor = min(known, state.log.last_index)
        return is_taken

    patch.setattr(dledger.core.follower, "_take_entries", take_entries)


def candidate_without_committed_entries_is_elected(patch):
    patch.setattr(
        "dledger.core.election._holds_enough",
        lambda state, candidate, request: state.log.is_up_to_date(request.last_index, request.last_term),
    )


def checkpoint_of_java_prevents_a_truncation(patch):
    patch.setattr("dledger.storage.checkpoint.is_checked", lambda content: True)


def connections_greeted_before_the_id_stay_unverified(patch):
    patch.setattr(PeerTransport, "_prove_group", lambda self: None)


def peer_that_named_another_group_stays_until_the_time_limit(patch):
    patch.setattr(PeerConnection, "is_of_another_group", lambda self, group_id: False)


def push_is_verified_before_its_sender_is(patch):
    patch.setattr(Raft, "is_acceptable", lambda self, sender, message: True)


def reads_of_peers_are_not_bounded_together(patch):
    patch.setattr(dledger.core.reads, "READS_MAX", 1 << 30)


MUTANTS = (
    Mutant(
        connections_greeted_before_the_id_stay_unverified,
        "a false member replaces no true one",
        Tests(
            "tests/integration/dledger/peer/test_proven_connections.py::"
            "test_connections_of_a_new_group_prove_its_id_soon_after_the_commit"
        ),
    ),
    Mutant(
        peer_that_named_another_group_stays_until_the_time_limit,
        "a foreign directory is not followed",
        Tests(
            "tests/integration/dledger/peer/test_proven_connections.py::"
            "test_member_that_named_another_group_before_the_id_was_known_is_cut_off_at_once"
        ),
    ),
    Mutant(
        reset_to_any_index_is_accepted,
        "no message uses up the indexes",
        Tests(TRUST + "test_a_reset_to_an_index_that_no_group_can_have_reached_changes_nothing"),
    ),
    Mutant(
        push_is_verified_before_its_sender_is,
        "a rejected push costs nothing",
        Tests("tests/unit/dledger/driver/test_admission.py::test_rejected_push_is_neither_verified_nor_given_space"),
    ),
    Mutant(
        reads_of_peers_are_not_bounded_together,
        "bounded memory",
        Tests("tests/unit/dledger/core/test_reads.py::test_reads_of_all_peers_together_are_bounded"),
    ),
    Mutant(
        answer_to_a_request_for_a_read_raises_the_term,
        "a foreign directory deposes no leader",
        Seeds(("Violation: foreign group",), with_wrong_directories),
    ),
    Mutant(
        new_nodes_are_rejected_before_the_first_commit,
        "liveness",
        Tests(TRUST + "test_sender_that_names_the_group_of_an_uncommitted_entry_need_not_be_a_known_member"),
    ),
    Mutant(
        directory_of_any_node_is_accepted,
        "exchanged directories are refused",
        Seeds(("Violation: identity",), with_wrong_directories),
    ),
    Mutant(
        directory_without_identity_is_accepted,
        "a directory is used by its node alone",
        Seeds(("Violation: identity",), with_wrong_directories),
    ),
    Mutant(
        control_frames_are_accepted_without_their_checksum,
        "no damaged byte is used",
        Seeds(("Violation: frames",), with_damaged_frames),
    ),
    Mutant(
        commit_index_is_forgotten_at_a_restart,
        "committed entries stay",
        Scenario("committed-entries-outlive-a-restart"),
    ),
    Mutant(
        entries_committed_by_an_earlier_process_are_truncated,
        "committed entries stay",
        Tests(FLOOR + "test_a_leader_that_would_cut_below_the_floor_is_refused"),
    ),
    Mutant(
        candidate_without_committed_entries_is_elected,
        "committed entries stay",
        Tests(FLOOR + "test_no_candidate_whose_log_ends_before_the_floor_gets_a_vote"),
    ),
    Mutant(
        truncation_ignores_the_commit_index,
        "committed entries stay",
        Tests(CHECKPOINT + "test_withdrawal_keeps_the_floor_of_truncation"),
    ),
    Mutant(
        checkpoint_of_java_prevents_a_truncation,
        "old directories start",
        Tests(CHECKPOINT + "test_only_a_sealed_checkpoint_of_durable_acknowledgements_forbids_truncation"),
    ),
    Mutant(
        messages_of_other_groups_are_accepted,
        "a foreign directory deletes nothing",
        Tests(TRUST + "test_no_message_of_another_group_is_accepted_from_any_sender"),
    ),
    Mutant(
        only_a_committed_membership_has_the_group_id,
        "a foreign directory deletes nothing",
        Seeds(("Violation: foreign group",), with_wrong_directories_from_the_founding),
    ),
    Mutant(
        agreed_group_id_is_not_saved,
        "a foreign directory deletes nothing",
        Scenario("foreign-directory-before-the-first-commit"),
    ),
    Mutant(
        votes_agree_to_no_group_id,
        "a foreign directory deletes nothing",
        Tests(FOUNDING + "test_founding_member_rejects_another_group_before_anything_is_committed"),
    ),
    Mutant(
        founding_node_founds_with_one_that_is_not,
        "a group keeps its id",
        Tests(
            "tests/unit/dledger/core/test_voting_rights.py::test_a_vote_helps_to_found_a_group_if_the_status_of_its_voter_allows_it"
        ),
    ),
    Mutant(
        wiped_node_keeps_its_agreed_group_id,
        "a wiped node comes back",
        Tests(FOUNDING + "test_wiped_node_that_voted_for_another_group_follows_the_leader_of_its_own"),
    ),
    Mutant(
        reset_may_bring_another_group,
        "a group keeps its id",
        Tests(TRUST + "test_reset_to_a_membership_of_another_group_is_rejected"),
    ),
    Mutant(
        non_members_lead_an_old_directory,
        "leaders' messages come from members",
        Tests(TRUST + "test_old_directory_without_a_group_id_trusts_members_only"),
    ),
    Mutant(
        request_for_a_read_raises_the_term,
        "a non-member deposes no leader",
        Tests("tests/unit/dledger/core/test_reads.py::test_a_request_for_a_read_index_deposes_no_leader"),
    ),
    Mutant(
        each_leader_draws_a_group_id,
        "a group keeps its id",
        Tests(TRUST + "test_first_leader_draws_the_group_id_and_all_know_it_once_it_is_committed"),
    ),
    Mutant(
        any_term_is_accepted,
        "a message cannot end all elections",
        Tests(TRUST + "test_a_term_that_no_election_can_have_reached_is_neither_adopted_nor_saved"),
    ),
    Mutant(
        node_campaigns_in_the_last_term,
        "what is saved can be sent",
        Tests(TRUST + "test_in_the_last_term_no_node_campaigns"),
    ),
)

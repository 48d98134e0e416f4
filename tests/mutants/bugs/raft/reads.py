"""Planted bugs of linearizable reads: by asking around, by lease, on followers."""

import dledger.core.election
import dledger.core.raft
import dledger.core.reads
import dledger.core.replication
from dledger.core.events import ReadReady, ReadRefused
from dledger.core.state import membership
from dledger.core.state.roles import Follower, PendingRead
from dledger.types import NO_INDEX, Role
from tests.mutants.mutant import Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import with_leases, with_readers

READS = "tests/unit/dledger/core/test_reads.py::"
GONE = "tests/unit/dledger/core/test_gone_leaders.py::"


def read_is_served_without_a_quorum_round(patch):
    def on_read_index(state, read_id, *, is_lease_allowed):
        if state.role is Role.LEADER:
            state.emit(ReadReady(read_id, state.commit_index))
        else:
            state.emit(ReadRefused(read_id))

    patch.setattr(dledger.core.reads, "on_read_index", on_read_index)


def read_is_served_before_the_no_op_commits(patch):
    def begin(state, read_id, peer):
        state.leader.reads.append(PendingRead(read_id, state.commit_index, state.leader.round + 1, peer))
        dledger.core.reads.answer(state)

    patch.setattr(dledger.core.reads, "_begin", begin)


def old_round_confirms_a_read(patch):
    def begin(state, read_id, peer):
        index = max(state.commit_index, state.leader.term_start_index)
        state.leader.reads.append(PendingRead(read_id, index, state.leader.round, peer))
        dledger.core.reads.answer(state)

    patch.setattr(dledger.core.reads, "_begin", begin)


def follower_serves_a_read_without_waiting_for_the_commit(patch):
    def on_response(state, sender, response):
        read = state.role_state.asked_reads.pop(response.read_id, None) if state.role is Role.FOLLOWER else None
        if read is not None:
            ready = response.index != NO_INDEX
            state.emit(ReadReady(read.read_id, response.index) if ready else ReadRefused(read.read_id))

    patch.setattr(dledger.core.reads, "on_response", on_response)


def read_ids_begin_equally_in_each_process(patch):
    """As in an earlier version: the answer to a read of an earlier process matches a read of the next one."""
    patch.setattr(dledger.core.raft, "LIFE_END", 2)


def read_index_is_requested_with_the_id_of_the_caller(patch):
    """The same bug at another place: the owner counts from 1 in each process."""
    original = dledger.core.reads.on_read_index

    def on_read_index(state, read_id, *, is_lease_allowed):
        state.last_asked_id = read_id - 1
        original(state, read_id, is_lease_allowed=is_lease_allowed)

    patch.setattr(dledger.core.reads, "on_read_index", on_read_index)


def reads_of_an_unreachable_peer_are_answered(patch):
    patch.setattr(dledger.core.reads, "drop", lambda state, peer: None)


def _has_lease(factor, *, is_voidable=True, is_no_op_awaited=True):
    def has_lease(state):
        if is_voidable and state.leader.is_lease_void:
            return False
        if is_no_op_awaited and state.commit_index < state.leader.term_start_index:
            return False
        confirmed = membership.agreed(state, state.leader.round, lambda progress: progress.round)
        begun_ms = next((ms for number, ms in reversed(state.leader.round_times) if number <= confirmed), None)
        return begun_ms is not None and state.now_ms - begun_ms < factor * state.config.min_election_timeout_ms

    return has_lease


def lease_lasts_past_its_bound(patch):
    patch.setattr(dledger.core.reads, "has_lease", _has_lease(3))


def lease_ignores_the_drift_of_clocks(patch):
    patch.setattr(dledger.core.reads, "has_lease", _has_lease(1))


def lease_continues_after_a_transfer(patch):
    patch.setattr(dledger.core.reads, "has_lease", _has_lease(0.9, is_voidable=False))


def lease_begins_before_the_no_op_commits(patch):
    patch.setattr(dledger.core.reads, "has_lease", _has_lease(0.9, is_no_op_awaited=False))


def node_votes_right_after_its_start(patch):
    """It may just have granted its leader a lease."""
    original = dledger.core.election.has_live_leader

    def has_live_leader(state):
        quiet_until_ms, state.quiet_until_ms = state.quiet_until_ms, 0
        contacts = original(state)
        state.quiet_until_ms = quiet_until_ms
        return contacts

    patch.setattr(dledger.core.election, "has_live_leader", has_live_leader)


def follower_of_a_gone_leader_ignores_its_lease(patch):
    """The leader may live: a firewall may refuse connections to it."""
    original = dledger.core.election.has_live_leader

    def has_live_leader(state):
        if isinstance(state.role_state, Follower) and state.role_state.is_leader_gone:
            return state.now_ms < state.quiet_until_ms
        return original(state)

    patch.setattr(dledger.core.election, "has_live_leader", has_live_leader)


def rounds_without_a_lease_renew_it(patch):
    original = dledger.core.replication.broadcast_heartbeat

    def broadcast_heartbeat(state):
        round_times = state.leader.round_times.copy()
        original(state)
        if not state.leader.renews_lease:
            state.leader.round_times = round_times
            round_times.append((state.leader.round, state.now_ms))

    patch.setattr(dledger.core.replication, "broadcast_heartbeat", broadcast_heartbeat)


MUTANTS = (
    Mutant(
        read_is_served_without_a_quorum_round,
        "linearizable reads",
        Seeds(("Violation: linearizable read",), with_readers, 300),
    ),
    Mutant(
        read_is_served_before_the_no_op_commits,
        "linearizable reads",
        Seeds(("Violation: linearizable read",), with_leases),
    ),
    Mutant(
        old_round_confirms_a_read,
        "linearizable reads",
        Tests(READS + "test_answers_to_an_earlier_round_do_not_confirm_a_read"),
    ),
    Mutant(
        follower_serves_a_read_without_waiting_for_the_commit,
        "linearizable reads",
        Seeds(("Violation: read", "EntryNotFound"), with_readers),
    ),
    Mutant(
        read_ids_begin_equally_in_each_process,
        "linearizable reads",
        Scenario("read-of-an-earlier-process"),
    ),
    Mutant(
        read_index_is_requested_with_the_id_of_the_caller,
        "linearizable reads",
        Scenario("read-of-an-earlier-process"),
    ),
    Mutant(
        reads_of_an_unreachable_peer_are_answered,
        "bounded memory",
        Tests(READS + "test_reads_of_a_peer_that_was_lost_are_refused_at_once"),
    ),
    Mutant(
        lease_lasts_past_its_bound,
        "linearizable reads",
        Seeds(("Violation: linearizable read",), with_leases),
    ),
    Mutant(
        lease_ignores_the_drift_of_clocks,
        "linearizable reads",
        Tests(READS + "test_a_lease_serves_reads_without_a_round_and_ends_before_another_node_can_be_elected"),
    ),
    Mutant(
        lease_continues_after_a_transfer,
        "linearizable reads",
        Scenario("lease-is-void-during-a-transfer"),
    ),
    Mutant(
        lease_begins_before_the_no_op_commits,
        "linearizable reads",
        Seeds(("Violation: linearizable read",), with_leases),
    ),
    Mutant(
        node_votes_right_after_its_start,
        "linearizable reads",
        Scenario("lease-and-voters-that-restart"),
    ),
    Mutant(
        follower_of_a_gone_leader_ignores_its_lease,
        "linearizable reads",
        Tests(GONE + "test_follower_that_renewed_a_lease_grants_no_pre_vote_and_no_vote_before_its_end"),
    ),
    Mutant(
        rounds_without_a_lease_renew_it,
        "linearizable reads",
        Tests(READS + "test_round_without_a_lease_ends_that_of_earlier_rounds"),
    ),
)

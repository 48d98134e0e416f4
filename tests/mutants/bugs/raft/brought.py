"""Planted bugs in data from files and messages: memberships, snapshots, and the start of a log after a reset.

Most of these did not leave a trace in a thousand seeds. So a scenario, a crash point or a unit test covers each place.
"""

from dataclasses import replace
from itertools import islice

import dledger.core.catch_up
import dledger.core.follower
import dledger.core.reads
import dledger.entries.membership_file
import dledger.node.state_machine
from cluster.replica.replicated_state import ReplicatedState
from dledger.node.state_machine import Applier
from dledger.types import UNKNOWN_TERM
from tests.mutants.mutant import CrashPoints, Mutant, Scenario, Tests

LOADING = "tests/unit/dledger/node/test_snapshot_loading.py::"
LOADED = "tests/unit/cluster/replica/test_replicated_state.py::"
CATCH_UP = "tests/unit/dledger/core/test_catch_up.py::"

# ------------------------------------------------------------------------------------------- memberships


def membership_of_the_file_is_not_compared_with_the_log(patch):
    patch.setattr(dledger.entries.membership_file, "_is_held", lambda entry, log: True)


def reset_contains_a_membership_that_is_not_committed(patch):
    original = dledger.core.catch_up.ResetLog

    def reset_log(**fields):
        return original(**fields | {"membership": newest[0]})

    send_reset, newest = dledger.core.catch_up._send_reset, [None]

    def send(state, peer, progress, snapshot_index):
        newest[0] = state.memberships[-1]
        send_reset(state, peer, progress, snapshot_index)

    patch.setattr(dledger.core.catch_up, "ResetLog", reset_log)
    patch.setattr(dledger.core.catch_up, "_send_reset", send)


# ------------------------------------------------------------------------------------------- snapshots


def chunk_of_another_snapshot_continues_the_first_one(patch):
    original = dledger.core.catch_up.on_snapshot_chunk

    def on_snapshot_chunk(state, sender, chunk):
        if state.incoming is not None:
            state.incoming = (chunk.snapshot, state.incoming[1])
        original(state, sender, chunk)

    patch.setattr(dledger.core.catch_up, "on_snapshot_chunk", on_snapshot_chunk)


def progress_of_another_snapshot_is_accepted(patch):
    original = dledger.core.catch_up.on_snapshot_progress

    def on_snapshot_progress(state, progress, sender, response):
        installation = progress.installation
        if installation is not None and installation.snapshot is not None:
            response = replace(response, index=installation.snapshot.index)
        original(state, progress, sender, response)

    patch.setattr(dledger.core.catch_up, "on_snapshot_progress", on_snapshot_progress)


def outdated_snapshot_is_sent_to_its_end(patch):
    """The choice of `begin` is checked once, and not again while the chunks are sent."""
    original = dledger.core.catch_up.continue_installation

    def continue_installation(state, peer, progress):
        snapshot, log, begin_index = progress.installation.snapshot, state.log, state.log.begin_index
        if snapshot is None or snapshot.index >= begin_index - 1:
            original(state, peer, progress)
        elif progress.installation.sent_bytes >= snapshot.size_bytes:
            dledger.core.catch_up._send_reset(state, peer, progress, snapshot.index)
        else:
            log.begin_index = snapshot.index + 1
            original(state, peer, progress)
            log.begin_index = begin_index

    patch.setattr(dledger.core.catch_up, "continue_installation", continue_installation)


# ------------------------------------------------------------------------------------------- leases


def lease_counts_from_the_fastest_answer(patch):
    def has_lease(state):
        leader = state.leader
        if leader.is_lease_void or state.commit_index < leader.term_start_index:
            return False
        others = [leader.progress[voter].round for voter in state.voters if voter != state.self_id]
        confirmed = max(others, default=leader.round)
        begun_ms = next((ms for number, ms in reversed(leader.round_times) if number <= confirmed), None)
        return begun_ms is not None and state.now_ms - begun_ms < dledger.core.reads.lease_ms_of(state.config)

    patch.setattr(dledger.core.reads, "has_lease", has_lease)


def partially_loaded_state_is_used(patch):
    original = dledger.node.state_machine._pieces_of
    patch.setattr(
        dledger.node.state_machine, "_pieces_of", lambda machine, content: islice(original(machine, content), 1)
    )


def newer_snapshot_is_ignored_while_another_one_is_loaded(patch):
    original = Applier.on_reset

    def on_reset(self, begin_index, snapshot_index):
        if not self.is_loading:
            original(self, begin_index, snapshot_index)

    patch.setattr(Applier, "on_reset", on_reset)


def messages_are_dispatched_while_a_snapshot_is_loaded(patch):
    patch.setattr(ReplicatedState, "is_loading", property(lambda self: False))


# ------------------------------------------------------------------------------------------- beginnings


def reset_is_decided_by_length_and_not_by_term(patch):
    patch.setattr(
        dledger.core.catch_up,
        "_holds",
        lambda state, index, term: index <= max(state.kept_index, state.log.last_index),
    )


def reset_with_an_unknown_previous_term_matches_all_logs(patch):
    original = dledger.core.follower._agrees
    patch.setattr(
        dledger.core.follower,
        "_agrees",
        lambda state, index, term: term == UNKNOWN_TERM or original(state, index, term),
    )


SCENARIOS = {
    reset_contains_a_membership_that_is_not_committed: ("a quorum in common", "reset-while-members-change"),
    lease_counts_from_the_fastest_answer: ("linearizable reads", "lease-of-a-minority"),
    reset_is_decided_by_length_and_not_by_term: ("log matching", "log-that-overlaps-the-leaders-begin"),
    reset_with_an_unknown_previous_term_matches_all_logs: ("log matching", "unknown-term-before-the-log"),
}
MUTANTS = (
    *(Mutant(plant, breaks, Scenario(name)) for plant, (breaks, name) in SCENARIOS.items()),
    Mutant(
        membership_of_the_file_is_not_compared_with_the_log,
        "a quorum in common",
        CrashPoints("change_members"),
    ),
    Mutant(
        chunk_of_another_snapshot_continues_the_first_one,
        "liveness",
        Tests(CATCH_UP + "test_another_snapshot_is_sent_from_its_first_byte"),
    ),
    Mutant(
        progress_of_another_snapshot_is_accepted,
        "the state machine sees every entry",
        Tests(CATCH_UP + "test_late_progress_of_another_snapshot_is_not_taken_for_that_of_this_one"),
    ),
    Mutant(
        partially_loaded_state_is_used,
        "the state machine sees every entry",
        Tests(LOADING + "test_commits_and_snapshot_requests_wait_until_all_pieces_are_loaded"),
    ),
    Mutant(
        newer_snapshot_is_ignored_while_another_one_is_loaded,
        "the state machine sees every entry",
        Tests(LOADING + "test_newer_snapshot_replaces_the_one_that_is_being_loaded"),
    ),
    Mutant(
        messages_are_dispatched_while_a_snapshot_is_loaded,
        "queue offsets are given out once",
        Tests(LOADED + "test_readers_see_the_old_state_until_the_last_step_is_loaded"),
    ),
    Mutant(
        outdated_snapshot_is_sent_to_its_end,
        "the state machine sees every entry",
        Tests(CATCH_UP + "test_snapshot_older_than_the_log_is_replaced_by_a_newer_one_while_it_is_sent"),
    ),
)

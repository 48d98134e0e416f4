"""Planted bugs of the shell in greetings, identities, frames, pending requests and the clock."""

from dataclasses import replace

import dledger.peer.wire.buffer
import dledger.storage.peer_directories
from dledger.core.raft import Raft
from dledger.earliest_timer import EarliestTimer
from dledger.peer.handshake import Handshake
from dledger.peer.link import PeerLink
from dledger.peer.unverified_peers import LargeFrames, UnverifiedPeers
from dledger.pending.appends import PendingAppends
from dledger.pending.reads import PendingReads
from dledger.service.limits.unread_calls import UnreadCalls
from dledger.storage.identity import IdentityFile
from dledger.storage.peer_directories import PeerDirectories
from dledger.testing.shell.options import ShellNemesisOp
from tests.mutants.bugs.shell.general import FAILED, LOST, READ, STUCK, with_elections, with_nemesis
from tests.mutants.mutant import Mutant, ShellSeeds, Tests

UNREAD = "tests/unit/dledger/service/limits/test_unread_calls.py"
FOREIGN = ("Violation: directory identity", "Violation: foreign directory")

with_pauses = with_nemesis(ShellNemesisOp.PAUSE, ShellNemesisOp.ISOLATE)
with_foreign_directories = with_nemesis(ShellNemesisOp.PUT_FOREIGN)
with_old_copies = with_nemesis(ShellNemesisOp.PUT_OLD_COPY)
with_exchanges = with_nemesis(ShellNemesisOp.EXCHANGE)
with_flipped_frames = with_nemesis(ShellNemesisOp.FLIP_FRAMES)


def with_half_open_connections(options):
    """Machines that lose power send nothing: the other side keeps their connections until a time limit."""
    shaped = with_nemesis(ShellNemesisOp.CUT_POWER)(options)
    return replace(
        shaped, is_flush_sync=True, downtime_max_us=50_000, nemesis_interval_us=1_000_000, safety_us=9_000_000
    )


def large_frames_of_non_members_share_no_bound(patch):
    patch.setattr(LargeFrames, "add", lambda self, connection: None)


def clock_is_not_read_between_ticks(patch):
    """A paused process handles pending data as if it were still the time of the pause."""
    patch.setattr(Raft, "pass_time", lambda *_: None)


def old_copy_of_a_directory_is_accepted(patch):
    original = PeerDirectories.fault_of

    def fault_of(self, peer_id, directory_id, starts, lives):
        original(self, peer_id, directory_id, starts, lives)

    patch.setattr(PeerDirectories, "fault_of", fault_of)


def only_the_last_directory_of_a_node_is_remembered(patch):
    patch.setattr(dledger.storage.peer_directories, "DIRECTORIES_MAX", 1)


def group_of_a_peer_is_not_compared(patch):
    original = Handshake._check_directory

    def check_directory(self, hello):
        if self._peer_directories is None or hello.group_id == self._peer_directories.group_id:
            original(self, hello)

    patch.setattr(Handshake, "_check_directory", check_directory)


def directory_of_another_node_is_used(patch):
    patch.setattr(IdentityFile, "_load", lambda self, *_: self.read())


def end_of_a_replaced_connection_removes_the_new_one(patch):
    patch.setattr(PeerLink, "holds", lambda *_: True)


def size_of_a_damaged_frame_is_awaited(patch):
    patch.setattr(dledger.peer.wire.buffer, "check_control", lambda *_: None)


def connection_that_is_made_after_the_stop_is_kept(patch):
    original = UnverifiedPeers.close

    def close(self, error):
        original(self, error)
        self._closed_for = None

    patch.setattr(UnverifiedPeers, "close", close)


def space_of_appends_is_never_released(patch):
    patch.setattr(PendingAppends, "_release", lambda *_: None)


def append_that_ends_at_a_truncation_is_kept(patch):
    original = PendingAppends.truncated
    patch.setattr(PendingAppends, "truncated", lambda self, first_index: original(self, first_index + 1))


def refused_read_is_answered_with_the_first_index(patch):
    def refused(self, read_id):
        for future in self._take(read_id):
            if not future.done():
                future.set_result(0)

    patch.setattr(PendingReads, "refused", refused)


def calls_without_a_request_are_not_counted(patch):
    class Timer(EarliestTimer):
        def at(self, time_s):
            if time_s:
                super().at(time_s)

    patch.setattr("dledger.service.limits.unread_calls.EarliestTimer", Timer)


def call_without_a_request_is_never_ended(patch):
    class Timer(EarliestTimer):
        def at(self, time_s):
            if not time_s:
                super().at(time_s)

    patch.setattr("dledger.service.limits.unread_calls.EarliestTimer", Timer)


def streams_without_a_request_count_as_calls(patch):
    """A client that opens a stream before it has a request loses it after ten seconds."""
    original = UnreadCalls._read
    patch.setattr(UnreadCalls, "_read", lambda self, context, caller, _: original(self, context, caller, self._calls))


def all_calls_without_a_request_end_in_one_iteration(patch):
    original = UnreadCalls._end_due

    def end_due(self):
        original(self)
        while self._timer._pending is not None and not self._timer._due_s:
            self._timer.cancel()
            original(self)

    patch.setattr(UnreadCalls, "_end_due", end_due)


MUTANTS = (
    Mutant(
        calls_without_a_request_are_not_counted,
        "clients cannot block others",
        Tests(f"{UNREAD}::test_oldest_calls_end_when_too_many_wait"),
    ),
    Mutant(
        streams_without_a_request_count_as_calls,
        "clients may open streams early",
        Tests(f"{UNREAD}::test_call_that_sends_nothing_ends_after_its_limit_and_a_stream_waits"),
    ),
    Mutant(
        all_calls_without_a_request_end_in_one_iteration,
        "iterations of the loop are short",
        Tests(f"{UNREAD}::test_few_calls_end_in_one_iteration_of_the_loop"),
    ),
    Mutant(
        call_without_a_request_is_never_ended,
        "clients cannot block others",
        Tests(f"{UNREAD}::test_call_that_sends_nothing_ends_after_its_limit_and_a_stream_waits"),
    ),
    Mutant(
        large_frames_of_non_members_share_no_bound,
        "memory of non-members is bounded",
        Tests(
            "tests/integration/dledger/peer/test_non_members.py::test_incomplete_frames_of_non_members_share_one_bound"
        ),
    ),
    Mutant(clock_is_not_read_between_ticks, "leases are kept", ShellSeeds(("Violation: lease",), with_pauses)),
    Mutant(
        old_copy_of_a_directory_is_accepted,
        "peers verify each other's directory",
        ShellSeeds(FOREIGN, with_old_copies),
    ),
    Mutant(
        only_the_last_directory_of_a_node_is_remembered,
        "peers verify each other's directory",
        ShellSeeds(FOREIGN, with_old_copies),
    ),
    Mutant(
        group_of_a_peer_is_not_compared,
        "peers verify each other's directory",
        ShellSeeds(FOREIGN, with_foreign_directories),
    ),
    Mutant(directory_of_another_node_is_used, "a directory is its node's", ShellSeeds(FOREIGN, with_exchanges)),
    Mutant(
        end_of_a_replaced_connection_removes_the_new_one,
        "connections",
        ShellSeeds(STUCK, with_half_open_connections, 10),
    ),
    Mutant(
        connection_that_is_made_after_the_stop_is_kept,
        "a node that stops is silent",
        Tests(
            "tests/integration/dledger/peer/test_stopping_transport.py"
            "::test_connection_that_is_made_after_the_stop_is_ended_and_no_peer_is_dialled_back"
        ),
    ),
    Mutant(space_of_appends_is_never_released, "liveness", ShellSeeds(STUCK, with_elections)),
    Mutant(append_that_ends_at_a_truncation_is_kept, "outcomes are true", ShellSeeds(FAILED + LOST, with_elections)),
    Mutant(refused_read_is_answered_with_the_first_index, "reads are linearizable", ShellSeeds(READ, with_elections)),
    Mutant(size_of_a_damaged_frame_is_awaited, "frames are whole", ShellSeeds(STUCK, with_flipped_frames)),
)

# Without a bug, no run with these shapes may fail.
SOUND = (
    with_pauses,
    with_foreign_directories,
    with_old_copies,
    with_exchanges,
    with_flipped_frames,
    with_half_open_connections,
)

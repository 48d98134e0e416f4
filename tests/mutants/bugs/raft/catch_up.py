"""Planted bugs of catch-up, snapshots, retention and the state machine."""

import dledger.core.catch_up
import dledger.core.follower
import dledger.core.raft
import dledger.node.state_machine
import dledger.storage.snapshot_store
from dledger.core.messages import ResetLog
from dledger.core.raft import Raft
from dledger.core.state.progress import Progress
from dledger.entries.aside import Aside
from dledger.node.maintenance.retention import NodeRetention
from dledger.node.state_machine import Applier
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.disk.file import SimFile
from dledger.testing.disk.files import SimFiles
from dledger.types import NO_INDEX
from tests.mutants.mutant import CrashPoints, Mutant, Scenario, Seeds, Tests
from tests.mutants.shapes import with_deleted_data_files

CATCH_UP = "tests/unit/dledger/core/test_catch_up.py::"
NODE = "tests/unit/dledger/node/"
ENTRIES = "tests/unit/dledger/entries/"
STORAGE = "tests/unit/dledger/storage/"


def reset_drops_committed_entries(patch):
    patch.setattr(dledger.core.catch_up, "_holds", lambda state, index, term: False)


def reset_of_an_old_term_is_accepted(patch):
    original = Raft._answer_old_term

    def answer_old_term(self, sender, message):
        if isinstance(message, ResetLog):
            dledger.core.catch_up.on_reset(self.state, sender, message)
        else:
            original(self, sender, message)

    patch.setattr(Raft, "_answer_old_term", answer_old_term)


def duplicate_answers_double_the_chunks(patch):
    def on_snapshot_progress(state, progress, sender, response):
        installation = progress.installation
        if installation is not None and installation.snapshot is not None:
            installation.sent_bytes = min(response.received_bytes, installation.snapshot.size_bytes)
            progress.is_waiting = False
            dledger.core.catch_up.continue_installation(state, sender, progress)

    patch.setattr(dledger.core.catch_up, "on_snapshot_progress", on_snapshot_progress)


def received_snapshot_is_not_sent_to_others(patch):
    original = dledger.core.catch_up.on_reset

    def on_reset(state, sender, message):
        snapshot = state.snapshot
        original(state, sender, message)
        state.snapshot = snapshot

    patch.setattr(dledger.core.catch_up, "on_reset", on_reset)


def snapshot_that_leaves_a_gap_is_sent(patch):
    def begin(state, peer, progress):
        progress.install(state.snapshot)
        dledger.core.catch_up.continue_installation(state, peer, progress)

    patch.setattr(dledger.core.catch_up, "begin", begin)


def snapshot_is_used_without_its_checksum(patch):
    patch.setattr(dledger.storage.snapshot_store, "check", lambda content, info: None)


def snapshot_is_recorded_as_received_before_it_is_durable(patch):
    original = SnapshotStore._sync_incoming

    def sync_incoming(self):
        with patch.context() as inner:
            inner.setattr(SimFile, "sync", lambda self: None)
            original(self)

    patch.setattr(SnapshotStore, "_sync_incoming", sync_incoming)


def name_of_a_snapshot_is_not_synced(patch):
    original = SnapshotStore._take_in

    def take_in(self, name, info):
        with patch.context() as inner:
            inner.setattr(SimFiles, "sync_directory", lambda self, path: None)
            original(self, name, info)

    patch.setattr(SnapshotStore, "_take_in", take_in)


def log_begins_with_an_entry_that_is_not_committed(patch):
    original = Raft.retention_floor.fget
    patch.setattr(Raft, "retention_floor", property(lambda self: original(self) + 1))


def snapshot_does_not_record_the_applied_index(patch):
    """The state is saved with the index of an earlier entry."""
    original = Applier.save_snapshot

    def save_snapshot(self):
        self._applied_index -= 1
        try:
            return original(self)
        finally:
            self._applied_index += 1

    patch.setattr(Applier, "save_snapshot", save_snapshot)


def retention_ignores_peers_that_still_need_entries(patch):
    patch.setattr(Raft, "retention_floor", property(lambda self: self.state.log.last_index + 1))


def catch_up_has_no_quota(patch):
    patch.setattr(Progress, "has_quota", lambda self, quota, now_ms: True)


def bytes_in_flight_are_not_bounded(patch):
    original = Progress.sent_push

    def sent_push(self, last_index, size_bytes, now_ms):
        original(self, last_index, 0, now_ms)

    patch.setattr(Progress, "sent_push", sent_push)


def old_log_is_deleted_at_once_by_a_reset(patch):
    patch.setattr(Aside, "prepare", lambda self, record, head: None)


def old_log_is_deleted_before_the_new_one_has_caught_up(patch):
    patch.setattr(Aside, "is_due", lambda self, held_index: bool(self.files_count))


def old_log_is_never_deleted(patch):
    patch.setattr(Aside, "advance", lambda self, held_index, now_ms: None)


def rename_of_the_old_log_is_not_synced(patch):
    original = Aside.take

    def take(self, data):
        with patch.context() as inner:
            inner.setattr(SimFiles, "sync_directory", lambda self, path: None)
            original(self, data)

    patch.setattr(Aside, "take", take)


def current_log_is_freed_before_the_one_set_aside(patch):
    original = NodeRetention.__init__

    def init(self, policy, **arguments):
        original(self, policy, **(arguments | {"free_aside": lambda: False}))

    patch.setattr(NodeRetention, "__init__", init)


def restarted_node_does_not_count_deleted_entries_as_committed(patch):
    original = Raft.__init__

    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        self.state.commit_index = self.state.office.matched_index = NO_INDEX

    patch.setattr(Raft, "__init__", init)


MUTANTS = (
    Mutant(
        old_log_is_deleted_at_once_by_a_reset,
        "a reset loses nothing before the new log has it",
        Seeds(("Violation: aside",), with_deleted_data_files),
    ),
    Mutant(
        current_log_is_freed_before_the_one_set_aside,
        "space is released",
        Tests(NODE + "test_node_retention.py::test_log_that_was_set_aside_is_deleted_before_files_of_the_current_one"),
    ),
    Mutant(
        old_log_is_deleted_before_the_new_one_has_caught_up,
        "a reset loses nothing before the new log has it",
        Tests(ENTRIES + "test_aside.py::test_old_entries_stay_readable_until_the_new_log_has_caught_up"),
    ),
    Mutant(
        old_log_is_never_deleted,
        "bounded disk",
        Seeds(("Violation: aside",), with_deleted_data_files),
    ),
    Mutant(
        rename_of_the_old_log_is_not_synced,
        "a reset loses nothing before the new log has it",
        CrashPoints("restart_log"),
    ),
    Mutant(
        reset_drops_committed_entries,
        "committed entries stay",
        Tests(CATCH_UP + "test_late_reset_never_drops_what_is_committed_or_equal"),
    ),
    Mutant(
        reset_of_an_old_term_is_accepted,
        "one leader a term",
        Tests(CATCH_UP + "test_reset_of_an_old_term_is_ignored"),
    ),
    Mutant(
        received_snapshot_is_not_sent_to_others,
        "the state machine sees every entry",
        Tests(CATCH_UP + "test_node_that_started_from_a_snapshot_can_send_it"),
    ),
    Mutant(
        snapshot_that_leaves_a_gap_is_sent,
        "the state machine sees every entry",
        Tests(CATCH_UP + "test_snapshot_that_ends_before_the_log_begins_is_not_sent"),
    ),
    Mutant(
        snapshot_is_used_without_its_checksum,
        "no damaged byte is used",
        Tests(STORAGE + "test_snapshot_store.py::test_damage_in_transfer_is_found_at_the_end"),
    ),
    Mutant(
        snapshot_does_not_record_the_applied_index,
        "each entry is applied once",
        Seeds(("Violation: state machine safety",), with_deleted_data_files),
    ),
    Mutant(
        snapshot_is_recorded_as_received_before_it_is_durable,
        "a transfer continues after a crash",
        Tests("tests/crashpoints/test_snapshots.py::test_guaranteed_snapshot_exists_after_a_crash"),
    ),
    Mutant(
        name_of_a_snapshot_is_not_synced,
        "what was saved is durable",
        Tests("tests/crashpoints/test_snapshots.py::test_guaranteed_snapshot_exists_after_a_crash"),
    ),
    Mutant(
        log_begins_with_an_entry_that_is_not_committed,
        "positions are the same on all nodes",
        Scenario("retention-begins-with-a-committed-entry"),
    ),
    Mutant(
        retention_ignores_peers_that_still_need_entries,
        "what is not committed is kept",
        Seeds(("Violation: retention",), with_deleted_data_files),
    ),
    Mutant(
        catch_up_has_no_quota,
        "live replication is not starved",
        Tests(CATCH_UP + "test_follower_that_catches_up_gets_no_more_than_its_quota"),
    ),
    Mutant(
        bytes_in_flight_are_not_bounded,
        "bounded memory",
        Tests(CATCH_UP + "test_bytes_in_flight_to_one_peer_and_to_all_are_bounded"),
    ),
    Mutant(
        duplicate_answers_double_the_chunks,
        "one chunk of a snapshot is in flight to a follower",
        Tests(CATCH_UP + "test_duplicates_of_an_answer_start_no_further_chunks"),
    ),
    Mutant(
        restarted_node_does_not_count_deleted_entries_as_committed,
        "acknowledged is durable",
        Tests(
            "tests/unit/dledger/core/test_catch_up.py::"
            "test_delayed_reset_sets_nothing_aside_on_a_restarted_node_whose_log_it_began"
        ),
    ),
)

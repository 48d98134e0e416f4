"""Planted bugs of the shell around the state machine: applying, results, snapshots, installs, deletions."""

from dataclasses import replace

from dledger.core import catch_up
from dledger.node.maintenance.retention import RetentionFloor
from dledger.node.node import Node
from dledger.node.observer import NodeObserver
from dledger.node.state_machine import Applier
from dledger.node.state_machine_runner import StateMachineRunner
from dledger.storage.snapshot_store import SnapshotStore
from dledger.testing.shell.options import ShellNemesisOp, with_state_machines
from dledger.testing.shell.state_options import SnapshotNemesisOp
from dledger.types import NO_INDEX
from tests.mutants.bugs.shell.general import FAILED, READ, STUCK
from tests.mutants.mutant import Mutant, ShellSeeds, Tests

NODE = "tests/unit/dledger/node"
RECEIVED = (
    "tests/unit/dledger/core/test_catch_up.py::"
    "test_save_that_is_reported_after_a_reset_does_not_replace_the_received_snapshot"
)
KEPT = (
    "tests/unit/dledger/core/test_catch_up.py::"
    "test_installation_keeps_its_snapshot_while_newer_ones_are_saved_until_it_is_gone"
)
STATE = ("Violation: state machine safety", "Violation: applied index", "Violation: a restart finds its state")


def with_snapshots(*nemesis_ops, usual=()):
    def shape(options):
        shaped = with_state_machines(replace(options, nemesis_ops=usual, nemesis_interval_us=200_000))
        state = replace(shaped.state, snapshot_threshold=4, nemesis_ops=nemesis_ops, nemesis_interval_us=100_000)
        return replace(shaped, state=state, lease_share=0.0)

    return shape


with_installs = with_snapshots(SnapshotNemesisOp.STRAND, SnapshotNemesisOp.INTERRUPT_INSTALLS)
with_restarts = with_snapshots(SnapshotNemesisOp.DIE_IN_SAVES, usual=(ShellNemesisOp.KILL,))
with_damaged_snapshots = with_snapshots(SnapshotNemesisOp.DAMAGE_SNAPSHOT, usual=(ShellNemesisOp.KILL,))
with_slow_states = with_snapshots(SnapshotNemesisOp.SLOW_APPLY, usual=(ShellNemesisOp.ISOLATE,))


def with_lost_snapshots(options):
    """Cut the power of saving nodes, whose disk then holds what was synced."""
    shaped = with_snapshots(SnapshotNemesisOp.DIE_IN_SAVES, usual=(ShellNemesisOp.CUT_POWER_OF_ALL,))(options)
    return replace(shaped, is_flush_sync=True)


# Without a bug, no run with these shapes may fail.
SOUND = (with_installs, with_restarts, with_damaged_snapshots, with_slow_states, with_lost_snapshots)


def restart_applies_the_last_entry_of_the_snapshot_again(patch):
    original = Applier._load_piece

    def load_piece(self, loading):
        original(self, loading)
        if not self.is_loading and loading.info.index >= self._log.begin_index:
            self._applied_index -= 1

    patch.setattr(Applier, "_load_piece", load_piece)


def install_keeps_the_old_state(patch):
    original = Applier.on_reset

    def on_reset(self, begin_index, snapshot_index):
        if snapshot_index > self._applied_index:
            self._applied_index = self._commit_index = snapshot_index
            self._snapshot = self._snapshots.latest()
        original(self, begin_index, snapshot_index)

    patch.setattr(Applier, "on_reset", on_reset)


def snapshot_is_named_by_the_commit_index(patch):
    """Entries that are committed but not applied are missing in the state restored from it."""
    original = Applier.save_snapshot

    def save_snapshot(self):
        applied_index, self._applied_index = self._applied_index, max(self._applied_index, self._commit_index)
        try:
            return original(self)
        finally:
            self._applied_index = applied_index

    patch.setattr(Applier, "save_snapshot", save_snapshot)


def snapshot_has_its_name_before_it_is_durable(patch):
    """Its files are synced with the next one; the log is deleted meanwhile."""
    original = SnapshotStore._take_in

    def take_in(self, name, info):
        sync_directory, self._files.sync_directory = self._files.sync_directory, lambda _: None
        try:
            original(self, name, info)
        finally:
            self._files.sync_directory = sync_directory

    patch.setattr(SnapshotStore, "_take_in", take_in)


def log_is_deleted_beyond_the_snapshot(patch):
    patch.setattr(RetentionFloor, "index", lambda self: self._core.retention_floor)


def damaged_snapshot_is_loaded(patch):
    def open_checked(self, info):
        return self._files.open(self._path_of(info.index))

    patch.setattr(SnapshotStore, "_open_checked", open_checked)


def entries_wait_after_a_save_for_the_next_commit(patch):
    original = StateMachineRunner._saved

    def saved(self, error):
        ask_step = self._ask_step
        self._ask_step = lambda: None
        original(self, error)
        self._steps.soon(lambda _: setattr(self, "_ask_step", ask_step))

    patch.setattr(StateMachineRunner, "_saved", saved)


def append_is_answered_before_it_is_applied(patch):
    def on_commit(self, commit_index):
        self._answers.on_committed(commit_index)
        if self._machine is not None:
            self._machine.committed(commit_index)
        self._commits.wake()
        self._notify_listeners()

    patch.setattr(NodeObserver, "on_commit", on_commit)


def reader_of_the_state_does_not_wait(patch):
    async def wait_applied(self, index):
        del self, index

    patch.setattr(Node, "wait_applied", wait_applied)


def entries_are_applied_while_the_state_is_saved(patch):
    """Part of the state is then of a later index."""

    def step_soon(self):
        if not self._is_step_due:
            self._is_step_due = True
            self._steps.soon(self._step)

    patch.setattr(StateMachineRunner, "_step_soon", step_soon)


def saves_follow_each_other_while_entries_wait_to_be_applied(patch):
    patch.setattr(Applier, "catch_up", lambda _self: None)


def no_snapshot_is_sent_during_a_save(patch):
    original = StateMachineRunner.read_chunk

    def read_chunk(self, *arguments):
        return original(self, *arguments) if self._is_saved.is_set() else None

    patch.setattr(StateMachineRunner, "read_chunk", read_chunk)


def snapshot_counts_before_the_core_knows_it(patch):
    def index(self):
        saved = self._snapshots._applier.snapshot
        return min(self._core.retention_floor, NO_INDEX if saved is None else saved.index + 1)

    patch.setattr(RetentionFloor, "index", index)


def installation_begins_with_the_newest_snapshot_at_each_attempt(patch):
    patch.setattr(catch_up, "retry", catch_up.begin)


def request_of_a_snapshot_before_the_first_entry_is_dropped(patch):
    original = Applier.request_snapshot

    def request_snapshot(self, *, is_forced=False):
        if self._applied_index != NO_INDEX:
            original(self, is_forced=is_forced)

    patch.setattr(Applier, "request_snapshot", request_snapshot)


def report_of_an_old_save_replaces_the_received_snapshot(patch):
    def on_snapshot_saved(state, snapshot):
        state.snapshot = snapshot

    patch.setattr(catch_up, "on_snapshot_saved", on_snapshot_saved)


MUTANTS = (
    Mutant(
        restart_applies_the_last_entry_of_the_snapshot_again,
        "each entry is applied once",
        ShellSeeds(STATE, with_restarts),
    ),
    Mutant(install_keeps_the_old_state, "the state machine sees every entry", ShellSeeds(STATE, with_installs)),
    Mutant(
        snapshot_is_named_by_the_commit_index,
        "the state machine sees every entry",
        ShellSeeds(STATE + FAILED, with_restarts),
    ),
    Mutant(
        snapshot_has_its_name_before_it_is_durable,
        "a restart finds its state",
        ShellSeeds(STATE + FAILED, with_lost_snapshots),
    ),
    Mutant(log_is_deleted_beyond_the_snapshot, "a restart finds its state", ShellSeeds(STATE + FAILED, with_restarts)),
    Mutant(damaged_snapshot_is_loaded, "damage is not used", ShellSeeds(STATE + FAILED, with_damaged_snapshots)),
    Mutant(entries_wait_after_a_save_for_the_next_commit, "liveness", ShellSeeds(STUCK, with_slow_states)),
    Mutant(
        append_is_answered_before_it_is_applied,
        "acknowledged is applied",
        ShellSeeds((*FAILED, "Violation: acknowledged is applied"), with_slow_states),
    ),
    Mutant(reader_of_the_state_does_not_wait, "reads are linearizable", ShellSeeds(READ, with_slow_states)),
    Mutant(
        entries_are_applied_while_the_state_is_saved,
        "a snapshot is of one index",
        ShellSeeds(STATE + FAILED, with_restarts),
    ),
    Mutant(
        saves_follow_each_other_while_entries_wait_to_be_applied,
        "liveness",
        Tests(
            f"{NODE}/test_state_machine_runner.py::test_entries_committed_during_a_save_are_applied_before_the_next_one"
        ),
    ),
    Mutant(
        no_snapshot_is_sent_during_a_save,
        "liveness",
        Tests(
            f"{NODE}/test_state_machine_runner.py::"
            "test_while_a_snapshot_is_saved_nothing_else_changes_the_snapshots_and_older_ones_are_sent"
        ),
    ),
    Mutant(
        snapshot_counts_before_the_core_knows_it,
        "deleted entries are in a snapshot that can be sent",
        Tests(f"{NODE}/test_state_machine_runner.py::test_no_snapshot_counts_before_the_core_knows_it"),
    ),
    Mutant(
        report_of_an_old_save_replaces_the_received_snapshot,
        "deleted entries are in a snapshot that can be sent",
        Tests(RECEIVED),
    ),
    Mutant(installation_begins_with_the_newest_snapshot_at_each_attempt, "liveness", Tests(KEPT)),
    Mutant(
        request_of_a_snapshot_before_the_first_entry_is_dropped,
        "a requested snapshot is saved",
        Tests(
            "tests/unit/dledger/node/test_state_machine.py::"
            "test_snapshot_that_is_requested_before_the_first_entry_is_saved_after_it"
        ),
    ),
)

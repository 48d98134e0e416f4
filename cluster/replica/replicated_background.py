"""The background tasks of a replicated log: dispatch after commits, waiting readers, readiness for puts.

The node itself runs the log: its syncs, its files, its role. It signals changes; everything else runs in cooperative
steps of the event loop: immediately if the role changes or a read waits for it, otherwise in batches of commits. After
the node's retention has deleted files, queues and index follow, some queues in each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.replica.loaded_queues import LoadedQueues
from store.maintenance.background import STEP_S, BackgroundTasks, LogTasks
from store.maintenance.periodic_jobs import EVERY_TICK_MS, PeriodicJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.replicated_state import ReplicatedState
    from commitlog.replicated.commit_log import DLedgerCommitLog
    from commitlog.replicated.leadership import Leadership, Readiness
    from dledger.node.node import Node
    from store.access.message_store import MessageStore
    from store.maintenance.lifecycle import DerivedLifecycle
    from store.maintenance.task_host import TaskHost
    from store.model.config import MessageStoreConfig


_LEVELS_INTERVAL_S: Final = 1


class ReplicatedLogTasks:
    """The background tasks that a replicated log adds to those of a store. Must be created inside the running loop.

    Args:
        store: the open store.
        log: its log.
        node: the node of the log.
        leadership: leadership of the node.
        machine: state machine, which may have the queue ends of a loaded snapshot.
        lifecycle: lifecycle of the store.
        config: settings of the store.
        on_check: called with the readiness of the leader, whenever it may have changed.
        host: the machine.

    Attributes:
        background: the tasks; start them after the node.
        readiness: result of the last check; any thread may read it.
    """

    def __init__(
        self,
        store: MessageStore,
        log: DLedgerCommitLog,
        node: Node,
        leadership: Leadership,
        machine: ReplicatedState,
        lifecycle: DerivedLifecycle,
        config: MessageStoreConfig,
        on_check: Callable[[], None],
        *,
        host: TaskHost,
    ) -> None:
        jobs = (
            PeriodicJob("recording the last saved snapshot", EVERY_TICK_MS, self._note_snapshot),
            PeriodicJob(
                "requesting a snapshot",
                config.clean_resource_interval_ms,
                self._bring_snapshot_forward,
                is_due_at_start=True,
            ),
            PeriodicJob(
                "comparing the feature levels of the members",
                _LEVELS_INTERVAL_S * 1_000,
                lambda _now_ms: self._on_check(),
            ),
        )
        # If the store fails, the node must stop, too: it must not acknowledge messages that cannot be read here.
        tasks = LogTasks(jobs, self._prepare, self._dispatched, self._is_dispatch_urgent, node.fail)
        self.background = BackgroundTasks(store, lifecycle, config, tasks, host)
        self._store = store
        self._retention = lifecycle.retention
        self.readiness: Readiness = leadership.check()
        self._log = log
        self._node = node
        self._leadership = leadership
        self._machine = machine
        self._on_check = on_check
        self._now_s = host.now_s
        self._loaded_queues = LoadedQueues(store.derived, log, machine, host.now_s)
        node.when_changed(self.background.dispatch_soon)

    def _note_snapshot(self, _now_ms: int) -> None:
        self._machine.note_snapshot(self._node.snapshot)

    def _bring_snapshot_forward(self, _now_ms: int) -> None:
        """Request a snapshot if a missing one is the only reason to keep files; otherwise it may come late or never."""
        retention = self._retention
        if retention.is_held_back or self._node.is_retention_held_back:
            kept = self._machine.retention_offset(self._node.snapshot)
            if kept < retention.archive.lowered(self._store.needed_from, self._log.begin_offset):
                # Also if it covers the same entries: queues may not have reached them at the last one, and retention
                # uses the second newest snapshot.
                self._node.request_snapshot(is_forced=True)

    def _prepare(self) -> bool:
        """Apply a loaded snapshot to the queues, in short steps; return whether dispatch may continue."""
        return self._loaded_queues.step(self._now_s() + STEP_S)

    def prepare_to_end(self) -> None:
        """Do everything that must precede the last dispatch.

        Raises:
            store.errors.DiskFull, StorageFailed: see `MessageStore.dispatch`.
        """
        self._loaded_queues.drop_superseded()

    def _dispatched(self) -> bool:
        # Before this node may lead: it would assign offsets again whose messages the log no longer contains.
        if not self._loaded_queues.step(self._now_s() + STEP_S):
            return False
        self.readiness = self._leadership.check()
        self._on_check()
        return True

    def _is_dispatch_urgent(self) -> bool:
        """Return whether the role or term of the node has changed, or a new leader is not ready yet."""
        node, seen = self._node, self.readiness
        has_changed = (node.is_leader, node.term) != (seen.is_leader, seen.term)
        is_due = node.is_leader and not self._leadership.is_ready
        return has_changed or is_due

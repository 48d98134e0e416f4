"""Runs what follows a replicated log: dispatch after commits, readers that wait for it, when puts may be accepted.

The node runs the log itself: its syncs, its files, its role. It signals changes; everything else is done in cooperative
steps of the event loop: at oncewhen roles change or a read must see it, else for some commits at a time. What the
node's retention has deleted is gone from queues and index a moment later, some queues a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from cluster.replica.loaded_queues import LoadedQueues
from cluster.replica.replicated_state import ReplicatedState
from commitlog.replicated.commit_log import DLedgerCommitLog
from commitlog.replicated.leadership import Leadership, Readiness
from dledger.node.node import Node
from store.access.message_store import MessageStore
from store.maintenance.background import TURN_S, StoreUpkeep
from store.maintenance.lifecycle import DerivedLifecycle
from store.model.config import MessageStoreConfig


class ReplicatedUpkeep(StoreUpkeep):
    """Runs the store of one node. Construct it inside the running loop, then `start` it after the node.

    Args:
        store: open.
        log: its log.
        node: whose log it is.
        leadership: of the node.
        machine: may hold the queue ends of a snapshot.
        lifecycle: of the store.
        config: of the store.
        on_look: called with the readiness of the leader, whenever it may have changed.

    Attributes:
        readiness: the readiness at the last check; any thread may read it.
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
        on_look: Callable[[], None],
    ) -> None:
        super().__init__(store, lifecycle, config)
        self.readiness: Readiness = leadership.look()
        self._log = log
        self._node = node
        self._leadership = leadership
        self._machine = machine
        self._on_look = on_look
        self._loaded_queues = LoadedQueues(store.derived, log, machine)
        self._snapshot_due_ms = 0
        node.when_changed(self.dispatch_soon)

    def _due(self, now_ms: int) -> None:
        self._machine.note_snapshot(self._node.snapshot)
        if now_ms >= self._snapshot_due_ms:
            self._snapshot_due_ms = now_ms + self._config.clean_resource_interval_ms
            self._bring_snapshot_forward()

    def _bring_snapshot_forward(self) -> None:
        """Request a snapshot if a missing one is the only reason to keep files: else it may come late, or never."""
        retention, derived = self._lifecycle.retention, self.store.derived
        if retention.is_held_back or self._node.is_retention_held_back:
            kept = self._machine.retention_offset(self._node.snapshot)
            if kept < retention.archive.lowered(derived.durable_offset, self._log.begin_offset):
                # Also of the same entries: queues may not have reached them then, and the last but one is kept, too.
                self._node.ask_snapshot(anew=True)

    def prepare(self) -> bool:
        """Follow a log that was restarted from a snapshot, in short steps; return whether dispatch may continue."""
        return self._loaded_queues.turn(monotonic() + TURN_S)

    def prepare_to_end(self) -> None:
        """Do all that must come before the last dispatch.

        Raises:
            store.errors.DiskFull, StorageFailed: see `MessageStore.dispatch`.
        """
        self._loaded_queues.drop_surpassed()

    def _dispatched(self) -> bool:
        # Before this node may lead: it would assign offsets again that the log no longer contains.
        if not self._loaded_queues.turn(monotonic() + TURN_S):
            return False
        self.readiness = self._leadership.look()
        self._on_look()
        return True

    def _is_dispatch_urgent(self) -> bool:
        """Return whether a caller waits, also for news that this node leads now, or that another one does."""
        node, seen = self._node, self.readiness
        has_changed = (node.is_leader, node.term) != (seen.is_leader, seen.term)
        is_due = node.is_leader and not self._leadership.is_ready
        return has_changed or is_due or super()._is_dispatch_urgent()

    def _failed(self, error: Exception) -> None:
        """End the node: it must not acknowledge messages that cannot be read here, on a disk that fails."""
        self._node.fail(error)

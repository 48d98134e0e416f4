"""Two of the periodic jobs of a node: saving checkpoints, and logging a full disk.

The list of all jobs is in `dledger.node.composition`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.raft import Raft
    from dledger.entries.store import EntryStore
    from store.fs.storage_thread import Worker

logger = logging.getLogger(__name__)


class Checkpoints:
    """Saves checkpoints of the log in the storage thread.

    Args:
        store: the log.
        raft: the core, for the commit index.
        worker: saves them outside the event loop.
        on_failed: called with an error; the node must stop.
    """

    def __init__(
        self, store: EntryStore, raft: Raft, worker: Worker, *, on_failed: Callable[[Exception], None]
    ) -> None:
        self._store = store
        self._raft = raft
        self._worker = worker
        self._on_failed = on_failed
        # At most one save runs at a time.
        self._is_saving = False
        # Durable and committed index of the last checkpoint whose save was started.
        self._last = (-1, -1)

    def save(self) -> None:
        """Save a checkpoint if it differs from the last one and no save is running."""
        now = (self._store.durable_index, self._raft.commit_index)
        if self._is_saving or now == self._last:
            return
        self._is_saving = True
        self._last = now
        self._worker.run(self._store.begin_checkpoint(now[1]).save, self._saved)

    def _saved(self, error: Exception | None) -> None:
        self._is_saving = False
        if error is not None:
            self._on_failed(error)


class FullDiskLog:
    """Logs when the disk becomes full, and when it has free space again.

    Args:
        self_id: for the log lines.
        raft: the core, which reports whether the disk is full.
    """

    def __init__(self, self_id: str, raft: Raft) -> None:
        self._self_id = self_id
        self._raft = raft
        # The state that was logged last.
        self._is_full = False

    def check(self) -> None:
        """Log the state if it has changed."""
        is_full = self._raft.is_disk_full
        if is_full != self._is_full:
            self._is_full = is_full
            logger.warning("%s self_id=%s", "disk_full" if is_full else "disk_has_space", self._self_id)

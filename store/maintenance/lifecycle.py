"""The lifecycle of an open store: flushes, checkpoints, retention, and a clean close.

Programs without an event loop call it directly; in an event loop `store.maintenance.background` does.

| class              | log                                                            |
| ------------------ | -------------------------------------------------------------- |
| `DerivedLifecycle` | any: its owner flushes and closes it                           |
| `StoreLifecycle`   | in local files, which it also flushes and closes               |

Order of a flush: the log, dispatch, queues and index, the checkpoint. Source: RocketMQ `DefaultMessageStore.shutdown`,
`FlushConsumeQueueService`, `StoreCheckpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store.errors import StoreError
from store.fs.retention_rules import ClockReading, read_clocks
from store.fs.sync_tickets import flush_all
from store.maintenance.retention import LocalLogFiles, StoreRetention

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.access.message_store import MessageStore
    from store.fs.ports import Files
    from store.maintenance.directory import StoreRoot
    from store.model.config import MessageStoreConfig
    from store.model.local_log import LocalLog


class DerivedLifecycle:
    """The lifecycle of queues, index and checkpoint of one store.

    Args:
        store: the open store.
        root: its directory.
        retention: of its log's files.
        durable_log_end: returns the durable end of the log; 0 for a replicated log, which may be truncated or replaced.
        close_log: closes the log's files, after the store and before the directory is unlocked.

    Attributes:
        retention: deletes old files; its `run` must be called regularly.
    """

    def __init__(
        self,
        store: MessageStore,
        root: StoreRoot,
        retention: StoreRetention,
        *,
        durable_log_end: Callable[[], int] = lambda: 0,
        close_log: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._root = root
        self._durable_log_end = durable_log_end
        self._close_log = close_log
        self.retention = retention

    def flush(self) -> None:
        """Dispatch up to the log's end, make queues and index durable, and save the checkpoint.

        Raises:
            store.errors.DiskFull: no space for queues or index; no message is lost, try again.
            store.errors.StorageFailed: the store has stopped.
        """
        self._store.dispatch()
        flush_all(self._store)
        self.save_checkpoint()

    def write_checkpoint(self) -> bool:
        """Write the checkpoint into the page cache; return whether it has changed and must be synced.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        derived = self._store.derived
        return self._root.write_checkpoint(
            self._store.log.flushed_store_timestamp,
            derived.queues_timestamp,
            derived.index_timestamp,
            index_digest=derived.empty_index_digest,
            log_end=self._durable_log_end(),
        )

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable; any thread may call it.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self._root.sync_checkpoint()

    def save_checkpoint(self) -> None:
        """Write the checkpoint and sync it.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        if self.write_checkpoint():
            self.sync_checkpoint()

    def abandon(self, *, is_clean: bool = False) -> None:
        """Close all parts without a flush.

        Args:
            is_clean: everything was flushed before; False: after a failure, no more writes or syncs are allowed.

        Raises:
            store.errors.StorageFailed: the checkpoint could not be saved; all parts are closed, but the store is not
                marked as clean.
        """
        is_noted = False
        try:
            if is_clean:
                self._save_last_checkpoint()
                is_noted = True
        finally:
            self._close(is_clean=is_noted)

    def _save_last_checkpoint(self) -> None:
        """Save the digests of queues and index, so that the next process detects files that were lost in between."""
        if self._root.write_digests(self._store.derived.digests()):
            self.sync_checkpoint()

    def _close(self, *, is_clean: bool) -> None:
        self._store.close()
        self._close_log()
        self._root.close(is_clean=is_clean)


class StoreLifecycle:
    """The lifecycle of a store with its own log.

    Args:
        store: the open store.
        log: its log.
        root: its directory.
        files: the file system.
        config: of the store.
        log_directory: of the log's files.
        clocks: of the machine; tests may pass others.

    Attributes:
        derived: the lifecycle of queues, index and checkpoint.
    """

    def __init__(
        self,
        store: MessageStore,
        log: LocalLog[Any],
        root: StoreRoot,
        files: Files,
        config: MessageStoreConfig,
        log_directory: str,
        clocks: Callable[[], ClockReading] = read_clocks,
    ) -> None:
        self._store = store
        self._log = log
        self.derived = DerivedLifecycle(
            store,
            root,
            StoreRetention(store, LocalLogFiles(log), files, log_directory, config, clocks),
            durable_log_end=lambda: log.flushed_offset,
            close_log=lambda: log.abandon(store.stop_reason),
        )

    @property
    def retention(self) -> StoreRetention:
        """Deletes old files; call its `run` regularly."""
        return self.derived.retention

    def flush_log(self) -> None:
        """Make the log durable, and end the puts that wait for that.

        Raises:
            store.errors.StorageFailed: the store has stopped.
        """
        try:
            ticket = self._log.begin_flush()
            if ticket is not None:
                ticket.sync()
                self._log.end_flush(ticket)
        except StoreError as error:
            self._store.stop(str(error))
            raise

    def flush(self) -> None:
        """Make everything durable: the log, queues and index up to the log's end, and the checkpoint.

        Raises:
            as `DerivedLifecycle.flush`.
        """
        self.flush_log()
        self.derived.flush()

    def close(self) -> None:
        """Flush and close everything cleanly.

        Raises:
            store.errors.StoreError: the flush failed; the files are closed without it.
        """
        is_clean = False
        try:
            if not self._store.stop_reason:
                self.flush()
                is_clean = True
        finally:
            self.abandon(is_clean=is_clean)

    def save_checkpoint(self) -> None:
        """Write the checkpoint durably; raises as `DerivedLifecycle.save_checkpoint`."""
        self.derived.save_checkpoint()

    def abandon(self, *, is_clean: bool = False) -> None:
        """Close all parts without a flush; see `DerivedLifecycle.abandon`."""
        self.derived.abandon(is_clean=is_clean)

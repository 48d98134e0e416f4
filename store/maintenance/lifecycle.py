"""What an open store needs again and again: flush, checkpoint, retention, an end in order.

This is the way for programs without an event loop, and what `store.maintenance.service` does in one.

| class           | log                                                     |
| --------------- | ------------------------------------------------------- |
| `DerivedKeeper` | any: the owner of the log flushes it and closes it      |
| `StoreKeeper`   | in files of this machine alone: is flushed and closed, too |

Order of a flush: the log, then what is dispatched from it, then queues and index, then the checkpoint that records it.
Source: RocketMQ `DefaultMessageStore.shutdown`, `FlushConsumeQueueService`, `StoreCheckpoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from store.access.message_store import MessageStore
from store.errors import StoreError
from store.fs.ports import Files
from store.fs.retention_rules import ClockReading, read_clocks
from store.fs.sync_tickets import flush_all
from store.maintenance.directory import StoreRoot
from store.maintenance.retention import LocalLogFiles, StoreRetention
from store.model.config import MessageStoreConfig
from store.model.local_log import LocalLog


class DerivedKeeper:
    """Maintains queues and index of one store, and reports where they end.

    Args:
        store: open.
        root: its directory.
        retention: of its log's files.

    Attributes:
        retention: deletes old files; call its `run` once in a while.
    """

    def __init__(self, store: MessageStore, root: StoreRoot, retention: StoreRetention) -> None:
        self._store = store
        self._root = root
        self.retention = retention

    def flush(self) -> None:
        """Bring queues and index to the log's end, and make them durable; then the checkpoint.

        Raises:
            store.errors.DiskFull: no room for queues or index; nothing is lost, try again.
            store.errors.StorageFailed: the store has stopped.
        """
        self._store.dispatch()
        flush_all(self._store)
        self.save_checkpoint()

    def write_checkpoint(self) -> bool:
        """Write what is durable into the page cache; return whether that is news, and `sync_checkpoint` due.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        derived = self._store.derived
        return self._root.write_checkpoint(
            self._store.log.flushed_store_timestamp,
            derived.queues_timestamp,
            derived.index_timestamp,
            log_end=self._durable_log_end(),
        )

    def _durable_log_end(self) -> int:
        """Return the offset below which no record can be lost; 0: a replicated log may be cut, or begun again."""
        return 0

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable; any thread may call it.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self._root.sync_checkpoint()

    def save_checkpoint(self) -> None:
        """Write what is durable, and make that durable.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        if self.write_checkpoint():
            self.sync_checkpoint()

    def abandon(self, *, is_in_order: bool = False) -> None:
        """Close everything as it is.

        Args:
            is_in_order: all was flushed before; False: after a failure that makes any further write or sync unwise.

        Raises:
            store.errors.StorageFailed: the checkpoint could not be saved; everything is closed all the same, and not
                noted as in order.
        """
        is_noted = False
        try:
            if is_in_order:
                self._save_last_checkpoint()
                is_noted = True
        finally:
            self._close(is_in_order=is_noted)

    def _save_last_checkpoint(self) -> None:
        """Save where queues and index end, so that the next process detects files that were lost meanwhile."""
        if self._root.write_digests(self._store.derived.digests()):
            self.sync_checkpoint()

    def _close(self, *, is_in_order: bool) -> None:
        self._store.close()
        self._root.close(is_in_order=is_in_order)


class StoreKeeper(DerivedKeeper):
    """Keeps one store whose log is its own.

    Args:
        store: open.
        log: its log.
        root: its directory.
        files: the file system.
        config: of the store.
        log_directory: where the log's files are.
        clocks: the machine's, unless a test brings others.
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
        super().__init__(store, root, StoreRetention(store, LocalLogFiles(log), files, log_directory, config, clocks))
        self._log = log

    def flush_log(self) -> None:
        """Make the log durable; puts that wait for that end.

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
        """Make everything durable: log, queues and index, brought to the log's end, and the checkpoint.

        Raises:
            as `DerivedKeeper.flush`.
        """
        self.flush_log()
        super().flush()

    def close(self) -> None:
        """Flush and close everything, so that the next start finds it in order.

        Raises:
            store.errors.StoreError: it could not be flushed; the files are given back as they are.
        """
        is_in_order = False
        try:
            if not self._store.stop_reason:
                self.flush()
                is_in_order = True
        finally:
            self.abandon(is_in_order=is_in_order)

    def _durable_log_end(self) -> int:
        return self._log.flushed_offset

    def _close(self, *, is_in_order: bool) -> None:
        self._store.close()
        self._log.abandon(self._store.stop_reason)
        self._root.close(is_in_order=is_in_order)

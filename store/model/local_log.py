"""The port of a log in local files: flushes, the next file and deletion, in addition to reading and appending.

The plain log implements it (`commitlog.plain.commit_log`). The replicated log does not: its node flushes it and deletes
its files. All methods are for the owner's thread, except `sync` and `make`, which any thread may call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from store.fs.sync_tickets import SyncableT
from store.model.commit_log import CommitLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.mapped.preallocation import NextFile


class LogFile(Protocol):
    """A file of a log."""

    @property
    def path(self) -> str:
        """Its path."""
        ...

    @property
    def begin_offset(self) -> int:
        """Offset of its first byte in the log."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset after its last byte."""
        ...


class LocalLog(CommitLog, Protocol[SyncableT]):
    """A log in local files."""

    @property
    def written_offset(self) -> int:
        """Offset after the last record, flushed or not."""
        ...

    @property
    def flushed_offset(self) -> int:
        """Offset up to which all records are durable."""
        ...

    def files(self) -> Sequence[LogFile]:
        """Return all files, oldest first."""
        ...

    def begin_flush(self) -> SyncableT | None:
        """Return a ticket for all unsynced records; None if all are durable.

        Raises:
            store.errors.StorageFailed: an earlier write failed; the store must stop.
        """
        ...

    def end_flush(self, ticket: SyncableT) -> None:
        """Record that a ticket was synced, and end its appends."""
        ...

    def prepare_next_file(self) -> NextFile | None:
        """Return the job that creates the next file, if it is due.

        Raises:
            store.errors.StorageFailed: the last one failed; the store must stop.
        """
        ...

    def delete_before(self, offset: int) -> None:
        """Delete, durably, the files that end at or before `offset`; never the one with the last record.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        ...

    def abandon(self, detail: str) -> None:
        """Close the files without a flush; waiting appends end with an unknown outcome."""
        ...

    def close(self) -> None:
        """Make everything durable and close the files.

        Raises:
            store.errors.StorageFailed: unacknowledged records may be lost.
        """
        ...

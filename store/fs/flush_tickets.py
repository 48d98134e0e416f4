"""Tickets for syncs of derived files in other threads, and their durable log offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from store.fs.sync_tickets import OpenTickets, SyncTicket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.ports import File, QueueFiles


class Dispatched(NamedTuple):
    """The log offset up to which derived files are complete.

    Attributes:
        offset: after the last dispatched record.
        store_timestamp: of that record, milliseconds since 1970; 0 without one.
    """

    offset: int = 0
    store_timestamp: int = 0

    def after(self, offset: int, store_timestamp: int | None) -> Dispatched:
        """Return the value when the log up to `offset` is dispatched; unchanged if it was already.

        Args:
            offset: after the dispatched range.
            store_timestamp: of the last record of the range. None: it has none (only leaders' own entries, or
                commands). It counts nevertheless, else its files could not be deleted until the next message.
        """
        if offset <= self.offset:
            return self
        return Dispatched(offset, self.store_timestamp if store_timestamp is None else store_timestamp)


class DerivedFilesTicket(SyncTicket):
    """A sync that makes derived files durable up to `dispatched`.

    Attributes:
        dispatched: the covered part of the log; None: unknown, because some files were skipped.
    """

    __slots__ = ("_directories", "_names", "dispatched")

    def __init__(
        self,
        dispatched: Dispatched | None,
        files: QueueFiles,
        synced_files: Sequence[File],
        directories: Sequence[str],
    ) -> None:
        super().__init__(synced_files)
        self.dispatched = dispatched
        self._names = files
        self._directories = directories

    def sync(self) -> None:
        """Sync files and names; any thread may call it, once.

        Raises:
            store.errors.StorageFailed: the node must stop; the ticket must not be tried again.
        """
        self._names.sync_all(self._files, self._directories)
        self.is_synced = True


TicketT = TypeVar("TicketT", bound=DerivedFilesTicket)


class DerivedFlushProgress:
    """The log offset up to which derived files are durable. Owner's thread only.

    Attributes:
        flushed: messages of the log up to this offset have durable units or items.
    """

    __slots__ = ("_open", "flushed")

    def __init__(self) -> None:
        self.flushed = Dispatched()
        self._open: OpenTickets[DerivedFilesTicket] = OpenTickets()

    @property
    def is_waiting(self) -> bool:
        """Whether tickets are open, so that the files are being synced."""
        return bool(self._open)

    def begin(self, ticket: TicketT) -> TicketT:
        """Register a ticket."""
        self._open.add(ticket)
        return ticket

    def end(self, ticket: DerivedFilesTicket) -> None:
        """Record that a ticket was synced; it takes effect once all older ones are synced."""
        for done in self._open.take_back(ticket):
            if done.dispatched is not None:
                self.flushed = done.dispatched

    def truncate(self, dispatched: Dispatched) -> None:
        """Treat messages after an offset of the log as not durable, even if an open ticket is synced later."""
        self.flushed = min(self.flushed, dispatched)
        for ticket in self._open:
            if ticket.dispatched is not None:
                ticket.dispatched = min(ticket.dispatched, dispatched)

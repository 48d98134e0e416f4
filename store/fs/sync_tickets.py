"""Syncs that run in other threads: the files of a ticket, and the order in which tickets take effect.

The owner begins a ticket, any thread syncs it, and the owner ends it. Subclasses define what a ticket makes durable
(entries, a range of a log, derived files).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.fs.ports import File


class Syncable(Protocol):
    """A sync that can be executed in any thread."""

    def sync(self) -> None:
        """Sync the files; once.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be retried.
        """
        ...


SyncableT = TypeVar("SyncableT", bound=Syncable)


class Flushable(Protocol[SyncableT]):
    """A part of a store that is flushed with tickets."""

    def begin_flush(self) -> SyncableT | None:
        """Return a ticket for all unsynced changes; None if there are none."""
        ...

    def end_flush(self, ticket: SyncableT) -> None:
        """Record that a ticket was synced."""
        ...


def flush_all(part: Flushable[SyncableT]) -> None:
    """Make everything of `part` durable, in this thread.

    Raises:
        store.errors.StorageFailed: the node must stop.
    """
    while (ticket := part.begin_flush()) is not None:
        ticket.sync()
        part.end_flush(ticket)


class SyncTicket:
    """Files that must be synced.

    Attributes:
        is_synced: whether `sync` has ended successfully.
    """

    __slots__ = ("_files", "is_synced")

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self.is_synced = False

    def sync(self) -> None:
        """Sync the files; any thread may call it, once.

        Raises:
            store.errors.StorageFailed: the node must stop; the ticket must not be retried.
        """
        for file in self._files:
            file.sync()
        self.is_synced = True


Ticket = TypeVar("Ticket", bound=SyncTicket)


class OpenTickets(Generic[Ticket]):
    """The open tickets, oldest first. Owner's thread only."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __iter__(self) -> Iterator[Ticket]:
        """Yield all open tickets; after a truncation each of them must be shortened."""
        return iter(self._tickets)

    def __len__(self) -> int:
        """Return the number of open tickets."""
        return len(self._tickets)

    def add(self, ticket: Ticket) -> Ticket:
        """Add a ticket."""
        self._tickets.append(ticket)
        return ticket

    def take_back(self, ticket: Ticket) -> list[Ticket]:
        """Record that a ticket was synced; return those that take effect now, oldest first.

        A ticket takes effect once all older ones are synced, because each covers only its own files.
        """
        assert ticket.is_synced
        assert ticket in self._tickets
        done = []
        while self._tickets and self._tickets[0].is_synced:
            done.append(self._tickets.popleft())
        return done

    def clear(self) -> None:
        """Remove all tickets."""
        self._tickets.clear()

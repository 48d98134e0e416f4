"""Syncs that run in other threads: what a ticket covers, and in which order tickets count.

The owner takes a ticket, any thread syncs it, and the owner hands it back. What exactly it makes durable (entries, a
range of a log, derived files) is the owner's knowledge: it is kept in a ticket of the owner's own kind.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.fs.ports import File


class Syncable(Protocol):
    """What one flush makes durable."""

    def sync(self) -> None:
        """Sync the files; once.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be tried again.
        """
        ...


SyncableT = TypeVar("SyncableT", bound=Syncable)


class Flushable(Protocol[SyncableT]):
    """What hands out tickets for what is not durable yet, and takes them back."""

    def begin_flush(self) -> SyncableT | None:
        """Return a ticket for what waits to be durable; None when nothing does."""
        ...

    def end_flush(self, ticket: SyncableT) -> None:
        """Take a synced ticket back."""
        ...


def flush_all(part: Flushable[SyncableT]) -> None:
    """Make everything of `part` durable, here and now.

    Raises:
        store.errors.StorageFailed: the node must stop.
    """
    while (ticket := part.begin_flush()) is not None:
        ticket.sync()
        part.end_flush(ticket)


class SyncTicket:
    """Files that must be synced.

    Attributes:
        is_synced: whether `sync` came to its end.
    """

    __slots__ = ("_files", "is_synced")

    def __init__(self, files: Sequence[File]) -> None:
        self._files = files
        self.is_synced = False

    def sync(self) -> None:
        """Sync the files; any thread may call it, once.

        Raises:
            store.errors.StorageFailed: the node must stop; the ticket must not be tried again.
        """
        for file in self._files:
            file.sync()
        self.is_synced = True


Ticket = TypeVar("Ticket", bound=SyncTicket)


class OpenTickets(Generic[Ticket]):
    """The tickets that are out, oldest first. Owner's thread only."""

    __slots__ = ("_tickets",)

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()

    def __iter__(self) -> Iterator[Ticket]:
        """Yield all that are out; what was cut off meanwhile must be taken off each of them."""
        return iter(self._tickets)

    def __len__(self) -> int:
        """Return the number of tickets that are not returned."""
        return len(self._tickets)

    def add(self, ticket: Ticket) -> Ticket:
        """Hand out a ticket."""
        self._tickets.append(ticket)
        return ticket

    def take_back(self, ticket: Ticket) -> list[Ticket]:
        """Take a synced ticket back; return those that count now, oldest first.

        A ticket counts once all older ones are back: each covers only its own files.
        """
        assert ticket.is_synced
        assert ticket in self._tickets
        done = []
        while self._tickets and self._tickets[0].is_synced:
            done.append(self._tickets.popleft())
        return done

    def clear(self) -> None:
        """Forget them all."""
        self._tickets.clear()

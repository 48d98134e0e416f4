"""The durable index, and tickets for syncs that run in other threads.

The loop thread begins a ticket, any thread syncs it, and the loop thread ends it. A truncation in between removes its
entries from all open tickets, because other entries may get their indexes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.types import NO_INDEX
from store.fs.sync_tickets import OpenTickets, SyncTicket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.ports import File


class EntriesFlushProgress:
    """Tracks which entries are durable. Loop thread only."""

    __slots__ = ("_durable_index", "_open")

    def __init__(self, durable_index: int) -> None:
        # At most the last index of the log: it increases with synced tickets, in their order, and decreases with a
        # truncation.
        self._durable_index = durable_index
        # Open tickets, oldest first; a truncation lowers the last index that they cover.
        self._open: OpenTickets[EntriesTicket] = OpenTickets()

    @property
    def durable_index(self) -> int:
        """All entries up to this one are durable."""
        return self._durable_index

    def begin(self, last_index: int, files: Sequence[File]) -> EntriesTicket:
        """Return a ticket for all entries written so far."""
        return self._open.add(EntriesTicket(last_index, files))

    def end(self, ticket: EntriesTicket) -> None:
        """Record that a ticket was synced; it takes effect once all older ones are synced."""
        for done in self._open.take_back(ticket):
            self._durable_index = max(self._durable_index, done.last_index)

    def truncate(self, first_index: int) -> None:
        """Treat entries from `first_index` on as not durable, even if an open ticket is synced later."""
        self._durable_index = min(self._durable_index, first_index - 1)
        for ticket in self._open:
            ticket.last_index = min(ticket.last_index, first_index - 1)

    def reset(self, durable_index: int) -> None:
        """Treat all entries up to `durable_index` (before the log's start) as durable, and drop the open tickets."""
        self._durable_index = durable_index
        for ticket in self._open:
            ticket.last_index = NO_INDEX


class EntriesTicket(SyncTicket):
    """The files that must be synced for entries up to `last_index` to be durable.

    Attributes:
        last_index: the last entry that the sync covers; a truncation lowers it. Loop thread only.
    """

    __slots__ = ("last_index",)

    def __init__(self, last_index: int, files: Sequence[File]) -> None:
        super().__init__(files)
        self.last_index = last_index

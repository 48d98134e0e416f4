"""The durable offset of a plain log, and the appends that wait for it: group commit.

The owner begins a ticket, any thread syncs it, and the owner ends it; messages appended in between wait for the next
ticket. A truncation shortens every open ticket.

Source: RocketMQ `CommitLog.GroupCommitService`, which reports a failed sync to none of its callers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from store.errors import Certainty
from store.fs.sync_tickets import OpenTickets, SyncTicket
from store.model.commit_log import PendingPut, PutOutcome, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.ports import File


class LogTicket(SyncTicket):
    """The files that must be synced for the log to be durable up to `end_offset`.

    Attributes:
        end_offset: end of the synced range; a truncation lowers it. The owner's thread only.
        store_timestamp: of the last record before it.
    """

    __slots__ = ("end_offset", "store_timestamp")

    def __init__(self, end_offset: int, store_timestamp: int, files: Sequence[File]) -> None:
        super().__init__(files)
        self.end_offset = end_offset
        self.store_timestamp = store_timestamp


class LogFlushProgress:
    """The durable offset, and the appends that wait for it. The owner's thread only.

    Attributes:
        flushed_offset: the log is durable up to this offset.
        store_timestamp: of the last record before it; -1 when there is none.
    """

    __slots__ = ("_open", "_waiting", "flushed_offset", "store_timestamp")

    def __init__(self, flushed_offset: int, store_timestamp: int) -> None:
        self.flushed_offset = flushed_offset
        self.store_timestamp = store_timestamp
        self._open: OpenTickets[LogTicket] = OpenTickets()
        self._waiting: deque[tuple[int, PendingPut, PutOutcome]] = deque()

    def wait(self, end_offset: int, pending: PendingPut, outcome: PutOutcome) -> None:
        """End `pending` with `outcome` once the log is durable up to `end_offset`."""
        self._waiting.append((end_offset, pending, outcome))

    def begin(self, end_offset: int, store_timestamp: int, files: Sequence[File]) -> LogTicket:
        """Return a ticket for all records written so far."""
        return self._open.add(LogTicket(end_offset, store_timestamp, files))

    def end(self, ticket: LogTicket) -> None:
        """Record that a ticket was synced; it takes effect once all older ones are synced."""
        for done in self._open.take_back(ticket):
            if done.end_offset > self.flushed_offset:
                self.flushed_offset, self.store_timestamp = done.end_offset, done.store_timestamp
        self._end_waiting()

    def end_all(self, end_offset: int, store_timestamp: int) -> None:
        """Record that the whole log, which ends at `end_offset`, was synced, including the ranges of open tickets."""
        self._open.clear()
        self.flushed_offset, self.store_timestamp = end_offset, store_timestamp
        self._end_waiting()

    def _end_waiting(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.flushed_offset:
            _, pending, outcome = waiting.popleft()
            pending.end(outcome)

    def truncate(self, end_offset: int, store_timestamp: int) -> None:
        """Treat the log from `end_offset` on as not durable, also for open tickets; no caller may wait for it.

        Args:
            end_offset: new end of the log.
            store_timestamp: of the last record before it.
        """
        assert not self._waiting or self._waiting[-1][0] <= end_offset, (self._waiting[-1], end_offset)
        if self.flushed_offset > end_offset:
            self.flushed_offset, self.store_timestamp = end_offset, store_timestamp
        for ticket in self._open:
            if ticket.end_offset > end_offset:
                ticket.end_offset, ticket.store_timestamp = end_offset, store_timestamp

    def fail(self, detail: str) -> None:
        """End all waiting appends with an unknown outcome."""
        outcome = PutOutcome(PutStatus.UNKNOWN_ERROR, Certainty.UNKNOWN, (), detail)
        waiting, self._waiting = self._waiting, deque()
        for _, pending, _ in waiting:
            pending.end(outcome)

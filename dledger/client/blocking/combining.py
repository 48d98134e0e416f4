"""Flat combining: concurrent appends of several threads share calls, without a background thread.

While few calls are in flight, a thread sends its own bodies at once: a single append never waits. Later appends are
queued. The first call that ends wakes one of the waiting threads, the carrier: it sends the bodies of all waiting
threads in one call and distributes the answers. So batches grow with the load, and an idle client costs nothing.

Invariants: `_calls` counts calls in flight; a call that ends passes its count to the carrier that it wakes. The carrier
of a batch settles every ticket in it, even on errors. A ticket is settled once.

Source: Hendler et al., "Flat Combining and the Synchronization-Parallelism Tradeoff" (2010).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from dledger.client.limits import BATCH_ENTRIES_MAX, BATCH_SIZE_BYTES_MAX, QUEUE_ENTRIES_MAX
from dledger.client.outcomes import Appended, AppendUnknown, NotAppended, places_of
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dledger.v1.log_pb2 import AppendResponse

    # Sends bodies, with all retries, until a deadline on the monotonic clock; raises NotAppended or AppendUnknown.
    Send = Callable[[Sequence[bytes], float], AppendResponse]

# Two: the next batch is sent while the answer of the previous one is in flight. More only make batches smaller.
CALLS_MAX = 2
# Extra time after its own deadline for which a thread waits for the carrier of its batch, whose deadline is not later.
_CARRIER_GRACE_S = 1.0


class _Ticket:
    """One thread's bodies, and later their places or the error."""

    __slots__ = ("batch", "bodies", "deadline", "error", "gate", "places", "size_bytes")

    def __init__(self, bodies: Sequence[bytes], size_bytes: int, deadline: float) -> None:
        self.bodies = bodies
        self.size_bytes = size_bytes
        self.deadline = deadline
        self.places: list[Appended] | None = None
        self.error: NotAppended | AppendUnknown | None = None
        # The tickets that this thread must carry, its own first; set before `gate` opens unless the ticket is settled.
        self.batch: list[_Ticket] | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class Combiner:
    """Batches the appends of several threads into shared calls. Every method may be called by any thread.

    Args:
        send: makes one call with all retries; runs in the threads that append.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        self._calls = 0

    def append(self, bodies: Sequence[bytes], size_bytes: int, deadline: float) -> list[Appended]:
        """Append the bodies as consecutive entries, alone or with those of other threads.

        Args:
            bodies: at least one.
            size_bytes: their sum.
            deadline: on the monotonic clock.

        Raises:
            NotAppended: also when too many threads wait already (503), or the deadline passed in the queue.
            AppendUnknown: as the call ended.
        """
        with self._lock:
            if self._calls < CALLS_MAX and not self._queue:
                self._calls += 1
                ticket = None
            else:
                ticket = self._enqueue(bodies, size_bytes, deadline)
        if ticket is None:
            try:
                response = self._send(bodies, deadline)
            finally:
                self._end_call()
            return places_of(response.first_index, response.term, response.positions)
        return self._await(ticket)

    def _enqueue(self, bodies: Sequence[bytes], size_bytes: int, deadline: float) -> _Ticket:
        if len(self._queue) >= QUEUE_ENTRIES_MAX:
            raise NotAppended(
                ResponseCode.LEADER_PENDING_FULL, f"{QUEUE_ENTRIES_MAX} appends are already pending in this client"
            )
        ticket = _Ticket(bodies, size_bytes, deadline)
        self._queue.append(ticket)
        return ticket

    def _await(self, ticket: _Ticket) -> list[Appended]:
        """Wait until another thread settles the ticket, or makes this thread a carrier."""
        try:
            if not ticket.gate.acquire(timeout=max(ticket.deadline - time.monotonic(), 0)):
                self._withdraw(ticket)
        except KeyboardInterrupt:
            self._abandon(ticket)
            raise
        if ticket.batch is not None:
            self._carry(ticket.batch)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.places is not None, "a ticket resolves with places or an error"
        return ticket.places

    def _withdraw(self, ticket: _Ticket) -> None:
        """Remove an expired ticket from the queue; if a carrier has taken it, wait a little longer for that one."""
        with self._lock:
            is_queued = ticket in self._queue
            if is_queued:
                self._queue.remove(ticket)
        if is_queued:
            raise NotAppended(ResponseCode.NETWORK_ERROR, "the deadline passed before the append could be sent")
        if not ticket.gate.acquire(timeout=_CARRIER_GRACE_S):
            raise AppendUnknown(ResponseCode.NETWORK_ERROR, "the deadline passed while the append was in flight")

    def _abandon(self, ticket: _Ticket) -> None:
        """Withdraw an interrupted thread without waiting; a call that it should carry passes to another thread."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                return
            if ticket.batch is None:
                return
            self._queue.extendleft(reversed(ticket.batch[1:]))
        self._end_call()

    def _carry(self, batch: list[_Ticket]) -> None:
        """Send a batch in this thread and settle all its tickets."""
        # The result if this thread is interrupted: the other threads must not block, and their outcome is unknown.
        error: NotAppended | AppendUnknown = AppendUnknown(
            ResponseCode.NETWORK_ERROR, "the thread that sent the append was interrupted"
        )
        response: AppendResponse | None = None
        try:
            response = self._send([body for ticket in batch for body in ticket.bodies], batch[0].deadline)
        except (NotAppended, AppendUnknown) as outcome:
            error = outcome
        finally:
            self._end_call()
            _settle(batch, response, error)

    def _end_call(self) -> None:
        """End a call: wake a waiting thread to carry the queued tickets, if there are any."""
        with self._lock:
            if not self._queue:
                self._calls -= 1
                return
            batch = self._take_batch()
            batch[0].batch = batch
        batch[0].gate.release()

    def _take_batch(self) -> list[_Ticket]:
        """Take tickets from the queue's head, at least one, up to the size of a batch."""
        queue = self._queue
        first = queue.popleft()
        batch, entries, size_bytes = [first], len(first.bodies), first.size_bytes
        while queue:
            entries += len(queue[0].bodies)
            size_bytes += queue[0].size_bytes
            if entries > BATCH_ENTRIES_MAX or size_bytes > BATCH_SIZE_BYTES_MAX:
                break
            batch.append(queue.popleft())
        return batch


def _settle(batch: list[_Ticket], response: AppendResponse | None, error: NotAppended | AppendUnknown) -> None:
    """Give every ticket its places or its own error, and wake the threads; the first is the carrier's."""
    places = [] if response is None else places_of(response.first_index, response.term, response.positions)
    begin = 0
    for ticket in batch:
        if response is None:
            # One exception object per thread: raising one object twice would mix tracebacks.
            ticket.error = type(error)(error.code, error.message)
        else:
            end = begin + len(ticket.bodies)
            ticket.places = places[begin:end]
            begin = end
    for ticket in batch[1:]:
        ticket.gate.release()

"""Waiting readers: for a confirmed read index, or for the commit of more entries.

Not here: reading the log (`dledger.node.log_reader`), confirming leadership (`dledger.core`).
"""

from __future__ import annotations

import asyncio

from dledger.core.events import ReadIndex
from dledger.errors import RequestRefused, ResponseCode

__all__ = ["CommitWaiters", "PendingReads", "RequestRefused"]

_NOT_LEADING = "no leader is known here, or it lost its leadership during the request"
_NOT_CONFIRMED = "no quorum confirmed the leader within {:g} s"


class PendingReads:
    """Pending linearizable reads: all reads of one kind that arrive in one event batch share one request to the core.

    Args:
        timeout_s: the time without an answer after which a read is refused.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        # Reads not passed to the core yet, by whether they may use the leader's lease; empty after each batch.
        self._asking: dict[bool, list[asyncio.Future[int]]] = {}
        # Requests to the core without an answer, by id, each with its time: ascending in both, as `expire` requires.
        self._asked: dict[int, tuple[float, list[asyncio.Future[int]]]] = {}
        # No id is used twice, so that a late answer to an expired request does not match another one.
        self._last_read_id = 0

    def ask(self, future: asyncio.Future[int], *, is_lease_allowed: bool = False) -> None:
        """Complete `future` with the read index of the next request to the core."""
        self._asking.setdefault(is_lease_allowed, []).append(future)

    def next_questions(self, now_s: float) -> list[ReadIndex]:
        """Return the requests to the core for all waiting reads; nothing if none waits."""
        if not self._asking:
            return []
        questions = []
        for is_lease_allowed, futures in self._asking.items():
            self._last_read_id += 1
            self._asked[self._last_read_id] = (now_s, futures)
            questions.append(ReadIndex(self._last_read_id, is_lease_allowed))
        self._asking = {}
        return questions

    def ready(self, read_id: int, index: int) -> None:
        """Complete the reads of a request with their read index."""
        for future in self._take(read_id):
            if not future.done():
                future.set_result(index)

    def refused(self, read_id: int) -> None:
        """Refuse a read: the commit index cannot be confirmed now."""
        _refuse(self._take(read_id), RequestRefused(ResponseCode.NOT_LEADER, _NOT_LEADING))

    def expire(self, now_s: float) -> None:
        """Refuse reads that have waited too long."""
        while self._asked:
            read_id, (asked_s, futures) = next(iter(self._asked.items()))
            if now_s - asked_s < self._timeout_s:
                return
            del self._asked[read_id]
            _refuse(futures, RequestRefused(ResponseCode.NOT_LEADER, _NOT_CONFIRMED.format(self._timeout_s)))

    def end(self, error: RequestRefused) -> None:
        """Refuse all pending reads: the node stops."""
        for futures in self._asking.values():
            _refuse(futures, error)
        for _, futures in self._asked.values():
            _refuse(futures, error)
        self._asking, self._asked = {}, {}

    def _take(self, read_id: int) -> list[asyncio.Future[int]]:
        return self._asked.pop(read_id, (0.0, []))[1]


class CommitWaiters:
    """Waits for the next of something that the node repeats: commits, entries that are applied, events for watchers."""

    def __init__(self) -> None:
        # In the order of their arrival, and woken in this order; empty after each `wake`.
        self._waiters: dict[asyncio.Future[None], None] = {}
        # Set once, by `end`: every later `wait` raises it.
        self._error: RequestRefused | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`.

        Raises:
            RequestRefused: the node ended.
        """
        if self._error is not None:
            raise _copy(self._error)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Wake all waiters, which check again."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def end(self, error: RequestRefused) -> None:
        """Refuse all current and later waiters: the node stops."""
        self._error = error
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(_copy(error))


def _copy(error: RequestRefused) -> RequestRefused:
    """Return a copy for one caller: one exception object that is raised twice would mix both tracebacks."""
    return RequestRefused(error.code, error.message)


def _refuse(futures: list[asyncio.Future[int]], error: RequestRefused) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(_copy(error))

"""Readers that wait: for a confirmed read index, or for more entries to be committed.

Not here: reading itself (`dledger.log_reader`), how leadership is confirmed (`dledger.core`).
"""

from __future__ import annotations

import asyncio

from dledger.errors import DLedgerError, ResponseCode

_NOT_LEADING = "this node does not lead, or lost its leadership while it asked"
_NOT_CONFIRMED = "no quorum confirmed within {:g} s that this node still leads"


class RequestRefused(DLedgerError):
    """A request cannot be served here or now, and had no effect; the code says what to change before the next try.

    Attributes:
        code: why.
        message: what was wrong, for people.
    """

    def __init__(self, code: ResponseCode, message: str) -> None:
        super().__init__(f"{code.value} {code.name}: {message}")
        self.code = code
        self.message = message


class PendingReads:
    """Linearizable reads on their way: all that ask in one turn share one question to the core.

    Args:
        timeout_s: after so long without an answer a read is refused.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._asking: list[asyncio.Future[int]] = []
        self._asked: dict[int, tuple[float, list[asyncio.Future[int]]]] = {}
        self._last_read_id = 0

    def ask(self, future: asyncio.Future[int]) -> None:
        """Have `future` answered with the read index of the next question."""
        self._asking.append(future)

    def next_question(self, now_s: float) -> int | None:
        """Return the id under which to ask the core for all that waits, or None when nobody does."""
        if not self._asking:
            return None
        self._last_read_id += 1
        self._asked[self._last_read_id] = (now_s, self._asking)
        self._asking = []
        return self._last_read_id

    def ready(self, read_id: int, index: int) -> None:
        """Answer a question with its read index."""
        for future in self._take(read_id):
            if not future.done():
                future.set_result(index)

    def refused(self, read_id: int) -> None:
        """Refuse a question: another node leads."""
        _refuse(self._take(read_id), RequestRefused(ResponseCode.NOT_LEADER, _NOT_LEADING))

    def expire(self, now_s: float) -> None:
        """Refuse what has waited too long; questions are in order of time."""
        while self._asked:
            read_id, (asked_s, futures) = next(iter(self._asked.items()))
            if now_s - asked_s < self._timeout_s:
                return
            del self._asked[read_id]
            _refuse(futures, RequestRefused(ResponseCode.NOT_LEADER, _NOT_CONFIRMED.format(self._timeout_s)))

    def end(self, error: RequestRefused) -> None:
        """Refuse everything: the node ends."""
        _refuse(self._asking, error)
        for _, futures in self._asked.values():
            _refuse(futures, error)
        self._asking, self._asked = [], {}

    def _take(self, read_id: int) -> list[asyncio.Future[int]]:
        return self._asked.pop(read_id, (0.0, []))[1]


class CommitWaiters:
    """Readers that follow the log and have read all that is committed."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._error: RequestRefused | None = None

    async def wait(self) -> None:
        """Wait for the next commit.

        Raises:
            RequestRefused: the node ended.
        """
        if self._error is not None:
            raise self._error
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Let all waiters look again."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def end(self, error: RequestRefused) -> None:
        """Refuse all waiters, and later ones: the node ends."""
        self._error = error
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)


def _refuse(futures: list[asyncio.Future[int]], error: RequestRefused) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)

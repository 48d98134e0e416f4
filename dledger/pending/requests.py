"""Requests to change the group that wait for the core's answer: membership changes, transfers of the leadership.

Not here: their execution (`dledger.core`), gRPC (`dledger.service.admin`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.errors import ResponseCode

if TYPE_CHECKING:
    import asyncio

# Operators send these one at a time; only a faulty program has this many in flight.
PENDING_MAX = 16


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of a request; `message` is for people."""

    code: ResponseCode
    message: str = ""


class PendingRequests:
    """The futures of requests.

    Args:
        timeout_s: the time without an answer after which the outcome of a request is unknown.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        # By id, each with its time: ascending in both, as `expire` requires; at most `PENDING_MAX`.
        self._pending: dict[int, tuple[float, asyncio.Future[RequestResult]]] = {}
        # No id is used twice, so that a late answer to an expired request does not match another one.
        self._last_id = 0

    @property
    def is_full(self) -> bool:
        """Whether another request must be refused."""
        return len(self._pending) >= PENDING_MAX

    def take(self, future: asyncio.Future[RequestResult], now_s: float) -> int:
        """Register `future` for an answer; return the id of the request to the core."""
        assert not self.is_full, self._pending
        self._last_id += 1
        self._pending[self._last_id] = (now_s, future)
        return self._last_id

    def ended(self, request_id: int, result: RequestResult) -> None:
        """Answer a request; an expired one was already answered."""
        _, future = self._pending.pop(request_id, (0.0, None))
        if future is not None and not future.done():
            future.set_result(result)

    def expire(self, now_s: float) -> None:
        """Answer requests that have waited too long: their outcome is unknown."""
        message = f"not completed within {self._timeout_s:g} s; it may still be: list the members before you continue"
        while self._pending:
            request_id, (asked_s, _) = next(iter(self._pending.items()))
            if now_s - asked_s < self._timeout_s:
                return
            self.ended(request_id, RequestResult(ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, message))

    def end(self, result: RequestResult) -> None:
        """Answer all requests: the node stops."""
        for request_id in list(self._pending):
            self.ended(request_id, result)

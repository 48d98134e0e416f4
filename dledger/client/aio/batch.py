"""A batch of an AppendStream call: the bodies of several callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.v1.log_pb2 import AppendRequest

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from dledger.client.outcomes import Appended


class BatchItem(NamedTuple):
    """One caller's bodies and the future that it waits on.

    Attributes:
        bodies: at least one; consecutive entries.
        size_bytes: their sum.
        future: result: the entries' places, or an outcome as exception.
        deadline: on the monotonic clock.
        last_try: time after which it is not sent again; earlier than `deadline` after a refusal.
    """

    bodies: Sequence[bytes]
    size_bytes: int
    future: asyncio.Future[list[Appended]]
    deadline: float
    last_try: float


class Batch:
    """Items of one request, sent at `sent_at` of the client's clock; serialized once."""

    __slots__ = ("group", "items", "sent_at")

    def __init__(self, group: str, items: list[BatchItem], sent_at: float) -> None:
        self.group = group
        self.items = items
        self.sent_at = sent_at

    def request(self, request_id: int) -> AppendRequest:
        """Return the request that carries all bodies."""
        bodies = [body for item in self.items for body in item.bodies]
        return AppendRequest(group=self.group, bodies=bodies, request_id=request_id)

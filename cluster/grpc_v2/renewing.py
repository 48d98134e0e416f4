"""Renews the messages of push consumers at the leader (`renewal_table` decides which, and when).

A change gives a message another handle, so a call with its handle waits while one is under way, and then uses the
current one. If the answer to a change is lost, the handle is, too: the message is given again when its time has passed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from cluster.fronts.callers import act_for
from cluster.grpc_v2.renewal_table import RenewalTable
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.fronts.leader_link import LeaderLink
    from cluster.grpc_v2.renewal_table import FrontConsumer, Key, RenewedMessage

_SCAN_S: Final = 2.0
_LIMIT_S: Final = 5.0
# Changes at the same time.
_CHANGES_MAX: Final = 32

logger = logging.getLogger(__name__)


class Renewing:
    """The renewed messages of one front.

    Args:
        link: to the leader.
        clock_ms: a monotonic clock.

    Attributes:
        table: what is renewed.
    """

    def __init__(self, link: LeaderLink, clock_ms: Callable[[], int]) -> None:
        self.table = RenewalTable(clock_ms)
        self._link = link
        self._room = asyncio.Semaphore(_CHANGES_MAX)
        # Set when the change ends.
        self._changing: dict[Key, asyncio.Event] = {}
        self._scanning: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Renew nothing more: messages are given again when their times have passed."""
        if self._scanning is not None:
            await end_tasks([self._scanning])

    def add(self, key: Key, consumer: FrontConsumer, attempt: int, holder: str) -> None:
        """Renew a message that its consumer has just got, unless its holder, an address, has its share of the table."""
        self.table.add(key, consumer, attempt, holder)
        if self._scanning is None:
            self._scanning = asyncio.create_task(self._scan())

    async def current(self, key: Key) -> str:
        """Return the current handle of a message, after a change that is under way."""
        while key in self._changing:
            await self._changing[key].wait()
        return self.table.current(key)

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(_SCAN_S)
            changes = self.table.due()
            if changes:
                await asyncio.gather(*(self._change(row, invisible_ms) for row, invisible_ms in changes))

    async def _change(self, row: RenewedMessage, invisible_ms: int) -> None:
        async with self._room:
            if not self.table.has(row):
                return
            # This is a task of its own.
            act_for(row.consumer.caller)
            ended = self._changing[row.key] = asyncio.Event()
            try:
                self.table.changed(row, await self._changed(row, invisible_ms), invisible_ms)
            except RequestFailed as failure:
                logger.info("renewal_failed group=%s topic=%s: %s", row.key.group, row.key.topic, failure)
                # The next scan repeats the change, unless it was refused.
                if not failure.is_worth_repeating:
                    self.table.remove(row.key)
            finally:
                del self._changing[row.key]
                ended.set()

    async def _changed(self, row: RenewedMessage, invisible_ms: int) -> str:
        """Return the new handle; empty: the message is done, or another consumer has it.

        Raises:
            RequestFailed: it is not certain that the message was changed.
        """
        request = pb.ChangeInvisibleRequest(
            group=row.key.group, topic=row.key.topic, handle=row.handle, invisible_ms=invisible_ms
        )
        response = await self._link.call(lambda stub: stub.ChangeInvisible, request, _LIMIT_S)
        return response.handle

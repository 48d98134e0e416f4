"""What the tasks that put messages of the broker itself have in common: deliveries, and the ends of transactions.

Each node has such a task; only the leader's works. It has one put pending at a time, so what it decides holds: the
applied state has everything that it has put (`cluster.delivery.own_puts`). A task sleeps until its next message is due,
dispatch reports messages of its topic, the status of the node changes, or it is woken.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cluster.delivery.own_puts import OwnPuts
from cluster.protocol.errors import RequestFailed
from dledger.errors import DLedgerError
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cluster.replica.port import Replica
    from store.model.dispatch_batch import DispatchBatch
    from store.model.message import Message

# After a failure: its cause may persist, for example a full disk.
_PAUSE_S: Final = 0.1
# The longest sleep while a message waits: the wall clock may be set meanwhile.
_SLEEP_MAX_S: Final = 1.0
_MS_PER_S: Final = 1_000
# A message is put again when its record has this part of the time for which the log keeps it.
_KEPT_PART: Final = 0.75

logger = logging.getLogger(__name__)


class LeaderTask:
    """One such task of one node. Must be created inside the running loop.

    Args:
        replica: the node's.
        clock_ms: the wall clock, milliseconds since 1970.
        topic: whose new messages wake the task.
    """

    def __init__(self, replica: Replica, clock_ms: Callable[[], int], topic: str) -> None:
        self._replica = replica
        self._clock_ms = clock_ms
        self._topic = topic
        self._woken = asyncio.Event()
        self._puts = OwnPuts(replica)
        replica.when_status_changes(self._woken.set)
        replica.store.derived.dispatcher.listeners.append(self._dispatched)

    def _dispatched(self, batch: DispatchBatch) -> None:
        if any(key.topic == self._topic for key in batch.queues):
            self._woken.set()

    def wake(self) -> None:
        """Let the task examine again what is to be done."""
        self._woken.set()

    async def run(self, deliver: Callable[[], Awaitable[float | None]]) -> None:
        """Call `deliver` until cancelled; it returns the seconds until it is to be called again, None: when woken."""
        while True:
            self._woken.clear()
            try:
                sleep_s = await deliver()
            except (RequestFailed, StoreError, DLedgerError) as error:
                logger.warning("delivery_interrupted topic=%s error=%r", self._topic, str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(sleep_s):
                    await self._woken.wait()

    def is_leading(self, level: int) -> bool:
        """Return whether this node may put, in a group of a feature level."""
        return self._replica.status().is_serving_puts and self._replica.state.feature_level >= level

    def now_ms(self) -> int:
        """Return the time, which is never before that of a stored message."""
        return max(self._clock_ms(), self._replica.store.log.last_store_timestamp)

    def sleep_s(self, next_ms: int | None) -> float | None:
        """Return for how many seconds to sleep until a time, or less; None: until woken."""
        if next_ms is None:
            return None
        return min(max(next_ms - self.now_ms(), 1) / _MS_PER_S, _SLEEP_MAX_S)

    async def decided(self) -> bool:
        """Wait until all earlier puts are decided; see `OwnPuts.decided`."""
        return await self._puts.decided()

    async def put(self, messages: Sequence[Message], prepare_next: Callable[[], None] | None = None) -> None:
        """Put messages with effects; see `OwnPuts.put`."""
        await self._puts.put(messages, prepare_next)


def kept_ms(replica: Replica) -> int:
    """Return the age in milliseconds at which a record that waits is put again, before the log deletes it.

    A full disk, or a limit of the log's size, may delete it earlier.
    """
    return int(replica.store.config.retention_rules.reserved_s * _MS_PER_S * _KEPT_PART)

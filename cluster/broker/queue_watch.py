"""Selects the queues of a stream that may have new messages: first all, then those that dispatch reports.

A queue is either ready, and is read, or awaited, and costs nothing until dispatch reports a message. So the cost of a
stream grows with the arriving messages, not with the number of its queues.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from store.errors import StoreStopped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.access.message_store import MessageStore
    from store.dispatch.long_polls import Waiter


class QueueWatch:
    """The queues of one stream. Must be created inside the running loop, and ended by `end`.

    Args:
        store: store of the queues.
        topic: their topic.
        tags: tags expression of the reader, or an `Sql92`.
        queue_ids: the queues; all are ready at first.
    """

    def __init__(self, store: MessageStore, topic: str, tags: str, queue_ids: Iterable[int]) -> None:
        self._store = store
        self._topic = topic
        self._tags = tags
        self._loop = asyncio.get_running_loop()
        # Every queue is ready (in reading order), or awaited, or taken by the caller of `take_ready`.
        self._ready: dict[int, None] = dict.fromkeys(queue_ids)
        self._waiters: dict[int, Waiter] = {}
        # Set only during `wait`.
        self._notified: asyncio.Future[None] | None = None

    def take_ready(self) -> list[int]:
        """Return and remove the ready queues; a queue continues only if the caller returns it by another method."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def put_ready(self, queue_id: int) -> None:
        """Mark a queue to be read again."""
        self._ready[queue_id] = None

    def wait_for(self, queue_id: int, offset: int) -> None:
        """Wait for a message of a queue at this offset or later; the queue is ready at once if it has one.

        Raises:
            store.errors.TooManyWaiters, StoreStopped: see `MessageStore.wait`.
        """
        notify = partial(self._notify, queue_id)
        waiter = self._store.wait(self._topic, queue_id, offset, notify, self._tags)
        if queue_id not in self._ready:
            self._waiters[queue_id] = waiter

    def _notify(self, queue_id: int) -> None:
        self._waiters.pop(queue_id, None)
        self._ready[queue_id] = None
        if self._notified is not None and not self._notified.done():
            self._notified.set_result(None)

    async def wait(self, time_limit_s: float) -> None:
        """Wait until a queue is ready; after `time_limit_s` all queues become ready, to be checked again.

        Raises:
            store.errors.StoreStopped: the store has stopped.
        """
        if not self._ready:
            self._notified = self._loop.create_future()
            try:
                async with asyncio.timeout(time_limit_s):
                    await self._notified
            except TimeoutError:
                self._ready.update(dict.fromkeys(self._waiters))
                self.end()
            finally:
                self._notified = None
        if self._store.stop_reason:
            raise StoreStopped(self._store.stop_reason)

    def end(self) -> None:
        """Cancel all waits."""
        for waiter in self._waiters.values():
            waiter.cancel()
        self._waiters.clear()

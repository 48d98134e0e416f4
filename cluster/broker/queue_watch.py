"""Selects the queues of a stream that may have a message for it: first all, then those that dispatch reports.

A queue is either ready, and then it is worth reading, or awaited, and then nothing is done for it until dispatch
reports it. So the cost of a stream grows with the messages that arrive, not with the queues that it waits for.
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
    """The queues of one stream. Construct it inside the running loop; `end` must follow.

    Args:
        store: holds the queues.
        topic: of all of them.
        tags: what of them is wanted.
        queue_ids: ready at first.
    """

    def __init__(self, store: MessageStore, topic: str, tags: str, queue_ids: Iterable[int]) -> None:
        self._store = store
        self._topic = topic
        self._tags = tags
        self._loop = asyncio.get_running_loop()
        # A queue is ready (in the order in which they are to be read), or awaited, or with the caller of `take_ready`.
        self._ready: dict[int, None] = dict.fromkeys(queue_ids)
        self._waiters: dict[int, Waiter] = {}
        # Only during `wait`.
        self._notified: asyncio.Future[None] | None = None

    def take_ready(self) -> list[int]:
        """Return the queues that are worth reading; one that is not given back by another call is done with."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def put_ready(self, queue_id: int) -> None:
        """Mark a queue to be read again."""
        self._ready[queue_id] = None

    def wait_for(self, queue_id: int, offset: int) -> None:
        """Leave a queue alone until there may be a message at this offset or after it: none, if there is one now.

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
        """Return when a queue is ready; when the time is over all of them are, to be looked at again.

        Raises:
            store.errors.StoreStopped: nothing will ever come.
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
        """Wait for nothing any more."""
        for waiter in self._waiters.values():
            waiter.cancel()
        self._waiters.clear()

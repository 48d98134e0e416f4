"""Readers that wait for the next message of a queue (long poll): bounded, notified by dispatch, and cancellable.

A waiter is notified once and then removed. Not here: time limits (`store.maintenance.background`), and reading: a
notified caller reads again. All methods are for the owner's thread.

Source: RocketMQ `PullRequestHoldService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.errors import TooManyWaiters
from store.model.tag_filter import EVERYTHING
from store.model.tags_codes import may_match

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.model.dispatch_batch import DispatchBatch
    from store.model.message import QueueKey
    from store.model.read_filter import ReadFilter


class MessageWaiters:
    """All waiting readers.

    Args:
        waiters_max: the largest number of waiters.
    """

    __slots__ = ("_by_queue", "_count", "_waiters_max")

    def __init__(self, waiters_max: int) -> None:
        # In the order of arrival; a queue without waiters is removed.
        self._by_queue: dict[QueueKey, dict[Waiter, None]] = {}
        # Total of all queues; at most `_waiters_max`.
        self._count = 0
        self._waiters_max = waiters_max

    def __len__(self) -> int:
        """Return the number of waiting reads."""
        return self._count

    def add(
        self, key: QueueKey, queue_offset: int, notify: Callable[[], None], read_filter: ReadFilter = EVERYTHING
    ) -> Waiter:
        """Call `notify` when a possibly matching message at or after `queue_offset` is dispatched.

        Raises:
            TooManyWaiters: the limit is reached.
        """
        if self._count >= self._waiters_max:
            raise TooManyWaiters(self._waiters_max)
        waiter = Waiter(self, key, queue_offset, read_filter, notify)
        self._by_queue.setdefault(key, {})[waiter] = None
        self._count += 1
        return waiter

    def remove(self, waiter: Waiter) -> bool:
        """Remove a waiter; return whether it was still waiting."""
        of_queue = self._by_queue.get(waiter.key, {})
        if waiter not in of_queue:
            return False
        del of_queue[waiter]
        self._count -= 1
        if not of_queue:
            del self._by_queue[waiter.key]
        return True

    def dispatched(self, batch: DispatchBatch) -> None:
        """Notify the waiters for which a batch may have a message, in order of arrival."""
        if not self._count:
            return
        for number, key in enumerate(batch.queues):
            of_queue = self._by_queue.get(key)
            if of_queue is None:
                continue
            rows = np.flatnonzero((batch.queue_numbers == number) & batch.is_queued)
            offsets, codes = batch.queue_offsets[rows], batch.tags_codes[rows]
            for waiter in tuple(of_queue):
                is_behind = offsets >= waiter.queue_offset
                if not waiter.read_filter.is_everything:
                    is_behind &= may_match(waiter.read_filter, codes)
                if is_behind.any():
                    waiter.notify()

    def notify_all(self) -> None:
        """Notify all waiters, because the store closes or its role has changed."""
        for of_queue in list(self._by_queue.values()):
            for waiter in tuple(of_queue):
                waiter.notify()


class Waiter:
    """A waiting reader.

    Attributes:
        key: the queue.
        queue_offset: it waits for a message at or after this offset.
    """

    __slots__ = ("_notify", "_waiters", "key", "queue_offset", "read_filter")

    def __init__(
        self,
        waiters: MessageWaiters,
        key: QueueKey,
        queue_offset: int,
        read_filter: ReadFilter,
        notify: Callable[[], None],
    ) -> None:
        self._waiters = waiters
        self._notify = notify
        self.key = key
        self.queue_offset = queue_offset
        self.read_filter = read_filter

    def cancel(self) -> None:
        """Stop waiting, without a notification. Calling this twice, or after a notification, is allowed."""
        self._waiters.remove(self)

    def notify(self) -> None:
        """Notify the reader, unless it was cancelled."""
        if self._waiters.remove(self):
            self._notify()

"""Follows the log, and makes queues and index what it says: in batches, so much at a turn, in the order of the log.

Each of the two may lack a different stretch, as recovery left it: where they differ, each gets only what it lacks.
Records that cannot be read are passed over and reported; what stands behind them is dispatched at its own offsets.

Everything belongs to the owner's thread. Place on the way of a put: behind the log, before any reader sees the message.
Source: RocketMQ `DefaultMessageStore.ReputMessageService`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from store.commit_log import CommitLog
from store.consume_queues import ConsumeQueues
from store.dispatch_batch import DispatchBatch, Skipped
from store.key_index import KeyIndex
from store.message_waiters import MessageWaiters
from store.unit_placement import Misplaced

logger = logging.getLogger(__name__)

# How many unreadable stretches are remembered to be shown; all of them are counted and logged.
_SKIPPED_MAX = 100


class Dispatcher:
    """Feeds queues and index from the log.

    Args:
        log: says what there is.
        queues: of the store.
        index: of the store; None: nothing is indexed.
        waiters: are told of what comes.
        size_bytes_max: of the log, in one turn.

    Attributes:
        queues_offset: the queues hold everything of the log below.
        index_offset: the index holds everything of the log below.
        dispatched_count: messages since the store was opened.
        skipped_count: unreadable stretches since the store was opened.
        skipped: the last of them.
        listeners: hear of each batch when it is dispatched.
        misplaced_count: messages since the store was opened whose queue offset was out of line; all are logged.
        guard: held while queues and their offset in the log change, for whoever reads both in another thread.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        waiters: MessageWaiters,
        size_bytes_max: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._waiters = waiters
        self.size_bytes_max = size_bytes_max
        self.queues_offset = self.index_offset = log.begin_offset
        self.dispatched_count = 0
        self.skipped_count = 0
        self.misplaced_count = 0
        self.skipped: deque[Skipped] = deque(maxlen=_SKIPPED_MAX)
        self.listeners: list[Callable[[DispatchBatch], None]] = []
        self.guard = threading.Lock()

    @property
    def offset(self) -> int:
        """Everything of the log below is dispatched."""
        return min(self.queues_offset, self.index_offset)

    @property
    def behind_bytes(self) -> int:
        """How much of the log waits to be dispatched."""
        return max(self._log.end_offset - self.offset, 0)

    def begin_at(self, queues_offset: int, index_offset: int) -> None:
        """Say up to where queues and index hold everything."""
        self.queues_offset = queues_offset
        self.index_offset = queues_offset if self._index is None else index_offset

    def turn(self) -> bool:
        """Dispatch what comes next, about `size_bytes_max`; return whether more may wait.

        Raises:
            store.errors.DiskFull: a file of a queue or of the index finds no room; nothing is lost, try again.
            store.errors.StorageFailed: the store must stop.
        """
        batch = self.next_batch()
        if batch is None:
            return False
        self.take(batch)
        return self.behind_bytes > 0

    def next_batch(self) -> DispatchBatch | None:
        """Return what comes next; None at the end."""
        # What was deleted meanwhile had been dispatched, or expired before this process.
        begin = max(self.offset, self._log.begin_offset)
        self.begin_at(max(self.queues_offset, begin), max(self.index_offset, begin))
        return self._log.scan(begin, self.size_bytes_max)

    def take(self, batch: DispatchBatch) -> None:
        """Dispatch what `next_batch` returned.

        Raises:
            as `turn`.
        """
        self._report_skipped(batch)
        if batch.next_offset > self.queues_offset:
            part = rows_from(batch, self.queues_offset)
            with self.guard:
                misplaced = self._queues.append(part)
                self.queues_offset = batch.next_offset
            self._report_misplaced(misplaced)
            self.dispatched_count += len(part)
        if batch.next_offset > self.index_offset:
            if self._index is not None:
                self._index.append(rows_from(batch, self.index_offset))
            self.index_offset = batch.next_offset
        for listener in self.listeners:
            listener(batch)
        self._waiters.dispatched(batch)

    def run(self) -> None:
        """Dispatch all that there is.

        Raises:
            as `turn`.
        """
        while self.turn():
            continue

    def _report_misplaced(self, found: Sequence[Misplaced]) -> None:
        for row in found:
            self.misplaced_count += 1
            logger.warning(
                "misplaced topic=%s queue=%d queue_offset=%d physical_offset=%d expected=%r action=%r",
                *(row.key.topic, row.key.queue_id, row.queue_offset, row.physical_offset, row.expected, row.action),
            )

    def _report_skipped(self, batch: DispatchBatch) -> None:
        for skipped in batch.skipped:
            # A stretch that only one of the two lacks was reported when the other one met it.
            if skipped.offset < max(self.queues_offset, self.index_offset):
                continue
            self.skipped_count += 1
            self.skipped.append(skipped)
            logger.error(
                "skipped path=%s position=%d size=%d expected=%r found=%r",
                *(skipped.path, skipped.position, skipped.size, skipped.expected, skipped.found),
            )


def rows_from(batch: DispatchBatch, offset: int) -> DispatchBatch:
    """Return what a batch says of the records at `offset` and behind it."""
    if offset <= batch.begin_offset:
        return batch
    first = int(np.searchsorted(batch.physical_offsets, offset))
    keys_from = int(np.searchsorted(batch.key_rows, first))
    return replace(
        batch,
        begin_offset=offset,
        physical_offsets=batch.physical_offsets[first:],
        sizes=batch.sizes[first:],
        queue_offsets=batch.queue_offsets[first:],
        tags_codes=batch.tags_codes[first:],
        store_timestamps=batch.store_timestamps[first:],
        queue_numbers=batch.queue_numbers[first:],
        is_queued=batch.is_queued[first:],
        key_hashes=batch.key_hashes[keys_from:],
        key_rows=batch.key_rows[keys_from:] - first,
    )

"""Adds the messages of the log to queues and index: in the order of the log, in bounded steps.

After recovery queues and index may lack different ranges; each receives only its missing messages. Unreadable records
are skipped and reported; later ones are dispatched at their own offsets.

All methods are for the owner's thread. Place on the path of a put: after the log, before readers can see the message.
Source: RocketMQ `DefaultMessageStore.ReputMessageService`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from time import monotonic, thread_time
from typing import TYPE_CHECKING

from store.model.dispatch_batch import DispatchBatch, Skipped, first_rows, rows_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.dispatch.long_polls import MessageWaiters
    from store.index.key_index import KeyIndex
    from store.model.commit_log import CommitLog
    from store.queues.consume_queues import ConsumeQueues
    from store.queues.out_of_order_units import OutOfOrderUnit

logger = logging.getLogger(__name__)

# Unreadable ranges kept for display; all are counted and logged.
_SKIPPED_MAX = 100
# The target of a step, in seconds of processor time: after half of it the next step is larger, after twice it smaller.
# Not of the clock: on a busy machine a step waits for the processor, and smaller steps would cost more in all.
_STEP_S = 0.004
# Except for a step that waits longer, for example for pages of the log to be read: then the event loop waits, too.
_BLOCKED_S = 0.05
_STEP_BYTES_MIN = 64 << 10
_STEP_BYTES_FIRST = 256 << 10
# A queue costs as much as a dozen messages; if a range has many queues, a step has at most this number of messages.
_MANY_QUEUES = 256
_STEP_MESSAGES_MAX = 512


class Dispatcher:
    """Updates queues and index from the log.

    Args:
        log: of the messages.
        queues: of the store.
        index: of the store; None: nothing is indexed.
        waiters: notified of new messages.
        size_bytes_max: of the log, in one step.

    Attributes:
        queues_offset: messages of the log before this offset are in the queues.
        index_offset: messages of the log before this offset are in the index.
        dispatched_count: messages since the store was opened.
        skipped_count: unreadable ranges since the store was opened.
        skipped: the last of them.
        listeners: called with each dispatched batch.
        out_of_order_count: messages since the store was opened whose queue offset was not the next one; all are logged.
        guard: locked while queues and their offset in the log change, for threads that read both.
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
        # At most `size_bytes_max`; halved and doubled by `_pace`.
        self._step_bytes = min(_STEP_BYTES_FIRST, size_bytes_max)
        # The rest of the last step's batch; valid only while dispatch continues at its start.
        self._rest: DispatchBatch | None = None
        # They never decrease while the store is open. They differ only after an opening, until the smaller one has
        # caught up, and after a full disk; without an index they are equal.
        self.queues_offset = self.index_offset = log.begin_offset
        self.dispatched_count = 0
        self.skipped_count = 0
        self.out_of_order_count = 0
        self.skipped: deque[Skipped] = deque(maxlen=_SKIPPED_MAX)
        self.listeners: list[Callable[[DispatchBatch], None]] = []
        self.guard = threading.Lock()

    @property
    def offset(self) -> int:
        """Messages of the log before this offset are dispatched."""
        return min(self.queues_offset, self.index_offset)

    @property
    def behind_bytes(self) -> int:
        """The number of bytes of the log that are not dispatched yet."""
        return max(self._log.end_offset - self.offset, 0)

    def begin_at(self, queues_offset: int, index_offset: int) -> None:
        """Set the offsets up to which queues and index are complete."""
        self.queues_offset = queues_offset
        self.index_offset = queues_offset if self._index is None else index_offset

    def step(self) -> bool:
        """Dispatch messages for a few milliseconds; return whether more may be left.

        The number of bytes depends on the processor time of the previous step, and is bounded by `size_bytes_max`.

        Raises:
            store.errors.DiskFull: no space for a file of a queue or of the index; no message is lost, try again.
            store.errors.StorageFailed: the store must stop.
        """
        began_s, used_s = monotonic(), thread_time()
        rest, self._rest = self._rest, None
        batch = rest if rest is not None and rest.begin_offset == self._next_begin() else self._scan(self._step_bytes)
        if batch is None:
            return False
        if len(batch.queues) > _MANY_QUEUES and len(batch) > _STEP_MESSAGES_MAX:
            piece = first_rows(batch, _STEP_MESSAGES_MAX)
            self.take(piece)
            self._rest = rows_from(batch, piece.next_offset)
        else:
            self.take(batch)
            self._pace(thread_time() - used_s, monotonic() - began_s)
        return self.behind_bytes > 0

    def _pace(self, used_s: float, took_s: float) -> None:
        """Adapt the size of the next step to the processor time and the duration of this one."""
        if used_s > 2 * _STEP_S or took_s > _BLOCKED_S:
            self._step_bytes = max(self._step_bytes // 2, min(_STEP_BYTES_MIN, self.size_bytes_max))
        elif used_s < _STEP_S / 2 and self.behind_bytes >= self._step_bytes:
            self._step_bytes = min(2 * self._step_bytes, self.size_bytes_max)

    def next_batch(self) -> DispatchBatch | None:
        """Return the next batch of about `size_bytes_max` bytes; None at the end."""
        return self._scan(self.size_bytes_max)

    def _scan(self, size_bytes: int) -> DispatchBatch | None:
        begin = self._next_begin()
        self.begin_at(max(self.queues_offset, begin), max(self.index_offset, begin))
        return self._log.scan(begin, size_bytes)

    def _next_begin(self) -> int:
        # Deleted messages were already dispatched, or expired before this process started.
        return max(self.offset, self._log.begin_offset)

    def take(self, batch: DispatchBatch) -> None:
        """Dispatch the result of `next_batch`.

        Raises:
            as `step`.
        """
        self._report_skipped(batch)
        if batch.next_offset > self.queues_offset:
            part = rows_from(batch, self.queues_offset)
            with self.guard:
                out_of_order = self._queues.append(part)
                self.queues_offset = batch.next_offset
            self._report_out_of_order(out_of_order)
            self.dispatched_count += len(part)
        if batch.next_offset > self.index_offset:
            if self._index is not None:
                self._index.append(rows_from(batch, self.index_offset))
            self.index_offset = batch.next_offset
        for listener in self.listeners:
            listener(batch)
        self._waiters.dispatched(batch)

    def run(self) -> None:
        """Dispatch the whole log.

        Raises:
            as `step`.
        """
        while self.step():
            continue

    def _report_out_of_order(self, found: Sequence[OutOfOrderUnit]) -> None:
        for row in found:
            self.out_of_order_count += 1
            logger.warning(
                "unit_out_of_order topic=%s queue=%d queue_offset=%d physical_offset=%d expected=%r action=%r",
                *(row.key.topic, row.key.queue_id, row.queue_offset, row.physical_offset, row.expected, row.action),
            )

    def _report_skipped(self, batch: DispatchBatch) -> None:
        for skipped in batch.skipped:
            # A range missing in only one of the two was reported when the other one was dispatched.
            if skipped.offset < max(self.queues_offset, self.index_offset):
                continue
            self.skipped_count += 1
            self.skipped.append(skipped)
            logger.error(
                "skipped path=%s position=%d size=%d expected=%r found=%r",
                *(skipped.path, skipped.position, skipped.size, skipped.expected, skipped.found),
            )

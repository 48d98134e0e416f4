"""Delivers messages at any time, puts those again whose records the log will delete before, and recalls them.

One task on each node (`cluster.delivery.leader_task`), with one put pending at a time, so each decision is made on the
applied state, in order: a message is delivered or recalled, never both. In each turn:

1. examine new units of the timer queue (`cluster.delivery.timer_window`); all that wait, after a change of leader;
2. put the records of waiting recalls;
3. put those messages again whose records are old;
4. put the copies of those that are due; meanwhile the next ones are chosen, but not put;
5. pass over units that cannot be delivered, or are no messages, by a command.

Each record that is put has the effect that its unit is done (`cluster.state.effects`).

Source: RocketMQ `TimerMessageStore`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster.delivery.copies import Obstacle
from cluster.delivery.leader_task import LeaderTask, kept_ms
from cluster.delivery.timer_records import (
    EARLIEST_MS,
    TIMER_QUEUE,
    Recalled,
    put_again,
    read_units,
    recall_message,
    time_of_unit,
    timer_copies,
)
from cluster.delivery.timer_window import ROWS_MAX, TimerRow, TimerWindow
from cluster.process.cooperative import Pace
from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.features import WITH_TIMERS
from cluster.state.timers import CHUNK_UNITS
from cluster.state.waiting_commands import PassTimers
from commitlog.record.properties import decode_properties
from commitlog.record.timer_properties import DELETE_KEY, timer_time_ms
from dledger.errors import DLedgerError
from store.errors import Certainty, IllegalMessage, StoreError
from store.model.topics import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.replica.port import Replica
    from commitlog.record.record import Record
    from store.model.message import Message

# Messages of one put, and the bytes of their records.
BATCH_MAX: Final = 1_024
_BATCH_BYTES_MAX: Final = 1 << 20
RECALLS_MAX: Final = 1_024

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chosen:
    """What the next put has.

    Attributes:
        rows: all that were taken from the window for it, those that are passed over included.
        copies: messages to put, with the row of each.
        passed: units that are done without a message, with the obstacle; None: the record is no message.
    """

    rows: list[TimerRow] = field(default_factory=list)
    copies: list[tuple[TimerRow, Message]] = field(default_factory=list)
    passed: list[tuple[int, Obstacle | None]] = field(default_factory=list)


@dataclass(slots=True)
class _Recall:
    """A recall that waits for its turn.

    Attributes:
        what: the message.
        units: its units in the timer queue, the most likely first.
        done: whether its record was put; False: none of the units waits.
    """

    what: Recalled
    units: Sequence[int]
    done: asyncio.Future[bool]


class TimerDelivery:
    """The delivery on one node. Must be created inside the running loop.

    Args:
        replica: the node's.
        clock_ms: the wall clock, milliseconds since 1970.
        on_delivered: called with the lateness of each delivered message in milliseconds.
        on_obstacle: called with the reason for messages that could not be delivered, and their number.

    Attributes:
        put_again_count: messages that this process has put again for the log's retention.
    """

    def __init__(
        self,
        replica: Replica,
        clock_ms: Callable[[], int],
        on_delivered: Callable[[list[int]], None],
        on_obstacle: Callable[[Obstacle, int], None],
    ) -> None:
        self._replica = replica
        self._task = LeaderTask(replica, clock_ms, TIMER_TOPIC)
        self._on_delivered = on_delivered
        self._on_obstacle = on_obstacle
        self._window: TimerWindow | None = None
        limits = replica.put_limits
        self._messages_max = min(limits.messages_max, BATCH_MAX)
        self._size_bytes_max = min(limits.size_bytes_max, _BATCH_BYTES_MAX)
        self._batch_max = self._messages_max
        # Rows of a put that is pending or failed: they return to the window.
        self._taken: list[TimerRow] = []
        # What follows the pending put, chosen meanwhile.
        self._ahead: _Chosen | None = None
        self._recalls: deque[_Recall] = deque()
        self._keep_ms = kept_ms(replica)
        # The first waiting unit, and the store timestamp of its record.
        self._oldest = -1, 0
        # Units from the first number on were stored at this time or later, whatever clock their records show: otherwise
        # a wrong one would put them again and again.
        self._renewed = 1 << 63, 0
        self.put_again_count = 0

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            await self._task.run(self._deliver_due)
        finally:
            self._leave()

    @property
    def waiting_count(self) -> int:
        """The number of messages that wait, recall records that were not passed over yet included."""
        queue = self._replica.store.derived.queues.get(TIMER_QUEUE)
        return 0 if queue is None else self._replica.state.timers.waiting_count(queue.max_offset)

    def next_due_ms(self) -> int | None:
        """Return when the next message is due; None: none waits, or this node does not deliver."""
        return None if self._window is None else self._window.next_ms()

    async def recall(self, what: Recalled, units: Sequence[int]) -> bool:
        """Recall the first of some units that waits; return False if none does.

        Raises:
            RequestFailed: NOT_LEADER, OVERLOADED; or, as StoreError and DLedgerError, its certainty is whether the
                message may be recalled nevertheless.
        """
        if not self._task.is_leading(WITH_TIMERS):
            raise _not_leading()
        if len(self._recalls) >= RECALLS_MAX:
            raise RequestFailed(Reason.OVERLOADED, f"{RECALLS_MAX} recalls wait already; retry shortly")
        recall = _Recall(what, units, asyncio.get_running_loop().create_future())
        self._recalls.append(recall)
        self._task.wake()
        return await recall.done

    async def _deliver_due(self) -> float | None:
        """Do all that is due; return the seconds until the next message is; None: none waits, or this node may not.

        Raises:
            RequestFailed, StoreError, DLedgerError: it continues later.
        """
        while self._task.is_leading(WITH_TIMERS):
            if await self._task.decided():
                continue
            await self._examine()
            if self._recalls:
                await self._put_recalls()
                continue
            again = self._expiring()
            if again.copies or again.passed:
                await self._put(again)
                self.put_again_count += len(again.copies)
                continue
            chosen = self._chosen_ahead() or self._choose()
            if chosen.rows:
                self._on_delivered(await self._put(chosen))
                continue
            window = self._window
            if window is None or not window.is_spent:
                return self._task.sleep_s(self._next_ms())
            self._window = None
        self._leave()
        return None

    def _leave(self) -> None:
        """Forget what only a leader needs."""
        self._window, self._ahead, self._taken = None, None, []
        while self._recalls:
            _fail(self._recalls.popleft(), _not_leading())

    def _next_ms(self) -> int | None:
        times = [] if self._window is None else [self._window.next_ms()]
        if self._oldest[0] >= 0:
            times.append(self._oldest[1] + self._keep_ms)
        return min((each for each in times if each is not None), default=None)

    # ------------------------------------------------------------------------------------------------------ choosing

    async def _examine(self) -> None:
        """Examine the units that were appended, or all that wait; return rows of a failed put to the window."""
        queue, timers = self._replica.store.derived.queues.get(TIMER_QUEUE), self._replica.state.timers
        if queue is None:
            return
        if self._window is None:
            kept = min(queue.min_offset, queue.max_offset)
            if kept > timers.floor:
                # A full disk, or a long stop: the log has deleted them.
                before = self.waiting_count
                await self._replica.change(PassTimers(kept))
                self._are_lost(before - self.waiting_count)
            self._window, self._ahead, self._taken = TimerWindow(timers.floor, ROWS_MAX), None, []
        window, pace = self._window, Pace()
        self._return_taken(window)
        while window.end < queue.max_offset:
            chunk, at = divmod(window.end, CHUNK_UNITS)
            times = queue.units(window.end, min(CHUNK_UNITS - at, queue.max_offset - window.end)).tags_codes.copy()
            bits = np.frombuffer(timers.done_bits(chunk), np.uint8)
            is_done = np.unpackbits(bits, bitorder="little")[at : at + len(times)].astype(np.bool_)
            for row in np.flatnonzero((times < EARLIEST_MS) & ~is_done).tolist():
                times[row] = time_of_unit(self._replica.store, window.end + row)
                await pace.yield_if_due()
            window.examine(times, is_done)
            await pace.yield_if_due()

    def _are_lost(self, count: int) -> None:
        if count:
            logger.error("timers_lost count=%d: the log has deleted them before their time", count)
            self._on_obstacle(Obstacle.UNREADABLE, count)

    def _return_taken(self, window: TimerWindow) -> None:
        is_done = self._replica.state.timers.is_done
        window.put_back(row for row in self._taken if not is_done(row.unit))
        self._taken = []

    def _chosen_ahead(self) -> _Chosen | None:
        """Return the choice made during the last put, without what was recalled or put again since."""
        chosen, self._ahead = self._ahead, None
        if chosen is not None:
            is_done = self._replica.state.timers.is_done
            chosen.copies = [each for each in chosen.copies if not is_done(each[0].unit)]
        return chosen if chosen is not None and (chosen.copies or chosen.passed) else None

    def _choose(self) -> _Chosen:
        """Choose what is due."""
        chosen, now_ms = _Chosen(), self._task.now_ms()
        window, state, store = self._window, self._replica.state, self._replica.store
        if window is None:
            return chosen
        rows = deque(row for row in window.take_due(now_ms, self._batch_max) if not state.timers.is_done(row.unit))
        records = read_units(store, [row.unit for row in rows], self._size_bytes_max)
        waiting: list[tuple[TimerRow, Record]] = []
        while rows and rows[0].unit in records:
            row = rows.popleft()
            record = records[row.unit]
            properties = {} if record is None else decode_properties(record.properties_raw)
            if (due_ms := timer_time_ms(properties)) > now_ms:
                # A unit of RocketMQ has no time.
                window.put_back([TimerRow(due_ms, row.unit)])
                continue
            chosen.rows.append(row)
            if record is None:
                chosen.passed.append((row.unit, Obstacle.UNREADABLE))
            elif DELETE_KEY in properties:
                chosen.passed.append((row.unit, None))
            else:
                waiting.append((row, record))
        copies = timer_copies([(row.unit, record) for row, record in waiting], now_ms, state.topics)
        for (row, _), copy in zip(waiting, copies, strict=True):
            if isinstance(copy, Obstacle):
                chosen.passed.append((row.unit, copy))
            else:
                chosen.copies.append((row, copy))
        window.put_back(rows)
        return chosen

    def _expiring(self) -> _Chosen:
        """Choose the oldest records, if the log will delete them soon."""
        chosen, timers, now_ms = _Chosen(), self._replica.state.timers, self._task.now_ms()
        end, unit, size_bytes, left = 0 if self._window is None else self._window.end, timers.floor, 0, self._batch_max
        if unit == self._oldest[0] and self._oldest[1] + self._keep_ms > now_ms:
            return chosen
        self._oldest = -1, 0
        if now_ms >= self._renewed[1] + self._keep_ms:
            self._renewed = end, now_ms
        while unit < end and left > 0:
            waiting = timers.waiting(unit, end, left)
            left -= len(waiting)
            unit = timers.next_chunk(unit)
            for each, record in self._oldest_first(waiting):
                if record is None:
                    chosen.passed.append((each, Obstacle.UNREADABLE))
                    continue
                stored_ms = record.store_timestamp
                if each >= self._renewed[0]:
                    stored_ms = max(stored_ms, self._renewed[1])
                is_full = bool(chosen.copies) and size_bytes + record.size > self._size_bytes_max
                if stored_ms + self._keep_ms > now_ms or is_full:
                    if each == timers.floor:
                        self._oldest = each, stored_ms
                    return chosen
                due_ms = timer_time_ms(decode_properties(record.properties_raw))
                # One that is due is delivered in this turn.
                if due_ms > now_ms:
                    chosen.copies.append((TimerRow(due_ms, each), put_again(record, each)))
                    size_bytes += record.size
        return chosen

    def _oldest_first(self, units: Sequence[int]) -> Iterator[tuple[int, Record | None]]:
        """Yield units with their records: the first is read alone, as it may mostly wait; then many are at once."""
        at, count = 0, 1
        while at < len(units):
            found = read_units(self._replica.store, units[at : at + count], self._size_bytes_max)
            yield from found.items()
            at, count = at + len(found), self._batch_max

    # ------------------------------------------------------------------------------------------------------- putting

    async def _put(self, chosen: _Chosen) -> list[int]:
        """Put what was chosen, and pass over the rest; return the lateness of each message in milliseconds.

        If one message cannot be stored nothing is put: it will be found by itself, and passed over.

        Raises:
            RequestFailed, StoreError, DLedgerError: it is not put, or it is not known.
        """
        self._taken, now_ms = chosen.rows, self._task.now_ms()

        def prepare_next() -> None:
            # If messages are put again twice in a row, the choice of the first time still waits.
            if self._ahead is None:
                self._ahead = self._choose()

        try:
            if chosen.copies:
                await self._task.put([copy for _, copy in chosen.copies], prepare_next)
        except IllegalMessage:
            if len(chosen.copies) > 1:
                self._batch_max = 1
                return []
            chosen.passed += [(row.unit, Obstacle.ILLEGAL) for row, _ in chosen.copies]
            chosen.copies = []
        except (RequestFailed, StoreError, DLedgerError):
            if self._ahead is not None:
                self._taken += self._ahead.rows
                self._ahead = None
            raise
        else:
            self._batch_max = self._messages_max
        if chosen.passed:
            units = sorted(unit for unit, _ in chosen.passed)
            await self._replica.change(PassTimers(0, tuple((unit, unit + 1) for unit in units)))
        self._taken = []
        for unit, obstacle in chosen.passed:
            if obstacle is not None:
                logger.error("delayed_message_not_delivered timer_unit=%d reason=%s", unit, obstacle.value)
                self._on_obstacle(obstacle, 1)
        return [max(now_ms - (row.time_ms or now_ms), 0) for row, _ in chosen.copies]

    async def _put_recalls(self) -> None:
        """Put the records of the recalls that wait, and answer them.

        Raises:
            RequestFailed, StoreError, DLedgerError: they are not put, or it is not known; the callers get it, too.
        """
        is_done, now_ms = self._replica.state.timers.is_done, self._task.now_ms()
        chosen: dict[int, _Recall] = {}
        while self._recalls and len(chosen) < self._messages_max:
            recall = self._recalls[0]
            unit = next((each for each in recall.units if not is_done(each)), None)
            if unit in chosen:
                # The same message twice: the second one is answered in the next turn.
                break
            self._recalls.popleft()
            if unit is not None:
                chosen[unit] = recall
            elif not recall.done.done():
                recall.done.set_result(False)
        if not chosen:
            return
        try:
            await self._task.put(
                [recall_message(recall.what, unit, now_ms) for unit, recall in chosen.items()], lambda: None
            )
        except (RequestFailed, StoreError, DLedgerError) as error:
            for recall in chosen.values():
                _fail(recall, error)
            if not isinstance(error, IllegalMessage):
                raise
        for recall in chosen.values():
            if not recall.done.done():
                recall.done.set_result(True)


def _fail(recall: _Recall, error: Exception) -> None:
    if not recall.done.done():
        recall.done.set_exception(error)


def _not_leading() -> RequestFailed:
    return RequestFailed(Reason.NOT_LEADER, "this node does not deliver messages", certainty=Certainty.NOT_APPENDED)

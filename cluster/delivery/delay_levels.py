"""Delivers delayed messages: copies those that are due from the queues of the delay levels to their topics.

One task on each node (`cluster.delivery.leader_task`). The queues and the offset of each level are all that it needs,
and both are derived from the log:

1. choose the units that are due, from the level's offset on (`cluster.delivery.due`);
2. put their copies, each of which moves the offset of its level on when it is applied (`cluster.state.effects`);
   meanwhile the next ones are chosen, but not put;
3. where units cannot be delivered after the last copy, pass over them by a command.

Where a level has a delay that is longer than the log keeps its records, a message is put again before its record is
deleted: as a message for the same time (`cluster.delivery.timers`). Its record has the same effect as a copy.

So a copy and the progress of its level are one entry: no change of leader can separate them.

Source: RocketMQ `ScheduleMessageService`, which notes the offsets in a file every ten seconds.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from cluster.delivery.copies import Obstacle, as_timer, delayed_copies
from cluster.delivery.due import due_of, expiring_of
from cluster.delivery.leader_task import LeaderTask, kept_ms
from cluster.delivery.records import read_run
from cluster.state.effects import delayed_head
from cluster.state.features import WITH_EFFECTS, WITH_TIMERS
from cluster.state.old.delay_table import DELAY_MS_MAX
from cluster.state.waiting_commands import SetDelayOffsets
from commitlog.record.copied_records import WaitingQueue, copied
from commitlog.record.effects import effect_property
from store.errors import IllegalMessage
from store.model.message import Message, QueueKey
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.replica.port import Replica
    from commitlog.record.record import Record
    from store.queues.consume_queue import ConsumeQueue
    from store.queues.unit import Units

# Copies of one put, which are read and encoded in one iteration of the loop; and the bytes of their records.
BATCH_MAX: Final = 1_024
_BATCH_BYTES_MAX: Final = 1 << 20
_TOPIC: Final = SCHEDULE_TOPIC.encode()
# Units that are looked at together for what is due.
_LOOK_MAX: Final = 4_096

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chosen:
    """What is due.

    Attributes:
        copies: to be put, in the order of each level.
        places: level and unit of each.
        lateness_ms: of each.
        begins: the first unit that was examined, by level.
        passed: the offset after the last unit, for each level whose last units cannot be delivered.
        next_ms: when the next unit is due; None: none waits.
        size_bytes: of the records of the copies.
        again_count: copies that are no deliveries, but are put again for the log's retention.
    """

    copies: list[Message] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    lateness_ms: list[int] = field(default_factory=list)
    begins: dict[int, int] = field(default_factory=dict)
    passed: dict[int, int] = field(default_factory=dict)
    next_ms: int | None = None
    size_bytes: int = 0
    again_count: int = 0

    def is_next(self, time_ms: int | None) -> None:
        """Record when the next unit of a level is due."""
        if time_ms is not None and (self.next_ms is None or time_ms < self.next_ms):
            self.next_ms = time_ms


class DelayDelivery:
    """The delivery on one node. Must be created inside the running loop.

    Args:
        replica: the node's.
        clock_ms: the wall clock, milliseconds since 1970.
        on_delivered: called with the lateness of each delivered message in milliseconds.
        on_obstacle: called with the reason for each message that could not be delivered.

    Attributes:
        put_again_count: messages that this process has put again for the log's retention.
    """

    def __init__(
        self,
        replica: Replica,
        clock_ms: Callable[[], int],
        on_delivered: Callable[[list[int]], None],
        on_obstacle: Callable[[Obstacle], None],
    ) -> None:
        self._replica = replica
        self._task = LeaderTask(replica, clock_ms, SCHEDULE_TOPIC)
        self._on_delivered = on_delivered
        self._on_obstacle = on_obstacle
        # The level that is chosen first; it moves on, so that no level waits for another one with many messages.
        self._first_level = 0
        limits = replica.put_limits
        self._messages_max = min(limits.messages_max, BATCH_MAX)
        self._size_bytes_max = min(limits.size_bytes_max, _BATCH_BYTES_MAX)
        # 1 after a batch was refused: the message that cannot be stored is found by itself.
        self._batch_max = self._messages_max
        # What follows the pending put, chosen meanwhile.
        self._ahead: _Chosen | None = None
        self._keep_ms = kept_ms(replica)
        self.put_again_count = 0

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._task.run(self._deliver_due)

    async def _deliver_due(self) -> float | None:
        """Deliver all that is due; return the seconds until the next unit is; None: none waits, or this node may not.

        Raises:
            RequestFailed, StoreError, DLedgerError: it continues later.
        """
        while self._task.is_leading(WITH_EFFECTS):
            if await self._task.decided():
                continue
            chosen = self._chosen_ahead() or self._choose()
            if chosen.copies and not await self._put(chosen):
                continue
            if chosen.passed:
                await self._replica.change(SetDelayOffsets(tuple(sorted(chosen.passed.items()))))
            if not chosen.copies and not chosen.passed:
                return self._task.sleep_s(chosen.next_ms)
        return None

    # ------------------------------------------------------------------------------------------------------ choosing

    def _chosen_ahead(self) -> _Chosen | None:
        """Return the choice made during the last put; None: its levels do not begin there.

        Then that put has failed, or another leader has delivered since.
        """
        chosen, self._ahead = self._ahead, None
        if chosen is None or not chosen.copies:
            return None
        is_next = all(first_waiting(self._replica, level) == begin for level, begin in chosen.begins.items())
        return chosen if is_next else None

    def _choose(self, before: _Chosen | None = None) -> _Chosen:
        """Choose what is due, after the units of `before`, which are being put."""
        pending = {} if before is None else {level: unit + 1 for level, unit in before.places} | before.passed
        chosen, now_ms, count = _Chosen(), self._task.now_ms(), len(DELAY_LEVELS_MS)
        queues = self._replica.store.derived.queues
        for step in range(count):
            level = (self._first_level + step) % count + 1
            queue = queues.get(QueueKey(SCHEDULE_TOPIC, level - 1))
            if queue is not None and len(chosen.copies) < self._batch_max:
                self._choose_of(level, queue, pending.get(level, 0), now_ms, chosen)
        self._first_level = (self._first_level + 1) % count
        return chosen

    def _choose_of(self, level: int, queue: ConsumeQueue, begin: int, now_ms: int, chosen: _Chosen) -> None:
        """Choose the due units of one level, from `begin` on or later."""
        offset = max(first_waiting(self._replica, level), begin)
        units = queue.units(offset, _LOOK_MAX)
        times_ms = units.tags_codes
        delay_ms = DELAY_LEVELS_MS[level - 1]
        if len(times_ms) and times_ms[0] > now_ms + delay_ms:
            delay_ms = max(self._delay_of(level, offset, int(times_ms[0])), delay_ms)
        due = due_of(times_ms, now_ms, delay_ms)
        chosen.is_next(due.next_ms)
        expiring_count = 0
        if self._task.is_leading(WITH_TIMERS):
            expiring = expiring_of(times_ms[due.units_count :], now_ms, delay_ms, self._keep_ms)
            chosen.is_next(expiring.next_ms)
            expiring_count = expiring.units_count
        count = min(due.units_count + expiring_count, self._batch_max - len(chosen.copies))
        if count <= 0:
            return
        chosen.begins[level] = offset
        known = len(chosen.places)
        self._read(level, offset, units.part(0, count), chosen)
        rows = np.array([unit - offset for _, unit in chosen.places[known:]], np.int64)
        is_due = rows < due.units_count
        chosen.lateness_ms += np.maximum(now_ms - times_ms[rows[is_due]], 0).tolist()
        for at in np.flatnonzero(~is_due).tolist():
            chosen.copies[known + at] = as_timer(chosen.copies[known + at], int(times_ms[rows[at]]))
            chosen.again_count += 1

    def _delay_of(self, level: int, unit: int, time_ms: int) -> int:
        """Return the delay of a unit by its record; 0: it is none, as after a change of the clock.

        A RocketMQ broker with a delay table of its own may have written it.
        """
        found = self._replica.store.get(SCHEDULE_TOPIC, level - 1, unit, 1, self._size_bytes_max).messages
        delay_ms = time_ms - found[0].store_timestamp if found else 0
        return delay_ms if delay_ms <= DELAY_MS_MAX else 0

    def _read(self, level: int, unit: int, units: Units, chosen: _Chosen) -> None:
        """Choose these units, the first of which is `unit`, or fewer."""
        store, topics, begin, end = self._replica.store, self._replica.state.topics, unit, unit + len(units.sizes)
        queue = WaitingQueue(_TOPIC, level - 1, effect_property(delayed_head(level)))
        while unit < end:
            rest = units.part(unit - begin, end - begin)
            left = self._size_bytes_max - chosen.size_bytes
            if chosen.copies and rest.sizes[0] > left:
                return
            records = read_run(store.log, rest, left)
            copies = delayed_copies(copied(records, range(unit, unit + len(records)), queue), topics)
            if copies:
                self._take(level, unit, rest.sizes[: len(copies)].tolist(), copies, chosen)
                unit += len(copies)
            else:
                unit = self._read_one(level, unit, end, queue, chosen)

    def _read_one(self, level: int, unit: int, end: int, queue: WaitingQueue, chosen: _Chosen) -> int:
        """Choose the first unit whose record can be read; return the one after it, `end` if it is not chosen now."""
        found = self._replica.store.get(SCHEDULE_TOPIC, level - 1, unit, 1, self._size_bytes_max)
        if found.next_begin_offset <= unit:
            return end
        for record in cast("Sequence[Record]", found.messages):
            if record.queue_offset >= end:
                break
            if chosen.copies and chosen.size_bytes + record.size > self._size_bytes_max:
                return end
            self._are_unreadable(level, unit, record.queue_offset)
            unit = record.queue_offset
            copies = delayed_copies(copied([record], [unit], queue), self._replica.state.topics)
            self._take(level, unit, [record.size], copies, chosen)
            unit += 1
        read_end = min(found.next_begin_offset, end)
        if unit < read_end:
            self._are_unreadable(level, unit, read_end)
            unit = chosen.passed[level] = read_end
        return unit

    def _take(
        self, level: int, begin: int, sizes: list[int], copies: Sequence[Message | Obstacle], chosen: _Chosen
    ) -> None:
        """Choose the copies of consecutive units, the first of which is `begin`."""
        places = [(level, begin + row) for row in range(len(copies))]
        messages = [copy for copy in copies if isinstance(copy, Message)]
        if len(messages) == len(copies):
            chosen.places += places
            chosen.size_bytes += sum(sizes)
        else:
            for place, size, copy in zip(places, sizes, copies, strict=True):
                if isinstance(copy, Obstacle):
                    self._is_not_delivered(*place, copy)
                else:
                    chosen.places.append(place)
                    chosen.size_bytes += size
        chosen.copies += messages
        chosen.passed.pop(level, None)
        if isinstance(copies[-1], Obstacle):
            chosen.passed[level] = begin + len(copies)

    def _are_unreadable(self, level: int, begin: int, end: int) -> None:
        """Report units whose records cannot be read, or are deleted."""
        for unit in range(begin, end):
            self._is_not_delivered(level, unit, Obstacle.UNREADABLE)

    def _is_not_delivered(self, level: int, unit: int, obstacle: Obstacle) -> None:
        logger.error("delayed_message_not_delivered level=%d unit=%d reason=%s", level, unit, obstacle.value)
        self._on_obstacle(obstacle)

    # ------------------------------------------------------------------------------------------------------- putting

    async def _put(self, chosen: _Chosen) -> bool:
        """Put the copies; return False if one of them cannot be stored: it will be found by itself, and passed over.

        Raises:
            RequestFailed, StoreError: they are not put, or it is not known.
        """
        self._ahead = None

        def prepare_next() -> None:
            self._ahead = self._choose(chosen)

        try:
            await self._task.put(chosen.copies, prepare_next)
        except IllegalMessage:
            if len(chosen.copies) == 1:
                (level, unit) = chosen.places[0]
                self._is_not_delivered(level, unit, Obstacle.ILLEGAL)
                await self._replica.change(SetDelayOffsets(((level, unit + 1),)))
            self._batch_max = 1
            return False
        self._batch_max = self._messages_max
        self.put_again_count += chosen.again_count
        self._on_delivered(chosen.lateness_ms)
        return True


def first_waiting(replica: Replica, level: int) -> int:
    """Return the offset of the first unit of a level that is not delivered yet, which may be the end of its queue."""
    min_offset = replica.store.min_offset(SCHEDULE_TOPIC, level - 1)
    return max(replica.state.delay_offsets.get(level, 0), min_offset)

"""Which messages for a time wait in a RocketMQ store, from the timer queue and the progress in `config/timercheck`.

| a unit of the timer queue | is |
| --- | --- |
| before `lastTimerQueueOffset`, for a time some seconds before `lastReadTimeMs` | done: RocketMQ has emptied its slot |
| with a copy in its topic, in the log after that time | delivered |
| of a later one with the same id that was put again (TIMER_ROLL_TIMES is higher) | replaced |
| of the id and time of a recall | recalled; so is the recall itself |
| unreadable | lost, as it is for RocketMQ |
| any other | waiting |

Wheel and timer log are not read: they have only what the records have, and after a crash less of it. Without
`timercheck` all units are examined, and all of the log after them.

Source: RocketMQ `TimerCheckpoint`, `TimerMessageStore.recover`, `convert`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.replica.old.records import message_key, properties_of, records_of
from cluster.state.timers import DoneTimers
from commitlog.record.timer_properties import DELETE_KEY, OUT_MS, PRECISION_MS, ROLL_TIMES, timer_time_ms
from store.model.message import UNIQUE_KEY
from store.model.topics import REAL_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.replica.old.copies import Copies
    from commitlog.record.record import Record
    from store.access.message_store import MessageStore
    from store.steps import Steps

# lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset, masterTimerQueueOffset
_CHECKPOINT: Final = struct.Struct(">qqqq")
# RocketMQ's slots are a second at most, and its checkpoint is written each second.
_MARGIN_MS: Final = 60_000
# A slot begins before the times in it.
_EARLY_MS: Final = 2 * PRECISION_MS
_UNITS_PER_STEP: Final = 200
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class TimerProgress(NamedTuple):
    """The progress of RocketMQ's timer.

    Attributes:
        read_ms: all messages for an earlier time were delivered, if they are before `queue_offset`.
        queue_offset: end of the units that its wheel has.
    """

    read_ms: int = 0
    queue_offset: int = 0


@dataclass(slots=True)
class OldTimers:
    """The units that may wait.

    Attributes:
        end: end of the queue in the old store; all units before it that do not wait are done.
        units: those that may wait, with the key of each; ascending.
        begin_ms: when the first copy of one of them can have been stored, milliseconds since 1970.
        recall_count: messages that were recalled.
    """

    end: int = 0
    units: dict[int, int | None] = field(default_factory=dict)
    begin_ms: int = 1 << 62
    recall_count: int = 0

    def waiting(self, copies: Copies) -> Iterator[int]:
        """Yield the units that wait, ascending: of equal messages as many as there are fewer copies, the last ones."""
        left = copies.delivered.copy()
        for unit, key in self.units.items():
            if key is not None and left[key] > 0:
                left[key] -= 1
            else:
                yield unit


def read_progress(store: Path) -> TimerProgress:
    """Return the progress that RocketMQ noted in a store directory; nothing is known without a readable file."""
    try:
        content = (store / "config" / "timercheck").read_bytes()
    except OSError:
        return TimerProgress()
    if len(content) < _CHECKPOINT.size:
        return TimerProgress()
    read_ms, _, queue_offset, _ = _CHECKPOINT.unpack_from(content)
    return TimerProgress(max(read_ms, 0), max(queue_offset, 0))


def find_timers(store: MessageStore, progress: TimerProgress, last_ms: int, log_end: int) -> Steps[OldTimers]:
    """Return the units that may wait, in steps of some milliseconds.

    Args:
        store: the old store.
        progress: of RocketMQ.
        last_ms: time of the last record of the old store: what was due later was not delivered.
        log_end: end of the old store in the log.
    """
    found = OldTimers()
    done_ms = progress.read_ms - _MARGIN_MS
    # By id and time: a recall, and the last message that was put again, with the number of times.
    recalled: set[tuple[str, str]] = set()
    latest: dict[int, tuple[int, int]] = {}
    slots: dict[int, tuple[str, str, str]] = {}
    for unit, record in records_of(store, TIMER_TOPIC, 0, 0, log_end):
        if unit % _UNITS_PER_STEP == 0:
            yield
        found.end = unit + 1
        if record is None:
            continue
        properties = properties_of(record)
        time_ms = timer_time_ms(properties)
        slot = properties.get(OUT_MS, "")
        if DELETE_KEY in properties:
            recalled.add((properties[DELETE_KEY], slot))
        elif unit >= progress.queue_offset or time_ms >= done_ms:
            _take(unit, record, properties, latest, found)
            if time_ms <= last_ms + _EARLY_MS:
                found.begin_ms = min(found.begin_ms, max(record.store_timestamp, time_ms - _EARLY_MS))
            if UNIQUE_KEY in properties:
                slots[unit] = (properties.get(REAL_TOPIC, ""), properties[UNIQUE_KEY], slot)
    if recalled:
        for unit, (topic, key, slot) in slots.items():
            # Two forms of the key, by the version of RocketMQ.
            if unit in found.units and ((f"{topic}+{key}", slot) in recalled or (key, slot) in recalled):
                del found.units[unit]
                found.recall_count += 1
    return found


def _take(
    unit: int, record: Record, properties: Mapping[str, str], latest: dict[int, tuple[int, int]], found: OldTimers
) -> None:
    """Add a unit, in place of the one that it replaces."""
    key, rolls = message_key(record, properties), properties.get(ROLL_TIMES, "")
    times = int(rolls) if _NUMBER.fullmatch(rolls) else 0
    if key is not None:
        before, before_times = latest.get(key, (-1, 0))
        if times > before_times:
            found.units.pop(before, None)
        latest[key] = unit, times
    found.units[unit] = key


def done_units(end: int, waiting: Iterable[int]) -> DoneTimers:
    """Return the state of a timer queue of which only some units before `end` wait; they are ascending."""
    done, begin = DoneTimers(), 0
    for unit in (*waiting, end):
        if begin < unit:
            done.pass_over(0, [(begin, unit)])
        begin = unit + 1
    return done

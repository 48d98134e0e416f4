"""Which delayed messages RocketMQ has delivered after the progress that it noted, every ten seconds, in a file.

The units of a level are delivered in their order. So the offset of a level moves on while copies of its next units are
in the log, and stays at the first unit without one.

Source: RocketMQ `ScheduleMessageService`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.replica.old.records import message_key, properties_of, records_of
from store.model.message import QueueKey
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.replica.old.copies import Copies
    from store.access.message_store import MessageStore
    from store.steps import Steps

_UNITS_PER_STEP: Final = 200


@dataclass(slots=True)
class OldDelays:
    """The units that may have been delivered.

    Attributes:
        keys: of the units of each level from its offset on.
        offsets: of each level with a queue: its first unit that may wait, without regard to the copies.
        begin_ms: when the first copy of one of them can have been stored, milliseconds since 1970.
    """

    keys: dict[int, list[int | None]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    begin_ms: int = 1 << 62

    def delivered(self, copies: Copies) -> dict[int, int]:
        """Return the first unit of each level that waits."""
        left, found = copies.delivered.copy(), dict(self.offsets)
        for level, keys in self.keys.items():
            for key in keys:
                if key is None or left[key] <= 0:
                    break
                left[key] -= 1
                found[level] += 1
        return found


def find_delays(store: MessageStore, known: Mapping[int, int], last_ms: int, log_end: int) -> Steps[OldDelays]:
    """Return the units that RocketMQ may have delivered, in steps of some milliseconds.

    Args:
        store: the old store.
        known: offset of each level, as far as RocketMQ noted it.
        last_ms: time of the last record of the old store: what was due later was not delivered.
        log_end: end of the old store in the log.
    """
    found = OldDelays()
    for level in sorted(level for level in map(_level_of, store.derived.queues) if level):
        queue_id = level - 1
        begin = max(known.get(level, 0), store.min_offset(SCHEDULE_TOPIC, queue_id))
        found.offsets[level] = begin = min(begin, store.max_offset(SCHEDULE_TOPIC, queue_id))
        keys = found.keys[level] = []
        queue = store.derived.queues.get(QueueKey(SCHEDULE_TOPIC, queue_id))
        for unit, record in records_of(store, SCHEDULE_TOPIC, queue_id, begin, log_end):
            if unit % _UNITS_PER_STEP == 0:
                yield
            times_ms = [] if queue is None else [tags_code for _, _, tags_code in queue.unit_tuples(unit, 1)]
            key = None if record is None else message_key(record, properties_of(record))
            if record is None or key is None or not times_ms or times_ms[0] > last_ms:
                break
            keys.append(key)
            found.begin_ms = min(found.begin_ms, max(record.store_timestamp, times_ms[0]))
    return found


def _level_of(key: QueueKey) -> int:
    is_level = key.topic == SCHEDULE_TOPIC and key.queue_id < len(DELAY_LEVELS_MS)
    return key.queue_id + 1 if is_level else 0

"""The records of the timer queue: reading them, and what is put when one is delivered, put again, or recalled.

| put | topic | properties |
| --- | --- | --- |
| copy | that of the message | all, and TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS; effect `t` |
| put again, because the log is deleted before its time | timer queue | TIMER_ROLL_TIMES one higher; effect `r` |
| recall | timer queue | those of RocketMQ, whose timer honours them; effect `c` |

Source: RocketMQ `TimerMessageStore.convert`, `doPut`, `RecallMessageProcessor`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from cluster.delivery.copies import Obstacle, delayed_copies
from cluster.delivery.records import read_records
from cluster.state.effects import TimerDone, TimerEnd, encode_effect, timer_head
from commitlog.record.copied_records import WaitingQueue, copied
from commitlog.record.effects import effect_property, properties_with_effect, without_effect
from commitlog.record.properties import decode_properties, encode_properties
from commitlog.record.timer_properties import (
    AT_ONCE_MS,
    DELETE_KEY,
    DELIVER_MS,
    DEQUEUE_MS,
    ENQUEUE_MS,
    OUT_MS,
    ROLL_TIMES,
    timer_out_ms,
    timer_time_ms,
)
from store.errors import CorruptData
from store.model.message import TAGS, UNIQUE_KEY, Message, QueueKey
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import REAL_QUEUE_ID, REAL_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.protocol.topic_config import TopicConfig
    from commitlog.record.record import Record
    from store.access.message_store import MessageStore
    from store.queues.consume_queue import ConsumeQueue

# Times in the queue are later; what is before is none.
EARLIEST_MS: Final = 1 << 31
TIMER_QUEUE: Final = QueueKey(TIMER_TOPIC, 0)
_TOPIC: Final = TIMER_TOPIC.encode()
_RECALL_BODY: Final = b"0"
_RECALL_TAG: Final = "_RECALL_TAG_"
_ROLLS_MAX: Final = 999_999
_NO_PLACE: Final = (0, 0)


class Recalled(NamedTuple):
    """What a client recalls.

    Attributes:
        topic: of the message.
        key: its UNIQ_KEY.
        deliver_ms: when it was to be delivered, milliseconds since 1970.
    """

    topic: str
    key: str
    deliver_ms: int


def read_unit(store: MessageStore, unit: int) -> Record | None:
    """Return the record of a unit of the timer queue; None: it is deleted or damaged."""
    queue = store.derived.queues.get(TIMER_QUEUE)
    for physical_offset, _, _ in queue.unit_tuples(unit, 1) if queue is not None else ():
        try:
            record = cast("Record | None", store.log.find(physical_offset))
        except CorruptData:
            return None
        return record if record is not None and record.is_at_queue_offset(_TOPIC, 0, unit) else None
    return None


def read_units(store: MessageStore, units: Sequence[int], size_bytes_max: int) -> dict[int, Record | None]:
    """Return the records of the first of some units; None: it is deleted or damaged.

    Args:
        store: the node's.
        units: of the timer queue, in any order.
        size_bytes_max: of the records together; the first one is read whatever its size, and the others are left out.
    """
    queue = store.derived.queues.get(TIMER_QUEUE)
    known = {} if queue is None else _places_of(queue, sorted(units))
    places, size_bytes = list[tuple[int, int]](), 0
    for unit in units:
        place = known.get(unit, _NO_PLACE)
        size_bytes += place[1]
        if places and size_bytes > size_bytes_max:
            break
        places.append(place)
    return {
        unit: record if record is not None and record.is_at_queue_offset(_TOPIC, 0, unit) else None
        for unit, record in zip(units, read_records(store.log, places), strict=False)
    }


def _places_of(queue: ConsumeQueue, units: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return physical offset and size of units, which are ascending; fewer at the end of the queue."""
    found: dict[int, tuple[int, int]] = {}
    for _, run in groupby(enumerate(units), key=lambda pair: pair[1] - pair[0]):
        row = [unit for _, unit in run]
        tuples = queue.unit_tuples(row[0], len(row))
        found |= {unit: place[:2] for unit, place in zip(row, tuples, strict=False)}
    return found


def time_of_unit(store: MessageStore, unit: int) -> int:
    """Return when a unit is due whose time is not in the queue; `AT_ONCE_MS`: its record names none, or is unreadable.

    RocketMQ writes the hash of the tags there: a number of 31 bits, which is in January 1970.
    """
    record = read_unit(store, unit)
    return AT_ONCE_MS if record is None else timer_time_ms(decode_properties(record.properties_raw))


def timer_copies(
    waiting: Sequence[tuple[int, Record]], now_ms: int, topics: Mapping[str, TopicConfig]
) -> list[Message | Obstacle]:
    """Return the copies of messages whose time has come; see `delayed_copies`.

    Args:
        waiting: unit and record of each, as from `read_units`.
        now_ms: the time, milliseconds since 1970.
        topics: of the broker.
    """
    before_unit = f"\x02{DEQUEUE_MS}\x01{now_ms}\x02".encode() + effect_property(timer_head(TimerEnd.DELIVERED))
    queue = WaitingQueue(_TOPIC, 0, before_unit, f"{ENQUEUE_MS}\x01".encode())
    copies: list[Message | Obstacle] = []
    # Records that were read together have one buffer.
    for _, run in groupby(waiting, key=lambda pair: id(pair[1].view)):
        units, records = zip(*run, strict=True)
        copies += delayed_copies(copied(records, units, queue), topics)
    return copies


def put_again(record: Record, unit: int) -> Message:
    """Return the message that replaces one which waits, so that the log may delete the old record."""
    properties = decode_properties(without_effect(record.properties_raw))
    rolls = properties.get(ROLL_TIMES, "")
    known = int(rolls) if rolls.isascii() and rolls.isdecimal() and len(rolls) < len(str(_ROLLS_MAX)) else 0
    properties[ROLL_TIMES] = str(known + 1)
    effect = encode_effect(TimerDone(unit, TimerEnd.PUT_AGAIN))
    return Message(
        TIMER_TOPIC,
        record.body,
        0,
        properties_with_effect(encode_properties(properties), effect),
        record.flag,
        record.sys_flag | CARRIES_EFFECT,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


def recall_message(recalled: Recalled, unit: int, now_ms: int) -> Message:
    """Return the record that recalls a unit."""
    properties = {
        TAGS: _RECALL_TAG,
        UNIQUE_KEY: recalled.key,
        DELETE_KEY: f"{recalled.topic}+{recalled.key}",
        DELIVER_MS: str(recalled.deliver_ms),
        OUT_MS: str(timer_out_ms(recalled.deliver_ms)),
        REAL_TOPIC: recalled.topic,
        REAL_QUEUE_ID: "0",
    }
    effect = encode_effect(TimerDone(unit, TimerEnd.RECALLED))
    raw = properties_with_effect(encode_properties(properties), effect)
    return Message(TIMER_TOPIC, _RECALL_BODY, 0, raw, sys_flag=CARRIES_EFFECT, born_timestamp=now_ms)

"""The records that end transactions.

| record | topic | properties | carries |
| --- | --- | --- | --- |
| committed message | that of the put; of its delay level with DELAY | those of the half message | its commit |
| op message | `RMQ_SYS_TRANS_OP_HALF_TOPIC`, queue 0 | TAGS `d` | rollbacks; it notes the other ends |
| copy of a half message, given up | `TRANS_CHECK_MAX_TIME_TOPIC`, queue 0 | those of the half message | its end |

The body of an op message has the offsets of half messages, each with a comma after it: RocketMQ's programs pass over
these half messages. The committed message has the sysFlag of a commit and the physical offset of the half message.

Source: RocketMQ `EndTransactionProcessor.endMessageTransaction`, `TransactionalMessageBridge`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.delivery.diversion import diverted
from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.effects import Ended, Ending, GivenUp, Renewed, encode_effect
from commitlog.record.effects import properties_with_effect, without_effect
from commitlog.record.properties import RawProperties, decode_properties
from commitlog.record.tags_code import delay_level
from store.model.message import DELAY, PRODUCER_GROUP, TAGS, TRANSACTION_ID, UNIQUE_KEY, Message
from store.model.sys_flag import CARRIES_EFFECT, TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from store.model.topics import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.delivery.diversion import Delivery
    from cluster.protocol.topic_config import TopicConfig
    from commitlog.record.record import Record

_DONE_TAG: Final = "d"
_QUEUE_DIGITS_MAX: Final = 10


class HalfMessage(NamedTuple):
    """What a half message says.

    Attributes:
        half: offset by which the transaction is known: of the first record, if it was put again.
        record: its record.
        topic: topic of the put.
        queue: queue of the put, as text.
        group: producer group.
        transaction_id: id of the transaction.
        level: delay level; 0: none.
    """

    half: int
    record: Record
    topic: str
    queue: str
    group: str
    transaction_id: str
    level: int


def half_message(record: Record | None, half: int | None = None) -> HalfMessage | None:
    """Return a half message; None: the record is none.

    Args:
        record: of the half message; None: it cannot be read.
        half: offset by which its transaction is known; None: that of the record.
    """
    if record is None or record.topic != HALF_TOPIC:
        return None
    properties = decode_properties(record.properties_raw)
    return HalfMessage(
        record.queue_offset if half is None else half,
        record,
        properties.get(REAL_TOPIC, ""),
        properties.get(REAL_QUEUE_ID, ""),
        properties.get(PRODUCER_GROUP, ""),
        # A half message of an old version of RocketMQ has only the key.
        properties.get(TRANSACTION_ID) or properties.get(UNIQUE_KEY, ""),
        delay_level(properties.get(DELAY)),
    )


def committed_message(
    half: HalfMessage, topics: Mapping[str, TopicConfig], delivery: Delivery | None = None
) -> Message:
    """Return the message that consumers get.

    Args:
        half: the half message.
        topics: of the broker. Permissions do not matter: the put was permitted.
        delivery: when it is delivered; None: after the delay of its level.

    Raises:
        RequestFailed: UNKNOWN_TOPIC: its topic was deleted since; UNKNOWN_QUEUE: the half message has no queue.
        store.errors.IllegalMessage: with its delay level its properties are too large.
    """
    topic = topics.get(half.topic)
    if topic is None:
        text = f"topic {half.topic!r} of the transaction was deleted; create it, or roll back"
        raise RequestFailed(Reason.UNKNOWN_TOPIC, text)
    if not (half.queue.isascii() and half.queue.isdecimal() and len(half.queue) <= _QUEUE_DIGITS_MAX):
        raise RequestFailed(Reason.UNKNOWN_QUEUE, f"the half message has the queue {half.queue[:80]!r}")
    queues = max(topic.write_queues, topic.read_queues, 1)
    record = half.record
    sys_flag = record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT_TYPE | CARRIES_EFFECT
    effect, raw = Ended(((half.half, Ending.COMMITTED),)), record.properties_raw
    # One object, and no `_replace`: thousands are made in a second.
    message = Message(
        half.topic,
        record.body,
        int(half.queue) % queues,
        RawProperties(without_effect(raw)) if half.level else properties_with_effect(raw, encode_effect(effect)),
        record.flag,
        sys_flag,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        record.physical_offset,
    )
    # The effect is the last property, after those of the diversion.
    if not half.level:
        return message
    return _with_effect(diverted([message], [half.level if delivery is None else delivery])[0], effect)


def given_up_message(half: HalfMessage) -> Message:
    """Return the copy of a half message whose transaction is given up."""
    record = half.record
    message = record.message._replace(
        topic=CHECK_MAX_TIME_TOPIC,
        queue_id=0,
        properties=RawProperties(record.properties_raw),
        # A half message of RocketMQ carries no effect.
        sys_flag=record.sys_flag | CARRIES_EFFECT,
    )
    return _with_effect(message, GivenUp(half.half))


def renewed_message(half: HalfMessage) -> Message:
    """Return the half message that replaces one whose record the log will delete."""
    record = half.record
    message = record.message._replace(
        sys_flag=record.sys_flag | CARRIES_EFFECT, properties=RawProperties(without_effect(record.properties_raw))
    )
    return _with_effect(message, Renewed(half.half))


def replaced_message(offsets: Sequence[int], now_ms: int) -> Message:
    """Return the op message for half messages that were put again; it is for RocketMQ's programs, and has no effect."""
    body = "".join(f"{offset}," for offset in offsets).encode()
    properties = RawProperties(f"{TAGS}\x01{_DONE_TAG}\x02".encode())
    return Message(OP_HALF_TOPIC, body, 0, properties, born_timestamp=now_ms)


def op_message(ends: Sequence[tuple[int, Ending]], now_ms: int, also: Sequence[int] = ()) -> Message:
    """Return the op message of some ends.

    Args:
        ends: offset of each half message, ascending, and how its transaction ended; at most `ENDS_MAX`.
        now_ms: the time, milliseconds since 1970.
        also: offsets of the records with which some of them were put again.
    """
    body = "".join(f"{half}," for half in (*(half for half, _ in ends), *also)).encode()
    properties = RawProperties(f"{TAGS}\x01{_DONE_TAG}\x02".encode())
    message = Message(OP_HALF_TOPIC, body, 0, properties, sys_flag=CARRIES_EFFECT, born_timestamp=now_ms)
    return _with_effect(message, Ended(tuple(ends)))


def _with_effect(message: Message, effect: Ended | GivenUp | Renewed) -> Message:
    properties = message.properties
    assert isinstance(properties, RawProperties), properties
    return message._replace(properties=properties_with_effect(properties.raw, encode_effect(effect)))

"""Diverts the put of a delayed message to a queue of the broker, which copies it to its topic later.

| property | in the diverted message |
| --- | --- |
| DELAY | the level; one above the last is the last |
| TIMER_… | of a level: removed. Of a time: TIMER_DELIVER_MS has the exact one, TIMER_OUT_MS RocketMQ's slot |
| REAL_TOPIC, REAL_QID | topic and queue of the put |

A level whose delay is not the default one is a time (`in_table`).

Queue `level - 1` of SCHEDULE_TOPIC_XXXX has the messages of a level, queue 0 of rmq_sys_wheel_timer those of all times.
Everything else is unchanged.

Source: RocketMQ `HookUtils.transformDelayLevelMessage`, `transformTimerMessage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from commitlog.record.properties import PROPERTIES_SIZE_MAX, RawProperties, decode_properties, encode_properties
from commitlog.record.timer_properties import DELIVER_MS, OUT_MS, timer_out_ms
from store.errors import IllegalMessage
from store.model.message import DELAY
from store.model.topics import DELAY_LEVELS_MS, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC, TIMER_PREFIX, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.message import Message

# For the effect that the copy carries; and the further properties of a copy, and of a message that is put again.
_SPACE: Final = 64
_TIMER_SPACE: Final = 192


class DeliverAt(NamedTuple):
    """A time for the delivery of a message.

    Attributes:
        time_ms: milliseconds since 1970.
    """

    time_ms: int


# When to deliver a message: a delay level, from 1; a time; or at once.
Delivery = int | DeliverAt
AT_ONCE: Final = 0


def in_table(delivery: Delivery, levels_ms: Sequence[int], now_ms: int) -> Delivery:
    """Return when to deliver a message by the delay levels of the broker; a level of the result has its default delay.

    Args:
        delivery: of a put; a level above the last is the last.
        levels_ms: delay of each level.
        now_ms: the time, milliseconds since 1970.
    """
    if isinstance(delivery, DeliverAt) or not delivery:
        return delivery
    level = min(delivery, len(levels_ms))
    delay_ms = levels_ms[level - 1]
    is_default = level <= len(DELAY_LEVELS_MS) and DELAY_LEVELS_MS[level - 1] == delay_ms
    return level if is_default else DeliverAt(now_ms + delay_ms)


def diverted(messages: Sequence[Message], deliveries: Sequence[Delivery]) -> list[Message]:
    """Return the messages of a put, the delayed ones diverted.

    Args:
        messages: of one put.
        deliveries: when to deliver each.

    Raises:
        IllegalMessage: the properties of one are too large.
    """
    return [
        _diverted(message, delivery) if delivery else message
        for message, delivery in zip(messages, deliveries, strict=True)
    ]


def _diverted(message: Message, delivery: Delivery) -> Message:
    raw = message.properties.raw if isinstance(message.properties, RawProperties) else b""
    properties = decode_properties(raw) if raw else dict(message.properties)
    if isinstance(delivery, DeliverAt):
        topic, queue_id, space = TIMER_TOPIC, 0, _TIMER_SPACE
        own = {DELIVER_MS: str(delivery.time_ms), OUT_MS: str(timer_out_ms(delivery.time_ms))}
        # Of a level with another delay: RocketMQ would delay the message once more.
        properties.pop(DELAY, None)
    else:
        level = min(delivery, len(DELAY_LEVELS_MS))
        topic, queue_id, space, own = SCHEDULE_TOPIC, level - 1, _SPACE, {DELAY: str(level)}
        properties = {name: value for name, value in properties.items() if not name.startswith(TIMER_PREFIX)}
    encoded = encode_properties(properties | own | {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(message.queue_id)})
    if len(encoded) > PROPERTIES_SIZE_MAX - space:
        expected = f"at most {PROPERTIES_SIZE_MAX - space} bytes, with topic and queue, of a delayed message"
        raise IllegalMessage("properties size", expected, str(len(encoded)))
    return message._replace(topic=topic, queue_id=queue_id, properties=RawProperties(encoded))

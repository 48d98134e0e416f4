"""The copy of a delayed message in its own topic, which carries the progress of its delivery.

The copy has what RocketMQ's has: body, flags, born time and host, number of redeliveries, and all properties; among
them DELAY, from which consumers see that it was delayed. Its queue is that of the put; where the topic has fewer queues
since, the number is taken modulo their count.

Source: RocketMQ `ScheduleMessageService.messageTimeUp`, `TimerMessageStore.convert`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cluster.state.effects import encode_effect
from commitlog.record.effects import EFFECT_NAME, properties_with_effect, without_effect
from commitlog.record.properties import RawProperties, decode_properties, encode_properties
from commitlog.record.timer_properties import DELIVER_MS, OUT_MS, timer_out_ms
from store.model.message import DELAY, Message
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, TIMER_TOPIC, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.protocol.topic_config import TopicConfig
    from cluster.state.effects import Effect
    from commitlog.record.record import Record


_END: Final = b"\x02"
# Of which the number is cached.
_QUEUES_MAX: Final = 1_024


class Obstacle(StrEnum):
    """Why a delayed message cannot be delivered; it stays readable in the queue where it waits."""

    UNREADABLE = "unreadable"
    NO_REAL_TOPIC = "no_real_topic"
    UNKNOWN_TOPIC = "unknown_topic"
    ILLEGAL = "illegal"


def delayed_copy(
    record: Record, effect: Effect, topics: Mapping[str, TopicConfig], more: bytes = b""
) -> Message | Obstacle:
    """Return the copy of a delayed message.

    Args:
        record: in the queue where it waits.
        effect: of the copy: that the record is delivered.
        topics: of the broker. Permissions do not matter: the put was permitted.
        more: further properties of the copy, encoded.
    """
    raw = record.properties_raw
    properties = decode_properties(raw)
    name = properties.get(REAL_TOPIC, "")
    queue_id = _real_queue_id(name, properties.get(REAL_QUEUE_ID, ""))
    if queue_id is None:
        return Obstacle.NO_REAL_TOPIC
    topic = topics.get(name)
    if topic is None:
        return Obstacle.UNKNOWN_TOPIC
    queues = max(topic.write_queues, topic.read_queues, 1)
    # One object, no `_replace`, and the fields taken at once: thousands are made in a second.
    _, _, _, _, flag, _, _, sys_flag, born_timestamp, _, _, _, reconsume_times, prepared_offset, _ = record.fields()
    return Message(
        name,
        record.body,
        queue_id % queues,
        properties_with_effect(joined(raw, more) if more else raw, encode_effect(effect)),
        flag,
        sys_flag | CARRIES_EFFECT,
        born_timestamp,
        record.born_host,
        reconsume_times,
        prepared_offset,
    )


def as_timer(copy: Message, time_ms: int) -> Message:
    """Return the message that waits for a time in place of a delayed one whose record the log will delete.

    Args:
        copy: of the delayed message, with its effect.
        time_ms: when it is due, milliseconds since 1970.
    """
    assert isinstance(copy.properties, RawProperties), copy
    raw = copy.properties.raw
    properties = decode_properties(without_effect(raw))
    # RocketMQ would delay it once more.
    properties.pop(DELAY, None)
    own = {DELIVER_MS: str(time_ms), OUT_MS: str(timer_out_ms(time_ms))}
    effect = decode_properties(raw)[EFFECT_NAME]
    encoded = properties_with_effect(encode_properties(properties | own), effect)
    return copy._replace(topic=TIMER_TOPIC, queue_id=0, properties=encoded)


def joined(raw: bytes, more: bytes) -> bytes:
    """Return encoded properties with further ones."""
    return raw + more if not raw or not more or raw.endswith(_END) else raw + _END + more


# Messages that are due together are mostly of few queues.
@lru_cache(_QUEUES_MAX)
def _real_queue_id(topic: str, text: str) -> int | None:
    """Return the number of the queue where a message belongs; None: there is none, or the topic is a system topic."""
    if not topic or topic == HALF_TOPIC or is_system_topic(topic):
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else None

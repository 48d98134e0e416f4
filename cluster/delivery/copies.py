"""The copy of a delayed message in its own topic, which carries the progress of its delivery.

The copy has what RocketMQ's has: body, flags, born time and host, number of redeliveries, and all properties; among
them DELAY, from which consumers see that it was delayed. Its queue is that of the put; where the topic has fewer queues
since, the number is taken modulo their count.

Source: RocketMQ `ScheduleMessageService.messageTimeUp`, `TimerMessageStore.convert`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from commitlog.record.effects import EFFECT_NAME, properties_with_effect, without_effect
from commitlog.record.properties import RawProperties, decode_properties, encode_properties
from commitlog.record.record import decode_host
from commitlog.record.timer_properties import DELIVER_MS, OUT_MS, timer_out_ms
from store.model.message import DELAY, Message
from store.model.topics import HALF_TOPIC, TIMER_TOPIC, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.protocol.topic_config import TopicConfig
    from commitlog.record.copied_records import CopiedRecord


_END: Final = b"\x02"
# Of the number of a queue.
_DIGITS_MAX: Final = 10


class Obstacle(StrEnum):
    """Why a delayed message cannot be delivered; it stays readable in the queue where it waits."""

    UNREADABLE = "unreadable"
    NO_REAL_TOPIC = "no_real_topic"
    UNKNOWN_TOPIC = "unknown_topic"
    ILLEGAL = "illegal"


def delayed_copies(found: Iterable[CopiedRecord], topics: Mapping[str, TopicConfig]) -> list[Message | Obstacle]:
    """Return the copies of delayed messages.

    Args:
        found: their parts, with the effect that they are delivered.
        topics: of the broker. Permissions do not matter: the put was permitted.
    """
    copies: list[Message | Obstacle] = []
    # Messages that are due together are mostly of few queues.
    places: dict[tuple[bytes, bytes], tuple[str, int] | Obstacle] = {}
    for name, body, number, raw, flag, sys_flag, born_timestamp, host, reconsume_times, prepared_offset in found:
        place = places.get((name, number))
        if place is None:
            place = places[name, number] = _place_of(name.decode("utf-8", "replace"), number, topics)
        if isinstance(place, Obstacle):
            copies.append(place)
            continue
        topic, queue_id = place
        properties, born_host = RawProperties(raw), decode_host(host)
        # fmt: off
        copies.append(Message(
            topic, body, queue_id, properties, flag, sys_flag, born_timestamp, born_host, reconsume_times,
            prepared_offset,
        ))
        # fmt: on
    return copies


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


def _place_of(topic: str, queue: bytes, topics: Mapping[str, TopicConfig]) -> tuple[str, int] | Obstacle:
    """Return the queue where a message belongs; an obstacle: there is none, or the topic is a system topic."""
    is_number = queue.isdigit() and len(queue) <= _DIGITS_MAX
    if not topic or topic == HALF_TOPIC or is_system_topic(topic) or not is_number:
        return Obstacle.NO_REAL_TOPIC
    config = topics.get(topic)
    if config is None:
        return Obstacle.UNKNOWN_TOPIC
    return topic, int(queue) % max(config.write_queues, config.read_queues, 1)

"""The copy of a delayed message in its own topic, which carries the progress of its level.

The copy has what RocketMQ's has: body, flags, born time and host, number of redeliveries, and all properties; among
them DELAY, from which consumers see that it was delayed. Its queue is that of the put; where the topic has fewer queues
since, the number is taken modulo their count.

Source: RocketMQ `ScheduleMessageService.messageTimeUp`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from cluster.state.effects import DelayDelivered, encode_effect
from commitlog.record.effects import properties_with_effect
from commitlog.record.properties import decode_properties
from store.model.message import Message
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.protocol.topic_config import TopicConfig
    from commitlog.record.record import Record


class Obstacle(StrEnum):
    """Why a delayed message cannot be delivered; it stays readable in the queue of its level."""

    UNREADABLE = "unreadable"
    NO_REAL_TOPIC = "no_real_topic"
    UNKNOWN_TOPIC = "unknown_topic"
    ILLEGAL = "illegal"


def delayed_copy(record: Record, level: int, unit: int, topics: Mapping[str, TopicConfig]) -> Message | Obstacle:
    """Return the copy of a delayed message.

    Args:
        record: in the queue of its level.
        level: from 1.
        unit: its offset in that queue.
        topics: of the broker. Permissions do not matter: the put was permitted.
    """
    raw = record.properties_raw
    properties = decode_properties(raw)
    name, queue = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    if not name or name == HALF_TOPIC or is_system_topic(name) or not _is_queue_id(queue):
        return Obstacle.NO_REAL_TOPIC
    topic = topics.get(name)
    if topic is None:
        return Obstacle.UNKNOWN_TOPIC
    queues = max(topic.write_queues, topic.read_queues, 1)
    # One object, and no `_replace`: thousands are made in a second.
    return Message(
        name,
        record.body,
        int(queue) % queues,
        properties_with_effect(raw, encode_effect(DelayDelivered(level, unit))),
        record.flag,
        record.sys_flag | CARRIES_EFFECT,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
    )


def _is_queue_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10

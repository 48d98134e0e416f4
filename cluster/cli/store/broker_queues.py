"""The content of the broker's own queues: delayed messages, transactions, dead letters, and so on.

Source: RocketMQ `TopicValidator`, `MixAll`, `TimerMessageStore`, `PopAckConstants`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.model.topics import (
    CHECK_MAX_TIME_TOPIC,
    DELAY_LEVEL_NAMES,
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
)

if TYPE_CHECKING:
    from store.model.message import QueueKey

_OF_TOPIC: Final = {
    HALF_TOPIC: "prepared transactions",
    OP_HALF_TOPIC: "ends of transactions",
    CHECK_MAX_TIME_TOPIC: "transactions given up",
    "rmq_sys_wheel_timer": "messages for a time",
    "RMQ_SYS_TRACE_TOPIC": "message trace",
}
_OF_PREFIX: Final = {
    RETRY_PREFIX: "returned by group ",
    DLQ_PREFIX: "dead letters of group ",
    "rmq_sys_REVIVE_LOG_": "leases of pop consumers, cluster ",
}


def content_of(queue: QueueKey) -> str:
    """Return the content of a queue of the broker, in a few words; empty: messages of a client's topic."""
    topic, queue_id = queue
    if topic == SCHEDULE_TOPIC:
        delay = f", {DELAY_LEVEL_NAMES[queue_id]}" if queue_id < len(DELAY_LEVEL_NAMES) else ""
        return f"delayed, level {queue_id + 1}{delay}"
    for prefix, text in _OF_PREFIX.items():
        if topic.startswith(prefix):
            return text + topic.removeprefix(prefix)
    return _OF_TOPIC.get(topic, "")


def has_delivery_times(queue: QueueKey) -> bool:
    """Return whether a unit of the queue has the time of delivery instead of the hash of a tag."""
    return queue.topic == SCHEDULE_TOPIC

"""Where a message goes that a consumer sends to the retry topic of its group itself. Pure.

Consumers of all messages at once do that when the broker has not taken a failed message back (code 36): with the count
of redeliveries that this one will be. Consumers in order do it when the message has had its last redelivery, with the
count so far. The requested delay distinguishes them: it is 3 levels and the redeliveries so far.

| count | delay level | goes to |
| --- | --- | --- |
| above the maximum | | dead letters |
| the maximum | 3 + count or more: it was delivered that often | dead letters |
| else | | retry topic |

Source: RocketMQ `SendMessageProcessor.handleRetryAndDLQ`, `DefaultMQPushConsumerImpl.sendMessageBack`,
`ConsumeMessageOrderlyService.sendMessageBack`. RocketMQ itself asks whether the group holds a lock of any queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commitlog.record.properties import decode_properties, encode_properties
from commitlog.record.tags_code import delay_level
from store.model.message import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
)
from store.model.topics import TIMER_PREFIX

if TYPE_CHECKING:
    from cluster.protocol.topic_config import GroupConfig

_FIRST_LEVEL: Final = 3
_ORIGINS: Final = {DLQ_ORIGIN_TOPIC: RETRY_TOPIC, DLQ_ORIGIN_MESSAGE_ID: ORIGIN_MESSAGE_ID}


def is_dead(group: GroupConfig, reconsume_times: int, maximum: int | None, properties: bytes) -> bool:
    """Return whether a message becomes a dead letter.

    Args:
        group: of the consumer.
        reconsume_times: as the consumer counts.
        maximum: redeliveries that the consumer allows; None: as many as the group.
        properties: of the message, encoded.
    """
    if group.retry_queues <= 0:
        return True
    if maximum is None:
        maximum = group.retry_max_times
    if reconsume_times != maximum:
        return 0 <= maximum < reconsume_times
    level = delay_level(decode_properties(properties).get(DELAY))
    return level >= _FIRST_LEVEL + reconsume_times


def retried_properties(properties: bytes, *, is_dead_letter: bool) -> bytes:
    """Return the properties of such a message: without its times, and as a dead letter with its origin.

    Raises:
        store.errors.IllegalMessage: they are too large.
    """
    found = {name: value for name, value in decode_properties(properties).items() if not name.startswith(TIMER_PREFIX)}
    if is_dead_letter:
        found.pop(DELAY, None)
        found |= {name: found[source] for name, source in _ORIGINS.items() if source in found}
    return encode_properties(found)

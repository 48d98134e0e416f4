"""Where a returned message goes: a pure function of the group's settings, the message and the request.

| condition, the first that applies | topic | delay level |
| --- | --- | --- |
| requested level below 0 | dead letters | none |
| the group's retry queues are 0 | dead letters | none |
| redeliveries so far are at least the maximum | dead letters | none |
| requested level above 0 | retry topic | the requested one, at most the last |
| requested level 0 | retry topic | that of the group's policy (`cluster.protocol.retry_policy`) |

A maximum below 0 means that there is none. With a maximum of 16 a message is delivered 17 times.

Source: RocketMQ `AbstractSendMessageProcessor.consumerSendMsgBack`; it drops messages of groups without retry queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cluster.protocol.retry_policy import policy_of, retry_level
from store.model.topics import DELAY_LEVELS_MS, DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol.topic_config import GroupConfig


class Destination(NamedTuple):
    """Where a returned message goes.

    Attributes:
        topic: retry topic or dead-letter topic of the group.
        queues: number of queues with which the topic is created.
        level: delay level; 0: without delay, as each dead letter.
    """

    topic: str
    queues: int
    level: int

    @property
    def is_dead(self) -> bool:
        """Whether the message becomes a dead letter."""
        return self.topic.startswith(DLQ_PREFIX)


def destination_of(
    group: GroupConfig,
    reconsume_times: int,
    *,
    maximum: int | None,
    level: int,
    levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> Destination:
    """Return the destination of a returned message.

    Args:
        group: that returns it.
        reconsume_times: redeliveries of the message so far.
        maximum: redeliveries that the request allows; None: as many as the group.
        level: requested delay level; 0: that of the group, below 0: none, a dead letter.
        levels_ms: delay of each delay level.
    """
    if maximum is None:
        maximum = group.retry_max_times
    if level < 0 or group.retry_queues <= 0 or 0 <= maximum <= reconsume_times:
        return Destination(DLQ_PREFIX + group.name, 1, 0)
    if not level:
        level = retry_level(policy_of(group), reconsume_times, levels_ms)
    return Destination(RETRY_PREFIX + group.name, group.retry_queues, min(level, len(levels_ms)))

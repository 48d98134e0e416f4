"""Tags codes: the hash of a message's tags in its consume queue unit, for filtering without reading the message.

The code is Java's hash of the whole TAGS value, 0 without tags. A delayed message, which is in a queue of the topic
SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer, has its delivery time instead. In the second one RocketMQ has the hash,
which its timer does not read.

Source: RocketMQ `MessageExtBrokerInner.tagsString2tagsCode`, `CommitLog.checkMessageAndReturnSize`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from commitlog.record.timer_properties import timer_time_ms
from store.model.java_hash import java_hash
from store.model.message import DELAY, TAGS
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC, TIMER_TOPIC, delivery_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The part of the syntax of Java's `Integer.parseInt` that clients use.
_LEVEL = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_LEVEL_MAX: Final = (1 << 31) - 1


def tags_code(
    topic: str, properties: Mapping[str, str], store_timestamp: int, levels_ms: Sequence[int] = DELAY_LEVELS_MS
) -> int:
    """Return the code of a message: 64 bits, signed.

    Args:
        topic: under which it is stored.
        properties: of the message.
        store_timestamp: of the message.
        levels_ms: the delay of each delay level.
    """
    if topic == TIMER_TOPIC:
        return timer_time_ms(properties)
    tags = properties.get(TAGS)
    code = java_hash(tags) if tags else 0
    if topic != SCHEDULE_TOPIC:
        return code
    return scheduled_tags_code(properties.get(DELAY), store_timestamp, code, levels_ms)


def scheduled_tags_code(level: str | None, store_timestamp: int, code: int, levels_ms: Sequence[int]) -> int:
    """Return the code of a message of SCHEDULE_TOPIC_XXXX: `code` unless `level` (its DELAY) is a delay level.

    RocketMQ treats a record whose DELAY is not a number as corrupt, and stops; here it has no delay.
    """
    number = delay_level(level)
    return delivery_time(store_timestamp, number, levels_ms) if number else code


def delay_level(text: str | None) -> int:
    """Return the delay level in a DELAY property, which may be above the last level; 0: there is none."""
    if text is None or not _LEVEL.fullmatch(text):
        return 0
    level = int(text)
    return level if 0 < level <= _LEVEL_MAX else 0

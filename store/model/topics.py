"""Names of topics and groups, special topics, and the delay levels.

Source: RocketMQ `TopicValidator`, `Validators`, `MixAll`, `MessageStoreConfig.messageDelayLevel`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from store.errors import IllegalMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"

# Represents all topics that a put would create: a broker with that setting registers it.
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
# RocketMQ's topic of messages for any time: all are in its queue 0.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
# Properties of a message in a topic of the broker: where it belongs; and those of messages for a time.
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TIMER_PREFIX: Final = "TIMER_"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
# Clients with message trace write here what happened to each message.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
# The topic of a leader's own entries in the replicated log; clients can neither put to it nor read it.
DLEDGER_TOPIC: Final = "rmq_sys_dledger"
SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

# The longest ordinary topic: its length fits into the signed byte of a V1 record.
TOPIC_LENGTH_MAX: Final = 127
# Retry and dead-letter topics consist of a prefix and a group's name.
RETRY_TOPIC_LENGTH_MAX: Final = 255
GROUP_LENGTH_MAX: Final = 120

# Only these characters: none of them is special in a path, and each is one byte.
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_CHARACTERS: Final = "letters, digits and % | _ -"

_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
# The delay of a message of level 1, 2, … 18, in milliseconds.
DELAY_LEVELS_MS: Final = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _HOUR for hours in (1, 2)),
)
# Levels that a broker may have with a table of its own.
DELAY_LEVELS_MAX: Final = 64
# The same in the syntax of RocketMQ's `messageDelayLevel`.
DELAY_LEVEL_NAMES: Final = (
    "1s",
    "5s",
    "10s",
    "30s",
    "1m",
    "2m",
    "3m",
    "4m",
    "5m",
    "6m",
    "7m",
    "8m",
    "9m",
    "10m",
    "20m",
    "30m",
    "1h",
    "2h",
)


def is_retry_topic(topic: str) -> bool:
    """Return whether `topic` is a retry or dead-letter topic of a group."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_system_topic(topic: str) -> bool:
    """Return whether `topic` belongs to the broker itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_closed_topic(topic: str) -> bool:
    """Return whether clients can neither put to `topic` nor read it: a system topic, except that of message traces.

    Source: RocketMQ `TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET`.
    """
    return topic != TRACE_TOPIC and is_system_topic(topic)


@lru_cache(maxsize=4096)
def check_topic(topic: str) -> None:
    """Raise unless messages may be put to a topic of this name.

    Raises:
        IllegalMessage: it is empty, too long, contains other characters than letters, digits and % | _ -, or is the
            replicated log's own.
    """
    if topic == DLEDGER_TOPIC:
        raise IllegalMessage("topic", "a topic that clients may put to", repr(topic))
    length_max = RETRY_TOPIC_LENGTH_MAX if is_retry_topic(topic) else TOPIC_LENGTH_MAX
    _check_name("topic", topic, length_max)


def is_topic_name(topic: str) -> bool:
    """Return whether `check_topic` accepts this name."""
    try:
        check_topic(topic)
    except IllegalMessage:
        return False
    return True


def is_storable_topic(topic: str) -> bool:
    """Return whether a stored message may have this topic, which names directories, so its length is bounded.

    RocketMQ's own store accepts ordinary topics of more than 127 characters, so there are stores with such topics.
    """
    return len(topic) <= RETRY_TOPIC_LENGTH_MAX and _NAME.fullmatch(topic) is not None


def check_stored_topic(topic: str) -> None:
    """Raise unless stored messages may have this topic; see `is_storable_topic`.

    Raises:
        IllegalMessage: it is empty, too long, contains other characters than letters, digits and % | _ -, or is the
            replicated log's own.
    """
    if topic == DLEDGER_TOPIC:
        check_topic(topic)
    _check_name("topic", topic, RETRY_TOPIC_LENGTH_MAX)


def check_group(group: str) -> None:
    """Raise unless `group` is the name of a group.

    Raises:
        IllegalMessage: it is empty, too long, or contains other characters than letters, digits and % | _ -.
    """
    _check_name("group", group, GROUP_LENGTH_MAX)


def _check_name(what: str, name: str, length_max: int) -> None:
    if not name:
        raise IllegalMessage(what, "a name", "none")
    if len(name) > length_max:
        raise IllegalMessage(what, f"at most {length_max} characters", f"{len(name)}: {name[:40]!r}…")
    if not _NAME.fullmatch(name):
        raise IllegalMessage(what, _CHARACTERS, repr(name))


def delivery_time(store_timestamp: int, level: int, levels_ms: Sequence[int] = DELAY_LEVELS_MS) -> int:
    """Return the delivery time for a delay level, in milliseconds since 1970; levels above the last count as the last.

    Args:
        store_timestamp: when it was appended.
        level: from 1.
        levels_ms: the delay of each level.

    Source: RocketMQ `DefaultMessageStore.computeDeliverTimestamp`, `CommitLog.checkMessageAndReturnSize`.
    """
    assert level >= 1, level
    return store_timestamp + levels_ms[min(level, len(levels_ms)) - 1]

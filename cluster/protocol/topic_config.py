"""Settings of topics and of consumer groups, with RocketMQ's names, defaults and rules.

Source: RocketMQ `TopicConfig`, `SubscriptionGroupConfig`, `PermName`, `TopicValidator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from store.errors import IllegalMessage
from store.model.topics import TOPIC_LENGTH_MAX, check_group, check_stored_topic, is_topic_name

PERMISSION_PRIORITY: Final = 8
PERMISSION_READ: Final = 4
PERMISSION_WRITE: Final = 2
PERMISSION_INHERIT: Final = 1
_PERMISSION_MAX: Final = PERMISSION_PRIORITY | PERMISSION_READ | PERMISSION_WRITE | PERMISSION_INHERIT

QUEUES_MAX: Final = 65_536
DEFAULT_TOPIC_QUEUES: Final = 8
RETRIES_MAX: Final = 1_000
_INT_MAX: Final = (1 << 31) - 1
ATTRIBUTES_MAX: Final = 64
ATTRIBUTE_LENGTH_MAX: Final = 1_024

# Ordered by name, without duplicates.
Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic of a broker.

    Attributes:
        name: 1 to 255 letters, digits and % | _ -. A topic whose name is too long for puts (`store.model.topics`) is
            read-only.
        read_queues: queues 0 to n - 1 are readable.
        write_queues: queues 0 to n - 1 are writable.
        permission: PERMISSION_… bits.
        is_ordered: whether queues are chosen only by key.
        sys_flag: RocketMQ's `topicSysFlag`.
        attributes: attributes of RocketMQ, such as `message.type`.
    """

    name: str
    read_queues: int = DEFAULT_TOPIC_QUEUES
    write_queues: int = DEFAULT_TOPIC_QUEUES
    permission: int = PERMISSION_READ | PERMISSION_WRITE
    is_ordered: bool = False
    sys_flag: int = 0
    attributes: Attributes = ()

    @property
    def is_readable(self) -> bool:
        """Whether messages may be read."""
        return bool(self.permission & PERMISSION_READ)

    @property
    def is_writable(self) -> bool:
        """Whether messages may be put."""
        return bool(self.permission & PERMISSION_WRITE)

    def check(self) -> None:
        """Raise unless the settings are valid.

        Raises:
            IllegalMessage: a setting is invalid.
        """
        check_stored_topic(self.name)
        what = f"of topic {self.name}"
        if self.is_writable and not is_topic_name(self.name):
            expected = f"no write permission: only names of at most {TOPIC_LENGTH_MAX} characters accept messages"
            raise IllegalMessage(f"permission {what}", expected, f"{self.permission}, a name of {len(self.name)}")
        _check_range(f"read queues {what}", self.read_queues, 0, QUEUES_MAX)
        _check_range(f"write queues {what}", self.write_queues, 0, QUEUES_MAX)
        _check_range(f"permission {what}", self.permission, 0, _PERMISSION_MAX)
        _check_range(f"sys_flag {what}", self.sys_flag, 0, _INT_MAX)
        _check_attributes(what, self.attributes)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One consumer group.

    Attributes:
        name: 1 to 120 letters, digits and % | _ -.
        is_consume_enabled: whether its consumers may read.
        is_broadcast_enabled: whether broadcast mode is permitted.
        is_from_min_enabled: whether consumers without an offset begin with the first message, not after the last.
        is_orderly: whether the messages of a queue are processed one at a time, in order.
        retry_queues: number of queues of its retry topic.
        retry_max_times: attempts before a message becomes a dead letter.
        consume_timeout_minutes: time limit for processing one message.
        sys_flag: RocketMQ's `groupSysFlag`.
        attributes: attributes of RocketMQ.
    """

    name: str
    is_consume_enabled: bool = True
    is_broadcast_enabled: bool = True
    is_from_min_enabled: bool = True
    is_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    consume_timeout_minutes: int = 15
    sys_flag: int = 0
    attributes: Attributes = ()

    def check(self) -> None:
        """Raise unless the settings are valid.

        Raises:
            IllegalMessage: a setting is invalid.
        """
        check_group(self.name)
        what = f"of group {self.name}"
        _check_range(f"retry queues {what}", self.retry_queues, 0, QUEUES_MAX)
        _check_range(f"retry_max_times {what}", self.retry_max_times, -1, RETRIES_MAX)
        _check_range(f"consume_timeout_minutes {what}", self.consume_timeout_minutes, 0, _INT_MAX)
        _check_range(f"sys_flag {what}", self.sys_flag, 0, _INT_MAX)
        _check_attributes(what, self.attributes)


def _check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise IllegalMessage(what, f"{low} to {high}", str(value))


def _check_attributes(what: str, attributes: Attributes) -> None:
    if len(attributes) > ATTRIBUTES_MAX:
        raise IllegalMessage(f"attributes {what}", f"at most {ATTRIBUTES_MAX}", str(len(attributes)))
    names = [name for name, _ in attributes]
    if names != sorted(set(names)):
        raise IllegalMessage(f"attributes {what}", "each name once, in order", repr(names)[:200])
    for name, value in attributes:
        if not name or len(name) > ATTRIBUTE_LENGTH_MAX or len(value) > ATTRIBUTE_LENGTH_MAX:
            expected = f"names and values of at most {ATTRIBUTE_LENGTH_MAX} characters"
            raise IllegalMessage(f"attributes {what}", expected, f"{name[:80]!r}: {value[:80]!r}")
        if not (name + value).isprintable():
            raise IllegalMessage(f"attributes {what}", "printable text", f"{name!r}: {value!r}")

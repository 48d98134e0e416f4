"""The commands that change broker state, and their encoding as bodies of committed entries.

| … | its fields, encoded by `cluster.state.compact_bytes`, in the order of the classes; kinds of its parts are in |
| | `access_commands`, `waiting_commands` and `pop.ops` |

The encoding of a command is unique: attributes and offsets are ordered. An unknown version or kind stops the node,
because replicas would diverge if it were skipped; a newer program must write only commands that all nodes of its group
know.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.protocol.topic_config import QUEUES_MAX, GroupConfig, TopicConfig
from cluster.state.access_commands import ACCESS_READERS, ACCESS_WRITERS, AccessCommand, check_access_command
from cluster.state.compact_bytes import Reader, Writer
from cluster.state.features import FEATURE_LEVEL, check_level
from cluster.state.old.commands import OLD_READERS, OLD_WRITERS, OldCommand, check_old_command
from cluster.state.order.owners import OwnQueues, check_own_queues, read_own_queues, write_own_queues
from cluster.state.pop.grace import LeaseGrace, check_lease_grace, read_lease_grace, write_lease_grace
from cluster.state.pop.ops import PopOps, check_pop_ops, read_pop_ops, write_pop_ops
from cluster.state.waiting_commands import (
    OFFSET_MAX,
    WAITING_READERS,
    WAITING_WRITERS,
    WaitingCommand,
    check_offset,
    check_waiting_command,
)
from store.errors import IllegalMessage
from store.model.topics import check_group, is_storable_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

VERSION: Final = 1
OFFSETS_PER_COMMAND_MAX: Final = 4_096
_HEAD_SIZE: Final = 2


class QueueOffset(NamedTuple):
    """The committed offset of a group in a queue.

    Attributes:
        topic: topic of the queue.
        queue_id: number of the queue.
        offset: offset of the group's next message.
        reset_count: reset count of the offset that the sender knows.
    """

    topic: str
    queue_id: int
    offset: int
    reset_count: int = 0


@dataclass(frozen=True, slots=True)
class SetTopic:
    """Create a topic or change it; with `is_new`, only create it."""

    topic: TopicConfig
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic, and the offsets of groups in it."""

    name: str


@dataclass(frozen=True, slots=True)
class SetGroup:
    """Create a group or change it; with `is_new`, only create it."""

    group: GroupConfig
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete a group, and its offsets."""

    name: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commit offsets of a group. An offset only increases, and only if it was not reset since."""

    group: str
    offsets: tuple[QueueOffset, ...]


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Set offsets of a group, forwards or backwards. Those reset since are kept, so the command is idempotent."""

    group: str
    offsets: tuple[QueueOffset, ...]


@dataclass(frozen=True, slots=True)
class FinishImport:
    """Mark the import of an old store as complete."""


@dataclass(frozen=True, slots=True)
class SetFeatureLevel:
    """Permit the commands and effects of a feature level (`cluster.state.features`); it only grows."""

    level: int


Command = (
    SetTopic
    | DeleteTopic
    | SetGroup
    | DeleteGroup
    | CommitOffsets
    | ResetOffsets
    | FinishImport
    | SetFeatureLevel
    | WaitingCommand
    | PopOps
    | OldCommand
    | LeaseGrace
    | OwnQueues
    | AccessCommand
)


# ------------------------------------------------------------------------------------------------------------- checks


def check_command(command: Command) -> None:
    """Raise unless a command is valid; every valid command can be encoded and decoded.

    Raises:
        IllegalMessage: a field is invalid.
    """
    if isinstance(command, AccessCommand):
        check_access_command(command)
        return
    if isinstance(command, WaitingCommand):
        check_waiting_command(command)
        return
    if isinstance(command, OldCommand):
        check_old_command(command)
        return
    match command:
        case SetTopic(topic):
            topic.check()
        case SetGroup(group):
            group.check()
        case DeleteTopic(name):
            _check_topic_name(name)
        case DeleteGroup(name):
            check_group(name)
        case CommitOffsets(name, offsets) | ResetOffsets(name, offsets):
            check_group(name)
            _check_offsets(offsets)
        case SetFeatureLevel(level):
            check_level(level)
        case PopOps():
            check_pop_ops(command)
        case LeaseGrace():
            check_lease_grace(command)
        case OwnQueues():
            check_own_queues(command)


def _check_offsets(offsets: tuple[QueueOffset, ...]) -> None:
    if not 1 <= len(offsets) <= OFFSETS_PER_COMMAND_MAX:
        raise IllegalMessage("offsets", f"1 to {OFFSETS_PER_COMMAND_MAX}", str(len(offsets)))
    if len({(each.topic, each.queue_id) for each in offsets}) < len(offsets):
        raise IllegalMessage("offsets", "each queue once", "a queue twice")
    for each in offsets:
        _check_topic_name(each.topic)
        if not 0 <= each.queue_id < QUEUES_MAX:
            raise IllegalMessage("queue", f"0 to {QUEUES_MAX - 1}", str(each.queue_id))
        check_offset(each.offset)
        if not 0 <= each.reset_count <= OFFSET_MAX:
            raise IllegalMessage("reset_count", "at least 0", str(each.reset_count))


def _check_topic_name(name: str) -> None:
    # Longer than the limit for new topics, because a Java broker may have stored such a name.
    if not is_storable_topic(name):
        raise IllegalMessage("topic", "a name of 1 to 255 letters, digits and % | _ -", repr(name[:80]))


# -------------------------------------------------------------------------------------------------------------- bytes


def encode_command(command: Command) -> bytes:
    """Encode a command.

    Raises:
        IllegalMessage: a name or a number of the command is out of its range.
    """
    check_command(command)
    kind, write = _WRITERS[type(command)]
    writer = Writer(bytes((VERSION, kind)))
    write(writer, command)
    return bytes(writer.data)


def decode_command(body: bytes) -> Command:
    """Decode a command, without `check_command`.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is not a command, or one of a newer version.
    """
    reader = Reader(body, "a change of broker state", _HEAD_SIZE)
    if len(body) < _HEAD_SIZE or body[0] != VERSION or body[1] not in _READERS:
        expected = f"version {VERSION} and a kind of 1 to {max(_READERS)}"
        raise reader.fault(expected, body[:_HEAD_SIZE].hex(" ") or "nothing", 0)
    command = _READERS[body[1]](reader)
    reader.end()
    return command


def write_topic(writer: Writer, topic: TopicConfig) -> None:
    """Append a topic."""
    writer.text(topic.name)
    for value in (topic.read_queues, topic.write_queues, topic.permission, topic.is_ordered, topic.sys_flag):
        writer.number(value)
    writer.pairs(topic.attributes)


def read_topic(reader: Reader) -> TopicConfig:
    """Read a topic."""
    name, number = reader.text(), reader.number
    return TopicConfig(name, number(), number(), number(), bool(number()), number(), reader.pairs())


def write_group(writer: Writer, group: GroupConfig) -> None:
    """Append a group."""
    writer.text(group.name)
    for flag in (group.is_consume_enabled, group.is_broadcast_enabled, group.is_from_min_enabled, group.is_orderly):
        writer.number(flag)
    # Plus one, because the minimum is -1 (no limit).
    for value in (group.retry_queues, group.retry_max_times + 1, group.consume_timeout_minutes, group.sys_flag):
        writer.number(value)
    writer.pairs(group.attributes)


def read_group(reader: Reader) -> GroupConfig:
    """Read a group."""
    name, number = reader.text(), reader.number
    return GroupConfig(
        name,
        is_consume_enabled=bool(number()),
        is_broadcast_enabled=bool(number()),
        is_from_min_enabled=bool(number()),
        is_orderly=bool(number()),
        retry_queues=number(),
        retry_max_times=number() - 1,
        consume_timeout_minutes=number(),
        sys_flag=number(),
        attributes=reader.pairs(),
    )


def write_offsets(writer: Writer, offsets: Iterable[QueueOffset]) -> None:
    """Append offsets, ordered by topic and queue."""
    by_topic = [(topic, list(rows)) for topic, rows in groupby(sorted(offsets), key=lambda each: each.topic)]
    writer.number(len(by_topic))
    for topic, rows in by_topic:
        write_topic_offsets(writer, topic, rows)


def write_topic_offsets(writer: Writer, topic: str, offsets: Iterable[QueueOffset]) -> None:
    """Append offsets of one topic, ordered by queue."""
    rows = sorted(offsets)
    writer.text(topic)
    writer.number(len(rows))
    for row in rows:
        writer.number(row.queue_id)
        writer.number(row.offset)
        writer.number(row.reset_count)


def read_offsets(reader: Reader) -> Iterator[QueueOffset]:
    """Read offsets lazily."""
    number = reader.number
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            yield QueueOffset(topic, number(), number(), number())


def _write_new_topic(writer: Writer, command: SetTopic) -> None:
    writer.number(command.is_new)
    write_topic(writer, command.topic)


def _write_new_group(writer: Writer, command: SetGroup) -> None:
    writer.number(command.is_new)
    write_group(writer, command.group)


def _write_group_offsets(writer: Writer, command: CommitOffsets | ResetOffsets) -> None:
    writer.text(command.group)
    write_offsets(writer, command.offsets)


def _read_set_topic(reader: Reader) -> SetTopic:
    is_new = bool(reader.number())
    return SetTopic(read_topic(reader), is_new)


def _read_set_group(reader: Reader) -> SetGroup:
    is_new = bool(reader.number())
    return SetGroup(read_group(reader), is_new)


_WRITERS: Final[dict[type[Any], tuple[int, Callable[[Writer, Any], None]]]] = {
    SetTopic: (1, _write_new_topic),
    DeleteTopic: (2, lambda writer, command: writer.text(command.name)),
    SetGroup: (3, _write_new_group),
    DeleteGroup: (4, lambda writer, command: writer.text(command.name)),
    CommitOffsets: (5, _write_group_offsets),
    ResetOffsets: (6, _write_group_offsets),
    FinishImport: (8, lambda _writer, _command: None),
    **ACCESS_WRITERS,
    SetFeatureLevel: (16, lambda writer, command: writer.number(command.level)),
    **WAITING_WRITERS,
    PopOps: (20, write_pop_ops),
    **OLD_WRITERS,
    LeaseGrace: (21, write_lease_grace),
    OwnQueues: (23, write_own_queues),
}
_READERS: Final[dict[int, Callable[[Reader], Command]]] = {
    1: _read_set_topic,
    2: lambda reader: DeleteTopic(reader.text()),
    3: _read_set_group,
    4: lambda reader: DeleteGroup(reader.text()),
    5: lambda reader: CommitOffsets(reader.text(), tuple(read_offsets(reader))),
    6: lambda reader: ResetOffsets(reader.text(), tuple(read_offsets(reader))),
    8: lambda _: FinishImport(),
    **ACCESS_READERS,
    16: lambda reader: SetFeatureLevel(reader.number_up_to(FEATURE_LEVEL, "feature level", 1)),
    **WAITING_READERS,
    20: read_pop_ops,
    **OLD_READERS,
    21: read_lease_grace,
    23: read_own_queues,
}

"""Imports the configuration of a RocketMQ broker: `config/*.json` of a store directory.

| file | imported content |
| --- | --- |
| topics.json | topics: queues, permission, order, attributes |
| subscriptionGroup.json | consumer groups |
| consumerOffset.json | committed offsets of groups |
| delayOffset.json | delivered offsets of the queues of delay levels |

If a file is missing, empty or torn, its `.bak` is read instead, as by the Java program, with a note; if neither can be
read, nothing is imported. Well-formed but invalid content is an error, because an older copy would not be better.
Unknown members are ignored, because they differ between versions of RocketMQ.

Source: RocketMQ `ConfigManager`, `TopicConfigManager`, `SubscriptionGroupManager`, `ConsumerOffsetManager`,
`ScheduleMessageService`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.protocol.retry_policy import POLICY_ATTRIBUTE, parse_policy
from cluster.protocol.topic_config import PERMISSION_WRITE, GroupConfig, TopicConfig
from cluster.state.commands import (
    OFFSETS_PER_COMMAND_MAX,
    Command,
    QueueOffset,
    ResetOffsets,
    SetGroup,
    SetTopic,
    check_command,
)
from cluster.state.fastjson import NotJson, parse_fastjson
from cluster.state.waiting_commands import SetDelayOffsets
from store.errors import IllegalMessage, StoreError
from store.model.topics import SCHEDULE_TOPIC, is_storable_topic, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIG_FOLDER: Final = "config"
_SIZE_BYTES_MAX: Final = 256 << 20
_SEPARATOR: Final = "@"
# Names and default values of a policy, in the order of our text.
_EXPONENTIAL_DEFAULTS: Final = (("initial", 5_000), ("max", 7_200_000), ("multiplier", 2))
Object = dict[str, Any]


class UnreadableConfig(StoreError):
    """A file of RocketMQ's configuration cannot be imported. Nothing was changed.

    Attributes:
        path: the file.
        position: line and column, or the path of member names to the value.
    """

    def __init__(self, path: Path | str, position: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: {position}: expected {expected}, found {found}. Nothing was imported; correct the file, restore "
            "it from a backup, or move it away to start without its content"
        )
        self.path = str(path)
        self.position = position


@dataclass(slots=True)
class ImportedConfig:
    """The imported content.

    Attributes:
        topics: topics in the order of the file.
        groups: groups of the file, then those that only have offsets, with default settings.
        offsets: offsets by group.
        delay_offsets: pairs of level and offset.
        notes: notes for the operator: files read from their `.bak`, omitted values.
    """

    topics: list[TopicConfig] = field(default_factory=list)
    groups: list[GroupConfig] = field(default_factory=list)
    offsets: dict[str, list[QueueOffset]] = field(default_factory=dict)
    delay_offsets: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def commands(self) -> Iterator[Command]:
        """Yield the idempotent commands that create this configuration in an empty state."""
        yield from map(SetTopic, self.topics)
        yield from map(SetGroup, self.groups)
        for group, offsets in self.offsets.items():
            for begin in range(0, len(offsets), OFFSETS_PER_COMMAND_MAX):
                yield ResetOffsets(group, tuple(offsets[begin : begin + OFFSETS_PER_COMMAND_MAX]))
        if self.delay_offsets:
            yield SetDelayOffsets(tuple(self.delay_offsets))


def import_config(store: Path) -> ImportedConfig:
    """Read the configuration in a store directory, without changing it.

    Args:
        store: the store directory; without a folder `config` the result is empty.

    Raises:
        UnreadableConfig: nothing can be imported.
    """
    found = ImportedConfig()
    folder = store / CONFIG_FOLDER
    for name, take in _FILES.items():
        read = _read(folder / name, found.notes)
        if read is not None:
            path, content = read
            take(found, _Value(path, "", content))
    known = {group.name for group in found.groups}
    for name in found.offsets:
        if name not in known:
            found.notes.append(f"group {name} has offsets but no settings: it gets default settings")
            found.groups.append(GroupConfig(name))
    return found


def _read(path: Path, notes: list[str]) -> tuple[Path, Object] | None:
    """Return a file's content, or that of its `.bak`; None if both are missing."""
    spare = path.with_name(path.name + ".bak")
    try:
        content = _parse(path)
    except UnreadableConfig as error:
        try:
            content = _parse(spare)
        except UnreadableConfig:
            content = None
        if content is None:
            raise
        notes.append(f"{error.path} was unreadable ({error.position}): {spare.name} was read instead")
        return spare, content
    if content is not None:
        return path, content
    content = _parse(spare)
    if content is None:
        if path.exists() or spare.exists():
            raise UnreadableConfig(path, "line 1, column 1", "a JSON object", "an empty file, and no .bak")
        return None
    notes.append(f"{path} is {'empty' if path.exists() else 'missing'}: {spare.name} was read instead")
    return spare, content


def _parse(path: Path) -> Object | None:
    """Return the object in a file; None if the file is missing or empty."""
    try:
        size = path.stat().st_size
        if size > _SIZE_BYTES_MAX:
            raise UnreadableConfig(path, "size", f"at most {_SIZE_BYTES_MAX} bytes", str(size))
        text = path.read_text("utf-8")
        if not text.strip():
            return None
        content = parse_fastjson(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableConfig(path, "line 1", "a readable file", str(error.strerror)) from error
    except UnicodeDecodeError as error:
        raise UnreadableConfig(path, f"byte {error.start}", "UTF-8", error.reason) from error
    except NotJson as error:
        where = f"line {error.fault.line}, column {error.fault.column}"
        raise UnreadableConfig(path, where, error.fault.expected, error.fault.found) from error
    if not isinstance(content, dict):
        raise UnreadableConfig(path, "line 1, column 1", "a JSON object", type(content).__name__)
    return content


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a file, and its position."""

    path: Path
    position: str
    content: Any

    def fault(self, expected: str, found: str) -> UnreadableConfig:
        return UnreadableConfig(self.path, self.position or "top", expected, found)

    def members(self) -> Iterator[tuple[str, _Value]]:
        """Yield name and value of each member; nothing for null."""
        if self.content is None:
            return
        if not isinstance(self.content, dict):
            raise self.fault("an object", repr(self.content)[:80])
        for name, content in self.content.items():
            yield name, _Value(self.path, f"{self.position}.{name}".lstrip("."), content)

    def get(self, name: str) -> _Value:
        return dict(self.members()).get(name, _Value(self.path, f"{self.position}.{name}".lstrip("."), None))

    def number(self, default: int) -> int:
        if self.content is None:
            return default
        if not isinstance(self.content, int) or isinstance(self.content, bool):
            raise self.fault("a whole number", repr(self.content)[:80])
        return self.content

    def boolean(self, *, default: bool) -> bool:
        if self.content is None:
            return default
        if not isinstance(self.content, bool):
            raise self.fault("true or false", repr(self.content)[:80])
        return self.content

    def attributes(self) -> tuple[tuple[str, str], ...]:
        pairs = {}
        for name, value in self.members():
            if not isinstance(value.content, str):
                raise self.fault(f"a text as {name}", repr(value.content)[:80])
            # Requests to change attributes name one as `+message.type`; a file may have that form.
            pairs[name.removeprefix("+")] = value.content
        return tuple(sorted(pairs.items()))

    def checked(self, command: Command) -> None:
        """Raise unless a command is valid."""
        try:
            check_command(command)
        except IllegalMessage as error:
            raise self.fault(f"{error.field}: {error.expected}", error.found) from error


def _take_topics(found: ImportedConfig, top: _Value) -> None:
    defaults = TopicConfig("-")
    for name, value in top.get("topicConfigTable").members():
        permission = value.get("perm").number(defaults.permission)
        if permission & PERMISSION_WRITE and is_storable_topic(name) and not is_topic_name(name):
            found.notes.append(f"{top.path}: the name of topic {name} is too long for puts: it is read-only")
            permission &= ~PERMISSION_WRITE
        topic = TopicConfig(
            name,
            value.get("readQueueNums").number(16),
            value.get("writeQueueNums").number(16),
            permission,
            value.get("order").boolean(default=defaults.is_ordered),
            value.get("topicSysFlag").number(defaults.sys_flag),
            value.get("attributes").attributes(),
        )
        value.checked(SetTopic(topic))
        found.topics.append(topic)


def _take_groups(found: ImportedConfig, top: _Value) -> None:
    for name, value in top.get("subscriptionGroupTable").members():
        group = GroupConfig(
            name,
            is_consume_enabled=value.get("consumeEnable").boolean(default=True),
            is_broadcast_enabled=value.get("consumeBroadcastEnable").boolean(default=True),
            is_from_min_enabled=value.get("consumeFromMinEnable").boolean(default=True),
            is_orderly=value.get("consumeMessageOrderly").boolean(default=False),
            retry_queues=value.get("retryQueueNums").number(1),
            retry_max_times=value.get("retryMaxTimes").number(16),
            consume_timeout_minutes=value.get("consumeTimeoutMinute").number(15),
            sys_flag=value.get("groupSysFlag").number(0),
            attributes=_group_attributes(found, value),
        )
        value.checked(SetGroup(group))
        found.groups.append(group)
    if top.get("forbiddenTable").content:
        found.notes.append(f"{top.path}: forbiddenTable is ignored: groups may read all topics")


def _group_attributes(found: ImportedConfig, group: _Value) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a group, with its retry policy (`cluster.protocol.retry_policy`), if it has one."""
    attributes, policy = dict(group.get("attributes").attributes()), group.get("groupRetryPolicy")
    if policy.get("type").content == "EXPONENTIAL":
        own = policy.get("exponentialRetryPolicy")
        numbers = [own.get(name).number(default) for name, default in _EXPONENTIAL_DEFAULTS]
        text = f"exponential:{','.join(map(str, numbers))}"
    else:
        delays = policy.get("customizedRetryPolicy").get("next").content
        # Without a list the delays are those of the delay levels.
        if not isinstance(delays, list) or not delays:
            return tuple(sorted(attributes.items()))
        text = f"customized:{','.join(map(str, delays))}"
    try:
        parse_policy(text)
    except IllegalMessage as error:
        found.notes.append(f"{policy.path}: {policy.position} is ignored: {error}")
    else:
        attributes[POLICY_ATTRIBUTE] = text
    return tuple(sorted(attributes.items()))


def _take_offsets(found: ImportedConfig, top: _Value) -> None:
    for name, queues in top.get("offsetTable").members():
        topic, separator, group = name.partition(_SEPARATOR)
        if not separator or _SEPARATOR in group:
            raise queues.fault("topic@group", repr(name))
        for queue, value in queues.members():
            offset = value.number(-1)
            if offset < 0:
                found.notes.append(f"{top.path}: {value.position} is {offset} and ignored: nothing was consumed")
                continue
            row = QueueOffset(topic, _whole(value, queue), offset)
            value.checked(ResetOffsets(group, (row,)))
            found.offsets.setdefault(group, []).append(row)


def delays_within_queues(command: Command, max_offset: Callable[[str, int], int]) -> Command:
    """Return an imported command with no delay offset after the end of its queue.

    RocketMQ writes the file every ten seconds, whatever became of the queues. The level would wait until its queue has
    as many units, and pass over them (apache/rocketmq#1869).
    """
    if not isinstance(command, SetDelayOffsets):
        return command
    offsets = ((level, min(offset, max_offset(SCHEDULE_TOPIC, level - 1))) for level, offset in command.offsets)
    return SetDelayOffsets(tuple(offsets))


def _take_delays(found: ImportedConfig, top: _Value) -> None:
    for level, value in top.get("offsetTable").members():
        pair = _whole(value, level), value.number(0)
        value.checked(SetDelayOffsets((pair,)))
        found.delay_offsets.append(pair)


def _whole(value: _Value, name: str) -> int:
    if not name.isascii() or not name.isdigit():
        raise value.fault("a whole number as name", repr(name))
    return int(name)


_FILES: Final[dict[str, Callable[[ImportedConfig, _Value], None]]] = {
    "topics.json": _take_topics,
    "subscriptionGroup.json": _take_groups,
    "consumerOffset.json": _take_offsets,
    "delayOffset.json": _take_delays,
}

"""The encoding of broker state in snapshots; equal states have equal bytes.

| field | encoding (`cluster.state.compact_bytes`) |
| --- | --- |
| magic | 4 bytes, `DLBS` |
| version | a number: 5; without parts 4; at feature level 0: 3 or (no access control) 2; 1 is read, too |
| number of changes of topics | a number |
| topics, in order of their names | a count; each as in a command |
| groups, in order of their names | a count; each as in a command |
| offsets, in order of the groups' names | a count of groups; name and offsets of each, as in a command |
| offsets of delay levels | as in a command |
| whether old state was imported | a number: 1 if it was; from version 2 on |
| access control | `cluster.state.access_state.write_access`; from version 3 on |
| feature level | a number; from version 4 on |
| log offset up to which effects are applied | a number; from version 4 on; 0 in a group |
| parts that are not empty (`cluster.state.parts`) | a count; number and content of each; from version 5 on |

The storage of a snapshot checks that its bytes are unchanged (`dledger.storage.snapshot_file`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.state.access_state import AccessState, write_access
from cluster.state.commands import (
    read_group,
    read_offsets,
    read_topic,
    write_group,
    write_topic,
    write_topic_offsets,
)
from cluster.state.compact_bytes import Reader, Writer
from cluster.state.features import FEATURE_LEVEL
from cluster.state.offsets import CommittedOffsets, FrozenOffsets
from cluster.state.old.delay_table import DelayTable
from cluster.state.order.owners import QueueOwners
from cluster.state.order.part import OrderPart
from cluster.state.pop.state import PopState
from cluster.state.returned_messages import ReturnedMessages
from cluster.state.timers import DoneTimers
from cluster.state.transactions import TransactionTable
from cluster.state.waiting_commands import read_delays, write_delays

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from cluster.protocol.topic_config import GroupConfig, TopicConfig
    from cluster.state.access_state import AccessContent
    from cluster.state.parts import FrozenPart, MovablePart, StatePart

_MAGIC: Final = b"DLBS"
_VERSION: Final = 5
_VERSION_WITHOUT_PARTS: Final = 4
_VERSION_WITHOUT_FEATURES: Final = 3
_VERSION_WITHOUT_ACCESS: Final = 2
_VERSION_WITHOUT_IMPORT: Final = 1
_CHUNK_SIZE_BYTES: Final = 64 << 10


@dataclass(slots=True)
class Content:
    """The state without the offsets.

    Attributes:
        topics: topics by name.
        groups: consumer groups by name.
        delay_offsets: delivered offsets by delay level.
        topics_version: number of changes of topics.
        is_imported: whether the state of the old store was imported.
        access: users, roles, tokens and keys; its access keys are part 7.
        feature_level: of the group (`cluster.state.features`).
        effects_offset: log offset up to which a standalone broker has applied the effects of records; 0 in a group,
            where the applied index of the snapshot says so.
        timers: which messages for a time are done.
        returned: the latest returned messages.
        transactions: open ones, and the last that ended.
        pop: messages in flight of pop consumption; part 4; their message groups are in part 5.
        owners: which consumer holds the lock of a queue that is consumed in order; part 5.
        delay_table: delays of the delay levels; part 6.
    """

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    delay_offsets: dict[int, int] = field(default_factory=dict)
    topics_version: int = 0
    is_imported: bool = False
    access: AccessState = field(default_factory=AccessState)
    feature_level: int = 0
    effects_offset: int = 0
    timers: DoneTimers = field(default_factory=DoneTimers)
    returned: ReturnedMessages = field(default_factory=ReturnedMessages)
    transactions: TransactionTable = field(default_factory=TransactionTable)
    pop: PopState = field(default_factory=PopState)
    owners: QueueOwners = field(default_factory=QueueOwners)
    delay_table: DelayTable = field(default_factory=DelayTable)

    @property
    def parts(self) -> dict[int, StatePart]:
        """The parts by their numbers, in ascending order."""
        return {
            1: self.timers,
            2: self.returned,
            3: self.transactions,
            4: self.pop,
            5: OrderPart(self.pop, self.owners),
            6: self.delay_table,
            7: self.access.access_keys,
        }

    @property
    def movable_parts(self) -> dict[int, MovablePart]:
        """The parts that a group takes over from a standalone broker as they are."""
        return {2: self.returned, 3: self.transactions, 4: self.pop, 6: self.delay_table}

    def frozen(self) -> FrozenContent:
        """Return a copy that later changes do not affect; the (immutable) values are shared."""
        return FrozenContent(
            dict(self.topics),
            dict(self.groups),
            dict(self.delay_offsets),
            self.topics_version,
            self.is_imported,
            self.access.content(),
            self.feature_level,
            self.effects_offset,
            tuple((number, part.frozen()) for number, part in self.parts.items() if not part.is_empty),
        )


@dataclass(frozen=True, slots=True)
class FrozenContent:
    """An immutable copy of a `Content`, with the same attributes; of the parts, those that are not empty."""

    topics: Mapping[str, TopicConfig]
    groups: Mapping[str, GroupConfig]
    delay_offsets: Mapping[int, int]
    topics_version: int
    is_imported: bool
    access: AccessContent
    feature_level: int
    effects_offset: int
    parts: tuple[tuple[int, FrozenPart], ...]


def encode_snapshot(content: FrozenContent, offsets: FrozenOffsets) -> Iterator[bytes]:
    """Encode a state, in chunks of about 64 KiB."""
    writer = Writer(_MAGIC)
    for _ in _write(writer, content, offsets):
        if len(writer.data) >= _CHUNK_SIZE_BYTES:
            yield bytes(writer.data)
            writer.data.clear()
    yield bytes(writer.data)


def _write(writer: Writer, content: FrozenContent, offsets: FrozenOffsets) -> Iterator[None]:
    """Write the state in small steps; yield after each."""
    # A group that has used neither can return to an older program, which does not read them.
    has_level, has_access = content.feature_level > 0, content.access.version > 0
    if has_level:
        version = _VERSION if content.parts else _VERSION_WITHOUT_PARTS
    else:
        version = _VERSION_WITHOUT_FEATURES if has_access else _VERSION_WITHOUT_ACCESS
    writer.number(version)
    writer.number(content.topics_version)
    writer.number(len(content.topics))
    for _, topic in sorted(content.topics.items()):
        write_topic(writer, topic)
        yield
    writer.number(len(content.groups))
    for _, group in sorted(content.groups.items()):
        write_group(writer, group)
        yield
    groups = list(offsets.groups())
    writer.number(len(groups))
    for name, parts in groups:
        writer.text(name)
        writer.number(len(parts))
        for topic_name, rows in parts:
            write_topic_offsets(writer, topic_name, rows.values())
            yield
    write_delays(writer, content.delay_offsets.items())
    writer.number(content.is_imported)
    if version >= _VERSION_WITHOUT_FEATURES:
        yield from write_access(writer, content.access)
    if version >= _VERSION_WITHOUT_PARTS:
        writer.number(content.feature_level)
        writer.number(content.effects_offset)
    if version >= _VERSION:
        writer.number(len(content.parts))
        for number, part in content.parts:
            writer.number(number)
            yield from part.write(writer)


def decode_snapshot_in_pieces(data: bytes) -> Generator[None, None, tuple[Content, CommittedOffsets]]:
    """Decode a snapshot in steps of a few milliseconds, between which the caller may do other work.

    Returns:
        the state and its offsets, after the last step.

    Raises:
        cluster.state.compact_bytes.Unreadable: the bytes are not a snapshot, or one of a newer version.
    """
    reader = Reader(data, "a snapshot of broker state", len(_MAGIC))
    if not data.startswith(_MAGIC):
        raise reader.fault(repr(_MAGIC), repr(data[: len(_MAGIC)]), 0)
    version = reader.number_up_to(_VERSION, "version", _VERSION_WITHOUT_IMPORT)
    content = Content(topics_version=reader.number())
    for _ in range(reader.count()):
        topic = read_topic(reader)
        content.topics[topic.name] = topic
        if reader.ends_piece():
            yield
    for _ in range(reader.count()):
        group = read_group(reader)
        content.groups[group.name] = group
        if reader.ends_piece():
            yield
    offsets = CommittedOffsets()
    for _ in range(reader.count()):
        name = reader.text()
        for row in read_offsets(reader):
            offsets.put(name, row)
            if reader.ends_piece():
                yield
    content.delay_offsets = dict(read_delays(reader))
    if version != _VERSION_WITHOUT_IMPORT:
        content.is_imported = bool(reader.number())
    if version >= _VERSION_WITHOUT_FEATURES:
        yield from content.access.loading(reader)
    if version >= _VERSION_WITHOUT_PARTS:
        content.feature_level = reader.number_up_to(FEATURE_LEVEL, "feature level", 1)
        content.effects_offset = reader.number()
    if version >= _VERSION:
        yield from _parts_loading(reader, content.parts)
    reader.end()
    return content, offsets


def _parts_loading(reader: Reader, parts: Mapping[int, StatePart]) -> Iterator[None]:
    last = 0
    for _ in range(reader.count()):
        number = reader.number()
        if number <= last or number not in parts:
            raise reader.fault(f"one of the parts {list(parts)} after part {last}", str(number))
        yield from parts[number].loading(reader)
        last = number

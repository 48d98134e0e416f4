"""Converts messages to record bytes: checks them, then encodes many at once.

A put has two steps. `RecordEncoder.prepare` does all checks, and all work that does not depend on the position in the
log; `PreparedRecords` fills in offsets and store timestamp. For the replicated log, which writes physical offsets
itself, `RecordEncoder.encode_each` does both at once, in the native module if it is in use.

V2 is chosen where a topic is longer than the 127 bytes that V1 can express. RocketMQ counts UTF-16 units, which is the
same for all names that it allows, and would write unreadable records for the others.

Source: RocketMQ `MessageExtEncoder`, `CommitLog.DefaultAppendMessageCallback`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from isal.isal_zlib import crc32

from commitlog.record.properties import (
    CRC_SIZE,
    PROPERTIES_SIZE_MAX,
    RawProperties,
    encode_properties,
    encode_property_crc,
)
from commitlog.record.record import (
    CRC_MASK,
    FIELDS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_MESSAGE_SIZE,
    PHYSICAL_OFFSET_POSITION,
    QUEUE_OFFSET_POSITION,
    STORE_TIMESTAMP_POSITION,
    TOPIC_LENGTH_MAX_V1,
    TOPIC_LENGTH_MAX_V2,
)
from dledger import native
from store.errors import IllegalMessage
from store.model.message_columns import MessageColumns
from store.model.sys_flag import BORN_HOST_IPV6, CARRIES_EFFECT, HOST_MASK, STORE_HOST_IPV6
from store.model.topics import check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.model.message import Host, Message

# queue offset and physical offset, which are adjacent
_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")
_PORT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_PORT_MAX: Final = 65_535
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)
# Names and hosts whose bytes an encoder caches; a full cache is cleared.
_KEPT_MAX: Final = 4096
# Messages from which on they are grouped for the native module.
_MANY: Final = 4
_PROPERTY_END: Final = b"\x02"
_CRC_SPACE: Final = bytes(CRC_SIZE)
# The bits of a sysFlag that are stored as a client sent them, and as a broker's own record has them.
_CLIENT_BITS: Final = ~(HOST_MASK | CARRIES_EFFECT)
_BROKER_BITS: Final = ~HOST_MASK


# Queue offset of each record, and the store timestamp of all.
_Places: TypeAlias = "tuple[Sequence[int], int]"


class _Topic(NamedTuple):
    """The bytes of a topic for a record: the magic, and the name with its length before it."""

    magic: int
    name: bytes


class PreparedRecords:
    """Records without their offsets and store timestamps.

    Attributes:
        sizes: bytes of each record.
        total_size: of all of them.
    """

    __slots__ = ("_has_property_crc", "_parts", "_timestamp_positions", "sizes", "total_size")

    def __init__(
        self, parts: list[bytes], sizes: list[int], timestamp_positions: list[int], *, has_property_crc: bool
    ) -> None:
        self._parts = parts
        self._timestamp_positions = timestamp_positions
        self._has_property_crc = has_property_crc
        self.sizes = sizes
        self.total_size = sum(sizes)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.sizes)

    def encode(self, physical_offset: int, queue_offsets: Sequence[int], store_timestamp: int) -> memoryview:
        """Return the records, contiguous in new memory.

        Args:
            physical_offset: of the first record; the others follow without gaps.
            queue_offsets: one for each record.
            store_timestamp: of all of them; milliseconds since 1970.
        """
        data = bytearray().join(self._parts)
        pack_offsets, pack_timestamp = _OFFSETS.pack_into, _TIMESTAMP.pack_into
        position = 0
        for size, queue_offset, timestamp_position in zip(
            self.sizes, queue_offsets, self._timestamp_positions, strict=True
        ):
            pack_offsets(data, position + QUEUE_OFFSET_POSITION, queue_offset, physical_offset + position)
            pack_timestamp(data, position + timestamp_position, store_timestamp)
            position += size
        if self._has_property_crc:
            self._fill_property_crcs(data)
        return memoryview(data)

    def encode_each(self, queue_offsets: Sequence[int], store_timestamp: int) -> list[bytes]:
        """Return the records one by one, with physical offset 0.

        For the replicated log, which writes the physical offset itself, at `PHYSICAL_OFFSET_POSITION`; so there is no
        property CRC, which would cover it.
        """
        assert not self._has_property_crc
        data = self.encode(0, queue_offsets, store_timestamp)
        records: list[bytes] = []
        position = 0
        for size in self.sizes:
            _TIMESTAMP.pack_into(data, position + PHYSICAL_OFFSET_POSITION, 0)
            records.append(data[position : position + size].tobytes())
            position += size
        return records

    def _fill_property_crcs(self, data: bytearray) -> None:
        view = memoryview(data)
        begin = 0
        for size in self.sizes:
            end = begin + size
            view[end - CRC_SIZE : end] = encode_property_crc(crc32(view[begin : end - CRC_SIZE]) & CRC_MASK)
            begin = end


class RecordEncoder:
    """Encodes messages for one store.

    Args:
        store_host: the node that appends them.
        max_message_size: largest size of a body in bytes.
        has_property_crc: append a property CRC to each record (RocketMQ `enabledAppendPropCRC`).
        check_topic: raises `IllegalMessage` for a topic that accepts no messages.
    """

    def __init__(
        self,
        store_host: Host,
        *,
        max_message_size: int = MAX_MESSAGE_SIZE,
        has_property_crc: bool = False,
        check_topic: Callable[[str], None] = check_topic,
    ) -> None:
        self._max_message_size = max_message_size
        self._has_property_crc = has_property_crc
        self._check_topic = check_topic
        self._store_host = _encode_host(store_host, "store host")
        self._store_host_flag = STORE_HOST_IPV6 if len(store_host.address) > 4 else 0
        self._topics: dict[str, _Topic] = {}
        self._born_hosts: dict[Host, bytes] = {}

    def encode_each(
        self,
        messages: Sequence[Message],
        queue_offsets: Sequence[int],
        store_timestamp: int,
        *,
        may_carry_effects: bool = False,
    ) -> tuple[list[bytes], list[int]]:
        """Return `PreparedRecords.encode_each` of messages, and the size of each record; arguments as of `prepare`.

        Raises:
            IllegalMessage: see `prepare`.
        """
        found, places = None, (queue_offsets, store_timestamp)
        if self._has_property_crc:
            pass
        elif isinstance(messages, MessageColumns):
            found = self._encode_columns(messages, places, may_carry_effects=may_carry_effects)
        elif len(messages) >= _MANY:
            found = self._encode_groups(messages, places, may_carry_effects=may_carry_effects)
        if found is not None:
            return found
        prepared = self.prepare(messages, may_carry_effects=may_carry_effects)
        return prepared.encode_each(queue_offsets, store_timestamp), prepared.sizes

    def _encode_columns(
        self, messages: MessageColumns, places: _Places, *, may_carry_effects: bool
    ) -> tuple[list[bytes], list[int]] | None:
        """Return the same in the native module; None if it does not handle these messages, or is not in use."""
        kernels, (queue_offsets, store_timestamp) = native.kernels, places
        if kernels is None:
            return None
        topic = self._topics.get(messages.topic) or self._keep_topic(messages.topic)
        host = self._born_hosts.get(messages.born_host) or self._keep_born_host(messages.born_host)
        bodies = messages.bodies
        numbers = (
            *(messages.queue_ids, queue_offsets, messages.flags, messages.sys_flags, messages.born_timestamps),
            *(messages.reconsume_times, 0, list(map(crc32, bodies))),
        )
        return kernels.encode_records(
            *(bodies, messages.properties, numbers, *topic, host, self._store_host, store_timestamp),
            *(self._max_message_size, int(may_carry_effects)),
        )

    def _encode_groups(
        self, messages: Sequence[Message], places: _Places, *, may_carry_effects: bool
    ) -> tuple[list[bytes], list[int]] | None:
        """Return the same for messages of several topics and clients: one call for each group with the same of both.

        A broker's own messages are of few. None also if one of them is illegal: Python then finds the first that is.
        """
        kernels, (queue_offsets, store_timestamp) = native.kernels, places
        if kernels is None:
            return None
        topics, bodies, queue_ids, properties, flags, sys_flags, born_timestamps, hosts, reconsumes, prepared = zip(
            *messages, strict=True
        )
        try:
            raws = [each.raw if type(each) is RawProperties else encode_properties(each) for each in properties]
            kept_topics = {topic: self._topics.get(topic) or self._keep_topic(topic) for topic in set(topics)}
            kept_hosts = {host: self._born_hosts.get(host) or self._keep_born_host(host) for host in set(hosts)}
        except IllegalMessage:
            return None
        columns = list(
            zip(
                *(bodies, raws, queue_ids, queue_offsets, flags, sys_flags, born_timestamps, reconsumes, prepared),
                map(crc32, bodies),
                strict=True,
            )
        )
        groups: dict[tuple[str, Host], list[int]] = {}
        for row, key in enumerate(zip(topics, hosts, strict=True)):
            groups.setdefault(key, []).append(row)
        records, sizes = [b""] * len(messages), [0] * len(messages)
        for (topic, host), rows in groups.items():
            group_bodies, group_raws, *numbers = zip(*[columns[row] for row in rows], strict=True)
            found = kernels.encode_records(
                *(group_bodies, group_raws, tuple(numbers), *kept_topics[topic], kept_hosts[host], self._store_host),
                *(store_timestamp, self._max_message_size, int(may_carry_effects)),
            )
            if found is None:
                return None
            for row, record, size in zip(rows, *found, strict=True):
                records[row], sizes[row] = record, size
        return records, sizes

    def prepare(self, messages: Sequence[Message], *, may_carry_effects: bool = False) -> PreparedRecords:
        """Check `messages` and encode everything that does not depend on their position.

        Args:
            messages: of a client, or of the broker.
            may_carry_effects: they are the broker's own: the mark of an effect (`commitlog.record.effects`) is stored;
                otherwise it is removed.

        Raises:
            IllegalMessage: a message cannot be stored; the error has its fault. No message is prepared.
        """
        parts: list[bytes] = []
        sizes: list[int] = []
        timestamp_positions: list[int] = []
        # The hot loop of a put, so lookups are hoisted out of it.
        topics, born_hosts, checksum, mask = self._topics, self._born_hosts, crc32, CRC_MASK
        size_max, has_property_crc = self._max_message_size, self._has_property_crc
        store_host, store_host_flag = self._store_host, self._store_host_flag
        kept_bits = _BROKER_BITS if may_carry_effects else _CLIENT_BITS
        add_parts, add_size, add_timestamp_position = parts.extend, sizes.append, timestamp_positions.append
        for message in messages:
            topic, body, queue_id, properties, flag, sys_flag, born_timestamp, born_host, reconsumes, prepared = message
            magic, name = topics.get(topic) or self._keep_topic(topic)
            host = born_hosts.get(born_host) or self._keep_born_host(born_host)
            raw = encode_properties(properties)
            if has_property_crc:
                raw = _with_space_for_crc(raw)
            tail = name + _LENGTH.pack(len(raw)) + raw
            body_size = len(body)
            if body_size > size_max or queue_id < 0:
                raise self._refusal(message)
            host_flags = store_host_flag | BORN_HOST_IPV6 if len(host) > 8 else store_host_flag
            fields = FIELDS[host_flags]
            size = fields.size + body_size + len(tail)
            try:
                head = fields.pack(
                    size,
                    magic,
                    checksum(body) & mask,
                    queue_id,
                    flag,
                    0,
                    0,
                    sys_flag & kept_bits | host_flags,
                    born_timestamp,
                    host,
                    0,
                    store_host,
                    reconsumes,
                    prepared,
                    body_size,
                )
            except struct.error as error:
                raise self._refusal(message) from error
            add_parts((head, body, tail))
            add_size(size)
            add_timestamp_position(STORE_TIMESTAMP_POSITION + len(host) - 8)
        return PreparedRecords(parts, sizes, timestamp_positions, has_property_crc=has_property_crc)

    def _keep_topic(self, topic: str) -> _Topic:
        self._check_topic(topic)
        try:
            name = topic.encode()
        except UnicodeEncodeError as error:
            raise IllegalMessage("topic", "text that UTF-8 can hold", repr(topic[:40])) from error
        if len(name) <= TOPIC_LENGTH_MAX_V1:
            kept = _Topic(MAGIC_V1, bytes([len(name)]) + name)
        elif len(name) <= TOPIC_LENGTH_MAX_V2:
            kept = _Topic(MAGIC_V2, _LENGTH.pack(len(name)) + name)
        else:
            raise IllegalMessage("topic", f"at most {TOPIC_LENGTH_MAX_V2} bytes", f"{len(name)}")
        if len(self._topics) >= _KEPT_MAX:
            self._topics.clear()
        self._topics[topic] = kept
        return kept

    def _keep_born_host(self, host: Host) -> bytes:
        kept = _encode_host(host, "born host")
        if len(self._born_hosts) >= _KEPT_MAX:
            self._born_hosts.clear()
        self._born_hosts[host] = kept
        return kept

    def _refusal(self, message: Message) -> IllegalMessage:
        if len(message.body) > self._max_message_size:
            return IllegalMessage("body", f"at most {self._max_message_size} bytes", f"{len(message.body)}")
        for field, value, allowed in (
            ("queue id", message.queue_id, range(_INT32.stop)),
            ("flag", message.flag, _INT32),
            ("sys flag", message.sys_flag, _INT32),
            ("born timestamp", message.born_timestamp, _INT64),
            ("reconsume times", message.reconsume_times, _INT32),
            ("prepared transaction offset", message.prepared_transaction_offset, _INT64),
        ):
            if value not in allowed:
                return IllegalMessage(field, f"a number from {allowed.start} to {allowed.stop - 1}", repr(value))
        raise AssertionError(message)


def _encode_host(host: Host, field: str) -> bytes:
    address, port = host
    if len(address) not in (4, 16):
        raise IllegalMessage(field, "an address of 4 or 16 bytes", f"{len(address)} bytes")
    if not 0 <= port <= _PORT_MAX:
        raise IllegalMessage(field, f"a port from 0 to {_PORT_MAX}", f"{port}")
    return address + _PORT.pack(port)


def _with_space_for_crc(raw: bytes) -> bytes:
    """Return properties with 20 bytes after them for the property CRC."""
    if raw and not raw.endswith(_PROPERTY_END):
        raw += _PROPERTY_END
    if len(raw) + CRC_SIZE > PROPERTIES_SIZE_MAX:
        expected = f"at most {PROPERTIES_SIZE_MAX - CRC_SIZE} bytes, because a property CRC is added"
        raise IllegalMessage("properties size", expected, f"{len(raw)}")
    return raw + _CRC_SPACE

"""The bytes of one message record: layout, lazy decoding, and validation.

Not here: encoding (`commitlog.record.encoder`), scanning many records (`commitlog.record.scan`).

All integers are big-endian and signed. b and s are 8, or 20 for an IPv6 host (`store.model.sys_flag`); the offsets of
the second column are those for b = s = 8:

| field | offset | size | type | meaning |
| ----- | -----: | ---: | ---- | ------- |
| size | 0 | 4 | i32 | of the whole record |
| magic | 4 | 4 | i32 | 0xDAA320A7: V1; 0xDAA320AB: V2 |
| body_crc | 8 | 4 | i32 | CRC-32 of the stored body without its highest bit; of an empty body never checked |
| queue_id | 12 | 4 | i32 | |
| flag | 16 | 4 | i32 | for applications, not interpreted |
| queue_offset | 20 | 8 | i64 | offset in the queue; 0 for prepared and rolled-back messages |
| physical_offset | 28 | 8 | i64 | offset of this record in the log |
| sys_flag | 36 | 4 | i32 | |
| born_timestamp | 40 | 8 | i64 | ms since 1970, by the client's clock |
| born_host | 48 | b | | 4 or 16 address bytes, port as i32 |
| store_timestamp | 56 | 8 | i64 | ms since 1970, when it was appended |
| store_host | 64 | s | | like born_host |
| reconsume_times | 72 | 4 | i32 | |
| prepared_transaction_offset | 76 | 8 | i64 | of the half message that this one commits |
| body length | 84 | 4 | i32 | |
| body | 88 | n | | |
| topic length | 88 + n | 1 or 2 | i8 or i16 | V1 or V2; bytes |
| topic | | t | | UTF-8 |
| properties length | | 2 | i16 | |
| properties | | p | | `commitlog.record.properties` |

At the end of a file of the plain log is a blank: the bytes left (i32) and `BLANK_MAGIC`.

Source: RocketMQ `MessageExtEncoder`, `MessageDecoder.decode`, `CommitLog.checkMessageAndReturnSize`, `MessageVersion`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from isal.isal_zlib import crc32

from commitlog.record.properties import CRC_SIZE, RawProperties, find_property_crc
from store.errors import CorruptData
from store.model.message import Host, Message
from store.model.message_id import encode_message_id
from store.model.sys_flag import BORN_HOST_IPV6, HOST_MASK, STORE_HOST_IPV6

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGICS: Final = (MAGIC_V1, MAGIC_V2)
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
# size, magic: of a record and of a blank
HEAD: Final = struct.Struct(">ii")
BLANK_SIZE_MIN: Final = 8
# Bytes reserved for a blank after a record: Java's rule for whether a record fits into a file.
END_SIZE_MIN: Final = BLANK_SIZE_MIN

QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
STORE_TIMESTAMP_POSITION: Final = 56  # with an IPv4 born host
CRC_MASK: Final = 0x7FFF_FFFF
# V1 stores the topic's length in one signed byte, V2 in a short.
TOPIC_LENGTH_MAX_V1: Final = 127
TOPIC_LENGTH_MAX_V2: Final = 32_767

MAX_MESSAGE_SIZE: Final = 4 << 20

# The fields up to the body length, inclusive; by the two IPv6 bits of sys_flag.
FIELDS: Final = {
    bits: struct.Struct(f">iiiiiqqiq{20 if bits & BORN_HOST_IPV6 else 8}sq{20 if bits & STORE_HOST_IPV6 else 8}siqi")
    for bits in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, HOST_MASK)
}
_IPV4_FIELDS: Final = FIELDS[0]
FIELDS_SIZE: Final = 88
FIELDS_SIZE_MAX: Final = 112
assert FIELDS[0].size == FIELDS_SIZE
assert FIELDS[HOST_MASK].size == FIELDS_SIZE_MAX
# The shortest record: no body, no topic, no properties.
_LENGTH_SIZE: Final = 2  # of the properties
RECORD_SIZE_MIN: Final = FIELDS_SIZE + 1 + _LENGTH_SIZE
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
# Hosts of records that were decoded last.
_HOSTS_MAX: Final = 256

# As in the table above: size, magic, body_crc, … store_host, reconsume_times, prepared offset, body length.
_Fields = tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int]


class RecordFault(NamedTuple):
    """The fault of a record.

    Attributes:
        position: of the wrong field, in the buffer.
        expected: the expected value.
        found: the actual value.
    """

    position: int
    expected: str
    found: str


class FieldColumns(NamedTuple):
    """The fields before the body of several records, each in a column; as in the table above.

    Attributes:
        born_host, store_host: 4 or 16 bytes of address and 4 of port.
    """

    size: tuple[int, ...]
    magic: tuple[int, ...]
    body_crc: tuple[int, ...]
    queue_id: tuple[int, ...]
    flag: tuple[int, ...]
    queue_offset: tuple[int, ...]
    physical_offset: tuple[int, ...]
    sys_flag: tuple[int, ...]
    born_timestamp: tuple[int, ...]
    born_host: tuple[bytes, ...]
    store_timestamp: tuple[int, ...]
    store_host: tuple[bytes, ...]
    reconsume_times: tuple[int, ...]
    prepared_transaction_offset: tuple[int, ...]
    body_size: tuple[int, ...]


class BadRecord(Exception):
    """There is no valid record at the requested position."""

    def __init__(self, fault: RecordFault) -> None:
        super().__init__(f"byte {fault.position}: expected {fault.expected}, found {fault.found}")
        self.fault = fault

    def in_file(self, path: str) -> CorruptData:
        """Convert to the error with the file's path."""
        return CorruptData(path, *self.fault)


# Of one record, in the buffer: begin and end, begin and end of the body, begin and end of the topic. Then queue id,
# queue offset and system flag. The properties begin two bytes after the topic, and end with the record.
RecordRow = tuple[int, int, int, int, int, int, int, int, int]


class Record:
    """A view of one record, created by `decode`: decoded on access, valid as long as the buffer; a `StoredMessage`.

    Args:
        view: contains the record.
        row: its places, checked.
        decoded: its fields; None: they are decoded when one is needed, which readers of many records seldom do. Only
            for hosts with IPv4.

    Attributes:
        view: contains the record.
    """

    __slots__ = ("_fields", "_row", "view")

    def __init__(self, view: memoryview, row: RecordRow, decoded: _Fields | None = None) -> None:
        self.view = view
        self._row = row
        self._fields = decoded

    def fields(self) -> _Fields:
        """Return the fields before the body, as in the table above."""
        fields = self._fields
        if fields is None:
            fields = self._fields = _IPV4_FIELDS.unpack_from(self.view, self._row[0])
        return fields

    @property
    def row(self) -> RecordRow:
        """Its places in `view`."""
        return self._row

    @property
    def position(self) -> int:
        """Of its first byte in `view`."""
        return self._row[0]

    @property
    def end(self) -> int:
        """The position in `view` after its last byte."""
        return self._row[1]

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return self._row[1] - self._row[0]

    @property
    def raw(self) -> memoryview:
        """The whole record, not copied."""
        return self.view[self._row[0] : self._row[1]]

    @property
    def magic(self) -> int:
        """`MAGIC_V1` or `MAGIC_V2`."""
        return self.fields()[1]

    @property
    def body_crc(self) -> int:
        """The stored checksum of the body."""
        return self.fields()[2]

    @property
    def queue_id(self) -> int:
        """Number of the queue."""
        return self._row[6]

    @property
    def flag(self) -> int:
        """The flag of the application."""
        return self.fields()[4]

    @property
    def queue_offset(self) -> int:
        """Offset in the queue; 0 for prepared and rolled-back messages, which are in no queue."""
        return self._row[7]

    @property
    def physical_offset(self) -> int:
        """The record's own field for its offset in the log."""
        return self.fields()[6]

    @property
    def sys_flag(self) -> int:
        """The bits of `store.model.sys_flag`, as stored."""
        return self._row[8]

    @property
    def born_timestamp(self) -> int:
        """Milliseconds since 1970 by the client's clock."""
        return self.fields()[8]

    @property
    def born_host(self) -> Host:
        """Address of the client."""
        return decode_host(self.fields()[9])

    @property
    def store_timestamp(self) -> int:
        """Time of the append: milliseconds since 1970."""
        return self.fields()[10]

    @property
    def store_host(self) -> Host:
        """Address of the node that appended it."""
        return decode_host(self.fields()[11])

    @property
    def reconsume_times(self) -> int:
        """Number of redeliveries."""
        return self.fields()[12]

    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of the half message that this one commits, or 0."""
        return self.fields()[13]

    @property
    def body_size(self) -> int:
        """Bytes of the body."""
        return self._row[3] - self._row[2]

    @property
    def body_view(self) -> memoryview:
        """The body, not copied."""
        row = self._row
        return self.view[row[2] : row[3]]

    @property
    def body(self) -> bytes:
        """A copy of the body."""
        row = self._row
        return self.view[row[2] : row[3]].tobytes()

    @property
    def topic(self) -> str:
        """The topic's name."""
        row = self._row
        return self.view[row[4] : row[5]].tobytes().decode("utf-8", "replace")

    @property
    def topic_view(self) -> memoryview:
        """The bytes of the topic's name, not copied."""
        row = self._row
        return self.view[row[4] : row[5]]

    def is_at_queue_offset(self, topic: bytes, queue_id: int, queue_offset: int) -> bool:
        """Return whether the record's fields match this offset of this queue; the topic is UTF-8."""
        row = self._row
        return row[7] == queue_offset and row[6] == queue_id and self.view[row[4] : row[5]].tobytes() == topic

    @property
    def properties_raw(self) -> bytes:
        """A copy of the stored properties."""
        row = self._row
        return self.view[row[5] + _LENGTH_SIZE : row[1]].tobytes()

    @property
    def properties_size(self) -> int:
        """Bytes of the stored properties."""
        row = self._row
        return row[1] - row[5] - _LENGTH_SIZE

    @property
    def properties(self) -> RawProperties:
        """Names and values as decoded by RocketMQ; `raw` has the stored bytes."""
        row = self._row
        return RawProperties(self.view[row[5] + _LENGTH_SIZE : row[1]].tobytes())

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return encode_message_id(self.store_host, self.physical_offset)

    @property
    def message(self) -> Message:
        """The message; putting it again gives the same bytes except offsets, store timestamp and store host."""
        _, _, _, queue_id, flag, _, _, sys_flag, born_timestamp, *_ = fields = self.fields()
        return Message(
            topic=self.topic,
            body=self.body,
            queue_id=queue_id,
            properties=self.properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=self.born_host,
            reconsume_times=fields[12],
            prepared_transaction_offset=fields[13],
        )

    @staticmethod
    def field_columns(records: Sequence[Record]) -> FieldColumns:
        """Return the fields of several records, at least one, at a fifth of the cost of its properties."""
        return FieldColumns(*zip(*[each.fields() for each in records], strict=True))

    def check(
        self,
        *,
        physical_offset: int | None = None,
        is_body_checked: bool = True,
        is_property_crc_checked: bool = False,
    ) -> RecordFault | None:
        """Return the fault of the record; None if it is valid.

        Args:
            physical_offset: its offset in the log; None: unknown.
            is_body_checked: compare the body with its CRC.
            is_property_crc_checked: check the property CRC, too, if there is one. Only a store with
                `enabledAppendPropCRC` writes it; elsewhere a client may have used the same name.
        """
        if physical_offset is not None and self.physical_offset != physical_offset:
            position = self.position + PHYSICAL_OFFSET_POSITION
            return RecordFault(position, f"physical offset {physical_offset}", f"{self.physical_offset}")
        begin, end = self._row[2:4]
        if is_body_checked and begin < end:
            found, expected = crc32(self.view[begin:end]) & CRC_MASK, self.fields()[2]
            if found != expected:
                return RecordFault(begin, f"a body with CRC-32 {expected:#010x}", f"{found:#010x}")
        return self._check_property_crc() if is_property_crc_checked else None

    def _check_property_crc(self) -> RecordFault | None:
        begin, end, *_ = self._row
        expected = find_property_crc(self.properties_raw)
        if expected is None:
            return None
        end -= CRC_SIZE
        found = crc32(self.view[begin:end]) & CRC_MASK
        if found == expected:
            return None
        return RecordFault(end, f"property CRC {found}, which the record has", f"{expected}")


def decode(view: memoryview, position: int, end: int | None = None) -> Record:
    """Return the record that begins at `position`; lengths are checked, checksums are not (`Record.check`).

    Args:
        view: contains the record, which is valid as long as the view.
        position: in `view`.
        end: upper bound of the record's end; None: the end of the view.

    Raises:
        BadRecord: there is none.
    """
    if end is None:
        end = len(view)
    if position < 0 or end - position < RECORD_SIZE_MIN:
        raise BadRecord(
            RecordFault(position, f"a record of at least {RECORD_SIZE_MIN} bytes", f"{end - position} bytes")
        )
    fields: _Fields = _IPV4_FIELDS.unpack_from(view, position)
    body_position = position + FIELDS_SIZE
    host_bits = fields[7] & HOST_MASK
    if host_bits:
        layout = FIELDS[host_bits]
        body_position = position + layout.size
        if body_position > end:
            raise BadRecord(
                RecordFault(position, f"a record of at least {layout.size} bytes", f"{end - position} bytes")
            )
        fields = layout.unpack_from(view, position)
    record_end = position + fields[0]
    topic_position = body_position + fields[14]
    magic = fields[1]
    if record_end <= end and body_position <= topic_position < record_end:
        topic_size, width = -1, 1
        if magic == MAGIC_V1:
            # The byte is signed: a value above 127 is a negative length.
            topic_size = view[topic_position] if view[topic_position] <= TOPIC_LENGTH_MAX_V1 else -1
        elif magic == MAGIC_V2 and topic_position + 2 <= record_end:
            topic_size, width = _SHORT.unpack_from(view, topic_position)[0], 2
        topic_end = topic_position + width + topic_size
        if (
            topic_size >= 0
            and topic_end + _LENGTH_SIZE <= record_end
            and topic_end + _LENGTH_SIZE + _SHORT.unpack_from(view, topic_end)[0] == record_end
        ):
            topic_begin, kept = topic_position + width, (fields[3], fields[5], fields[7])
            row = (position, record_end, body_position, topic_position, topic_begin, topic_end, *kept)
            return Record(view, row, fields)
    raise BadRecord(_structural_fault(view, position, end, fields, body_position))


def sys_flag_of(record: bytes) -> int:
    """Return the sysFlag of an encoded record; 0 if it is too short to have one."""
    return int.from_bytes(record[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4], "big", signed=True)


def find_fault(
    view: memoryview, position: int, end: int, *, physical_offset: int | None, is_property_crc_checked: bool = False
) -> RecordFault | None:
    """Return the fault of the record at `position`; None if it is valid.

    The arguments are those of `decode` and `Record.check`.
    """
    try:
        record = decode(view, position, end)
    except BadRecord as error:
        return error.fault
    return record.check(physical_offset=physical_offset, is_property_crc_checked=is_property_crc_checked)


def checksum(data: bytes | memoryview) -> int:
    """Return the CRC-32 of `data` without its highest bit. Source: RocketMQ `UtilAll.crc32`."""
    return crc32(data) & CRC_MASK


# The records of one batch mostly have the same hosts, and one call takes a microsecond.
@lru_cache(_HOSTS_MAX)
def decode_host(data: bytes) -> Host:
    """Return an encoded address of 4 or 16 bytes, with its port."""
    return Host(data[:-4], _INT.unpack_from(data, len(data) - 4)[0])


def _structural_fault(view: memoryview, position: int, end: int, fields: _Fields, body_position: int) -> RecordFault:
    """Return the first fault, in the order of the fields, for which `decode` refused a record."""
    size, magic, body_size = fields[0], fields[1], fields[14]
    if magic not in MAGICS:
        return RecordFault(position + 4, "magic 0xdaa320a7 or 0xdaa320ab", f"{magic & 0xFFFF_FFFF:#010x}")
    if not RECORD_SIZE_MIN <= size <= end - position:
        return RecordFault(position, f"a size from {RECORD_SIZE_MIN} to {end - position}", f"{size}")
    record_end = position + size
    space = record_end - body_position
    if not 0 <= body_size <= space - 3:
        return RecordFault(body_position - 4, f"a body length from 0 to {space - 3}", f"{body_size}")
    topic_position = body_position + body_size
    width = 1 if magic == MAGIC_V1 else 2
    topic_size = int.from_bytes(view[topic_position : topic_position + width], "big", signed=True)
    space = record_end - topic_position - width - 2
    if not 0 <= topic_size <= space:
        return RecordFault(topic_position, f"a topic length from 0 to {space}", f"{topic_size}")
    length_position = topic_position + width + topic_size
    found = int(_SHORT.unpack_from(view, length_position)[0])
    expected = record_end - length_position - 2
    return RecordFault(length_position, f"a properties length of {expected}, for a size of {size}", f"{found}")

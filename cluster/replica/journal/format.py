"""The bytes of a segment of the journal. Big-endian; checksums are CRC-32C.

| offset | size | field       | meaning |
| -----: | ---: | ----------- | ------- |
|      0 |    8 | magic       | `dljourn` and a line feed |
|      8 |    4 | version     | 1 |
|     12 |    4 | size        | of the file; it never changes |
|     16 |    8 | number      | of the segment: its name |
|     24 |    8 | begin_index | index of the next command when the file was created |
|     32 |    4 | header_crc  | of the 32 bytes before |

Batches follow, each written at once and synced before the next one is written; after the last one all bytes are zero.

| offset | size | field       | meaning |
| -----: | ---: | ----------- | ------- |
|      0 |    4 | magic       | `DLJB` |
|      4 |    4 | size        | of the batch, with this header and the end |
|      8 |    8 | index       | of its first command |
|     16 |    4 | count       | of commands |
|     20 |    4 | body_crc    | of everything after the header |
|     24 |    4 | header_crc  | of the 24 bytes before |
|     28 |    … | commands    | of each: effects offset (8), size (4), and the command (`cluster.state.commands`) |
|      … |    1 | end         | 0xA5 |

A crash may leave a part of the last batch. A sector that was not written is zero, and so is what follows a write that
ended early; the first and the last byte of a batch are not zero, and zeros for 512 bytes do not occur in commands of
the usual sizes. So an invalid batch without a missing sector, or before a valid one, was damaged later: it is an error,
because the batch may have been acknowledged.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SEGMENT_HEADER: Final = struct.Struct(">8siiqqI")
SEGMENT_HEADER_SIZE: Final = 36
BATCH_HEADER: Final = struct.Struct(">4siqiII")
BATCH_HEADER_SIZE: Final = 28
_COMMAND_HEAD: Final = struct.Struct(">qi")
_COMMAND_HEAD_SIZE: Final = 12
_END: Final = b"\xa5"
_MAGIC: Final = b"dljourn\n"
_BATCH_MAGIC: Final = b"DLJB"
_VERSION: Final = 1
_CHECKSUM_SIZE: Final = 4
# The unit that a disk writes as a whole.
_SECTOR_SIZE: Final = 512
# Of a batch with one command; a command in a larger batch needs less.
OVERHEAD_SIZE: Final = BATCH_HEADER_SIZE + _COMMAND_HEAD_SIZE + len(_END)

assert SEGMENT_HEADER.size == SEGMENT_HEADER_SIZE
assert BATCH_HEADER.size == BATCH_HEADER_SIZE
assert _COMMAND_HEAD.size == _COMMAND_HEAD_SIZE


class JournalDamaged(StoreError):
    """A file of the journal is damaged, or does not belong to the others. Nothing was changed.

    Attributes:
        path: the file.
        position: byte position of the fault.
    """

    def __init__(self, path: str, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: the journal of broker state is damaged at byte {position}: expected {expected}, found {found}. "
            "Nothing was changed. Restore the directory of the state (config/broker) from a backup. Without one, the "
            "broker can start with the newest snapshot only: keep a copy of the directory, then see `a damaged "
            "journal` in docs/operations.md"
        )
        self.path = path
        self.position = position
        self.expected = expected
        self.found = found


class JournalCommand(NamedTuple):
    """A command in the journal.

    Attributes:
        number: its index: consecutive, from 1; the snapshot of this index contains the command.
        effects_offset: log offset up to which the effects of records were applied before the command.
        body: the encoded command.
    """

    number: int
    effects_offset: int
    body: bytes


class SegmentContent(NamedTuple):
    """What a segment contains.

    Attributes:
        begin_index: index of the next command when it was created.
        changes: its commands, in order.
        end: position after the last batch.
        is_torn: whether a crash left a part of a batch after it.
    """

    begin_index: int
    changes: list[JournalCommand]
    end: int
    is_torn: bool


def encode_segment_header(number: int, size: int, begin_index: int) -> bytes:
    """Return the header of a new segment of `size` bytes."""
    fields = SEGMENT_HEADER.pack(_MAGIC, _VERSION, size, number, begin_index, 0)[:-_CHECKSUM_SIZE]
    return fields + crc32c(fields).to_bytes(_CHECKSUM_SIZE)


def batch_size(changes: Sequence[JournalCommand]) -> int:
    """Return the size of a batch in bytes."""
    return BATCH_HEADER_SIZE + len(_END) + sum(_COMMAND_HEAD_SIZE + len(each.body) for each in changes)


def encode_batch(changes: Sequence[JournalCommand]) -> bytes:
    """Return the batch of consecutive commands, at least one."""
    parts = [part for each in changes for part in (_COMMAND_HEAD.pack(each.effects_offset, len(each.body)), each.body)]
    body = b"".join((*parts, _END))
    size = BATCH_HEADER_SIZE + len(body)
    fields = BATCH_HEADER.pack(_BATCH_MAGIC, size, changes[0].number, len(changes), crc32c(body), 0)[:-_CHECKSUM_SIZE]
    return b"".join((fields, crc32c(fields).to_bytes(_CHECKSUM_SIZE), body))


def read_segment(content: memoryview, path: str, number: int) -> SegmentContent:
    """Read the segment `number`.

    Args:
        content: of the file.
        path: of the file, for errors.
        number: from its name.

    Raises:
        JournalDamaged: it is not this segment, or not as it was written.
    """
    begin_index = _read_header(content, path, number)
    changes: list[JournalCommand] = []
    position = SEGMENT_HEADER_SIZE
    while (size := _batch_at(content, position)) is not None:
        changes += _changes_of(content[position : position + size], path, position)
        position += size
    rest = bytes(content[position:])
    if not rest.strip(b"\0"):
        return SegmentContent(begin_index, changes, position, is_torn=False)
    if not _is_torn(rest, position) or _has_batch(content, position + 1):
        raise JournalDamaged(path, position, "a batch of commands as it was written", rest[:BATCH_HEADER_SIZE].hex(" "))
    return SegmentContent(begin_index, changes, position, is_torn=True)


def _read_header(content: memoryview, path: str, number: int) -> int:
    if len(content) < SEGMENT_HEADER_SIZE:
        raise JournalDamaged(path, 0, "a segment of a journal", f"{len(content)} bytes")
    magic, version, size, found, begin_index, checksum = SEGMENT_HEADER.unpack_from(content)
    if magic != _MAGIC or checksum != crc32c(content[: SEGMENT_HEADER_SIZE - _CHECKSUM_SIZE]):
        raise JournalDamaged(path, 0, "the header of a segment of a journal", bytes(content[:12]).hex(" "))
    if version != _VERSION or found != number or size != len(content):
        expected = f"version {_VERSION}, segment {number}, {len(content)} bytes"
        raise JournalDamaged(path, 0, expected, f"version {version}, segment {found}, {size} bytes")
    return int(begin_index)


def _batch_at(content: memoryview, position: int) -> int | None:
    """Return the size of the valid batch at a position; None: there is none."""
    size = _size_at(content, position)
    if size is None:
        return None
    body = content[position + BATCH_HEADER_SIZE : position + size]
    return size if crc32c(body) == BATCH_HEADER.unpack_from(content, position)[4] else None


def _size_at(content: memoryview, position: int) -> int | None:
    """Return the size of the batch whose valid header is at a position; None: there is none."""
    if position + OVERHEAD_SIZE > len(content):
        return None
    magic, size, _, _, _, checksum = BATCH_HEADER.unpack_from(content, position)
    if magic != _BATCH_MAGIC or not OVERHEAD_SIZE <= size <= len(content) - position:
        return None
    header = content[position : position + BATCH_HEADER_SIZE - _CHECKSUM_SIZE]
    return int(size) if checksum == crc32c(header) else None


def _changes_of(batch: memoryview, path: str, position: int) -> Iterator[JournalCommand]:
    """Yield the commands of a batch with matching checksums."""
    _, _, index, count, _, _ = BATCH_HEADER.unpack_from(batch)
    at = BATCH_HEADER_SIZE
    for number in range(index, index + count):
        if at + _COMMAND_HEAD_SIZE >= len(batch):
            break
        effects_offset, size = _COMMAND_HEAD.unpack_from(batch, at)
        at += _COMMAND_HEAD_SIZE
        yield JournalCommand(number, effects_offset, bytes(batch[at : at + size]))
        at += size
    if at != len(batch) - len(_END):
        raise JournalDamaged(path, position, f"{count} commands in {len(batch)} bytes", f"an end at {at}")


def _is_torn(rest: bytes, position: int) -> bool:
    """Return whether an invalid batch at the beginning of `rest` was never written completely.

    Args:
        rest: the bytes from `position` to the end of the segment; not all are zero.
        position: of the batch in its file.
    """
    size = _size_at(memoryview(rest), 0)
    # Without a valid header its sectors, which have a part of the commands, too.
    header_end = -(-(position + BATCH_HEADER_SIZE) // _SECTOR_SIZE) * _SECTOR_SIZE - position
    expected = rest[: header_end if size is None else size]
    if size is None and not rest[BATCH_HEADER_SIZE:].strip(b"\0"):
        # A write that ended within the header.
        return True
    if size is not None and rest[size:].strip(b"\0"):
        # A later batch: this one was synced before it.
        return False
    begin = 0
    while begin < len(expected):
        end = min(len(expected), begin + _SECTOR_SIZE - (position + begin) % _SECTOR_SIZE)
        if not expected[begin:end].strip(b"\0"):
            return True
        begin = end
    return size is not None and not expected[-1]


def _has_batch(content: memoryview, position: int) -> bool:
    """Return whether there is a valid batch at or after a position."""
    data = bytes(content)
    at = data.find(_BATCH_MAGIC, position)
    while at >= 0:
        if _batch_at(content, at) is not None:
            return True
        at = data.find(_BATCH_MAGIC, at + 1)
    return False

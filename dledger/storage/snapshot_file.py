"""The bytes of a snapshot file: a header, then the state machine's bytes. Big-endian; checksums are CRC-32C.

| offset | size | field       | meaning |
| -----: | ---: | ----------- | ------- |
|      0 |    8 | magic       | `dlsnaps` and a line feed |
|      8 |    4 | version     | 1 |
|     12 |    4 | header_size | 48: offset of the body |
|     16 |    8 | index       | of the last entry applied to it |
|     24 |    8 | term        | of that entry |
|     32 |    8 | body_size   | bytes of the body |
|     40 |    4 | body_crc    | of the body |
|     44 |    4 | header_crc  | of the 44 bytes before: |through body_crc it covers the whole file     ||

Applied index and state are in one file, so that a crash cannot make them differ.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from dledger.types import SnapshotInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEADER = struct.Struct(">8siiqqqII")
HEADER_SIZE = 48
_CHECKSUM = struct.Struct(">I")
_MAGIC = b"dlsnaps\n"
_VERSION = 1

assert HEADER.size == HEADER_SIZE


class BodySum:
    """Computes the size and the checksum of a body while its chunks pass through.

    Attributes:
        size, checksum: of the chunks so far.
    """

    __slots__ = ("checksum", "size")

    def __init__(self) -> None:
        self.size = 0
        self.checksum = 0

    def pass_through(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a placeholder for the header, and then `chunks`."""
        yield bytes(HEADER_SIZE)
        for chunk in chunks:
            self.size += len(chunk)
            self.checksum = crc32c(chunk, self.checksum)
            yield chunk


def encode_header(index: int, term: int, body: BodySum) -> tuple[bytes, SnapshotInfo]:
    """Return the header of the file with `body`, and the description of that snapshot."""
    fields = HEADER.pack(_MAGIC, _VERSION, HEADER_SIZE, index, term, body.size, body.checksum, 0)[: -_CHECKSUM.size]
    checksum = crc32c(fields)
    return fields + _CHECKSUM.pack(checksum), SnapshotInfo(index, term, HEADER_SIZE + body.size, checksum)


def read_header(content: memoryview) -> SnapshotInfo | str:
    """Return the facts in the header at the beginning of a file, `content`, or a description of its fault."""
    if len(content) < HEADER_SIZE:
        return f"{len(content)} bytes"
    magic, version, header_size, index, term, body_size, _, checksum = HEADER.unpack_from(content)
    found = crc32c(content[: HEADER_SIZE - _CHECKSUM.size])
    if magic != _MAGIC or checksum != found:
        return f"magic {magic!r}, header checksum {checksum:#010x} instead of {found:#010x}"
    if (version, header_size) != (_VERSION, HEADER_SIZE) or min(index, term, body_size) < 0:
        return f"version {version}, header of {header_size} bytes, index {index}, term {term}"
    if len(content) != HEADER_SIZE + body_size:
        return f"{len(content)} bytes where the header says {HEADER_SIZE + body_size}"
    return SnapshotInfo(index, term, len(content), checksum)


def check(content: memoryview, info: SnapshotInfo) -> str | None:
    """Return the fault of a file's `content`, expected to be the snapshot `info`; None if it is correct."""
    found = read_header(content)
    if found != info:
        return found if isinstance(found, str) else f"{found}, not {info}"
    expected = HEADER.unpack_from(content)[6]
    checksum = crc32c(content[HEADER_SIZE:])
    return None if checksum == expected else f"body checksum {checksum:#010x} instead of {expected:#010x}"

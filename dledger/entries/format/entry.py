"""The bytes of one entry, of its index unit and of a blank: layouts, encoding, decoding.

Not here: scanning and checking entries in files or from the network (`dledger.entries.format.walk`).

All integers are big-endian; all but the checksums are signed. An entry, `HEADER` and then the body:

| offset | size | type  | field     | meaning |
| -----: | ---: | ----- | --------- | ------- |
|      0 |    4 | i32   | magic     | kind of entry; -1 marks a blank |
|      4 |    4 | i32   | size      | 48 + bytes of the body |
|      8 |    8 | i64   | index     | the first entry ever is 0 |
|     16 |    8 | i64   | term      | the leader's when it appended the entry |
|     24 |    8 | i64   | position  | of the entry's first byte in the log; the same on all replicas |
|     32 |    4 | i32   | channel   | 0; in a log of messages the kind of a leader's own entry (`commitlog.record`) |
|     36 |    4 | u32   | chain_crc | CRC-32C of `CHAIN`; 0: not given |
|     40 |    4 | u32   | body_crc  | CRC-32C of the body; 0: not given |
|     44 |    4 | i32   | body_size | bytes of the body |

The index unit of entry i is stored at byte 32 * i of the index files. The chain checksum covers (the chain_crc field of
the entry before, magic, index, term, body_crc) and so links an entry to all earlier ones; at the log's start, and after
an entry written by Java (with 0 in both checksums), it starts with 0.

Source: DLedger `DLedgerEntryCoder`, `DLedgerEntryType`, `MmapFileList` (blank); the checksums are our own use of two
fields that DLedger reserves and ignores.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from dledger import native

if TYPE_CHECKING:
    from collections.abc import Sequence

# magic, size, index, term, position, channel, chain_crc, body_crc, body_size
HEADER = struct.Struct(">iiqqqiIIi")
# magic, position, size, index, term
INDEX_UNIT = struct.Struct(">iqiqq")
# chain_crc of the entry before, magic, index, term, body_crc
CHAIN = struct.Struct(">IiqqI")
# magic (-1), bytes of the blank including these eight; zeros follow
BLANK = struct.Struct(">ii")
# The value that is written into a body at `stamp_at`: the physical offset of the body's first byte.
STAMP = struct.Struct(">q")

HEADER_SIZE = 48
# Offset of the channel in the header (4 bytes).
CHANNEL_OFFSET = 32
INDEX_UNIT_SIZE = 32
BLANK_SIZE_MIN = 8

assert HEADER.size == HEADER_SIZE
assert INDEX_UNIT.size == INDEX_UNIT_SIZE
assert CHAIN.size == 28
assert BLANK.size == BLANK_SIZE_MIN

ENTRY_NORMAL = 1
ENTRY_NOOP = 2
ENTRY_CONFIG_CHANGE = 3
BLANK_MAGIC = -1
ENTRY_MAGICS = frozenset({ENTRY_NORMAL, ENTRY_NOOP, ENTRY_CONFIG_CHANGE})

NO_CHAIN = 0

# DLedger encodes into a buffer of 4 MiB. Eight bytes less, so that the largest entry and the blank after it fit into a
# data file of exactly 4 MiB.
ENTRY_SIZE_MAX = (4 << 20) - BLANK_SIZE_MIN
MAX_BODY_BYTES = ENTRY_SIZE_MAX - HEADER_SIZE


# Not frozen: one is created for every entry read, and creating a frozen one takes four times as long.
@dataclass(slots=True)
class Entry:
    """One entry, as stored in the log; the fields are those of the header."""

    index: int
    term: int
    position: int
    magic: int
    channel: int
    chain_crc: int
    body_crc: int
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of the entry with its header."""
        return HEADER_SIZE + len(self.body)


class EncodedBatch(NamedTuple):
    """Entries that are encoded back to back, ready to be written.

    Attributes:
        data: the entries.
        units: their index units.
        positions: of each entry, in the log.
        chain_crc: of the last entry.
    """

    data: bytes
    units: bytes
    positions: list[int]
    chain_crc: int


def encode_batch(
    bodies: Sequence[bytes],
    *,
    first_index: int,
    term: int,
    position: int,
    chain_crc: int,
    magic: int = ENTRY_NORMAL,
    channel: int = 0,
    stamp_at: int | None = None,
) -> EncodedBatch:
    """Encode `bodies` as consecutive entries at `position`; the caller ensures that they fit into the file.

    Args:
        bodies: one for each entry.
        first_index: index of the first entry.
        term: of all of them.
        position: of the first entry in the log.
        chain_crc: the chain_crc field of the entry before; 0 at the beginning; -1: not known; the chain then restarts,
            and the first entry has no chain checksum (0).
        magic: of all of them.
        channel: of all of them.
        stamp_at: position in each body at which its physical offset (entry position + 48) is written before the
            checksums are computed; None: nowhere. Source: DLedger `AppendHook` as RocketMQ uses it.
    """
    kernels = native.kernels
    if kernels is not None:
        found = kernels.encode_entries(bodies, first_index, term, position, chain_crc, magic, channel, stamp_at)
        if found is not None:
            return EncodedBatch._make(found)
    return encode_batch_in_python(bodies, (first_index, term, position), chain_crc, (magic, channel), stamp_at)


def encode_batch_in_python(
    bodies: Sequence[bytes],
    first: tuple[int, int, int],
    chain_crc: int,
    kind: tuple[int, int],
    stamp_at: int | None = None,
) -> EncodedBatch:
    """Do the same without the native module, of which this is the reference.

    Args:
        bodies: one for each entry.
        first: index, term and position of the first entry.
        chain_crc: the chain_crc field of the entry before; see `encode_batch`.
        kind: magic and channel of all of them.
        stamp_at: see `encode_batch`.
    """
    (index, term, position), (magic, channel) = first, kind
    if stamp_at is not None:
        bodies = _stamp(bodies, position, stamp_at)
    if chain_crc < 0:
        return _encode_without_past(bodies, first, kind)
    # The hot loop of the leader: names are bound once, nothing is computed twice.
    parts: list[bytes] = []
    units: list[bytes] = []
    positions: list[int] = []
    add_part, add_unit, add_position = parts.append, units.append, positions.append
    pack_header, pack_unit, pack_chain, checksum = HEADER.pack, INDEX_UNIT.pack, CHAIN.pack, crc32c
    for body in bodies:
        body_size = len(body)
        size = body_size + HEADER_SIZE
        body_crc = checksum(body)
        chain_crc = checksum(pack_chain(chain_crc, magic, index, term, body_crc))
        add_part(pack_header(magic, size, index, term, position, channel, chain_crc, body_crc, body_size))
        add_part(body)
        add_unit(pack_unit(magic, position, size, index, term))
        add_position(position)
        position += size
        index += 1
    return EncodedBatch(b"".join(parts), b"".join(units), positions, chain_crc)


def encode_blank(size: int) -> bytes:
    """Return the head of a blank of `size` (>= 8) bytes; the file already has zeros after it."""
    assert size >= BLANK_SIZE_MIN, size
    return BLANK.pack(BLANK_MAGIC, size)


def decode(buffer: bytes | memoryview, offset: int) -> Entry:
    """Return the entry whose header begins at `offset` of `buffer`, without any check.

    Raises:
        struct.error: the header does not fit into the buffer.
    """
    magic, size, index, term, position, channel, chain_crc, body_crc, _ = HEADER.unpack_from(buffer, offset)
    body = bytes(buffer[offset + HEADER_SIZE : offset + size])
    return Entry(index, term, position, magic, channel, chain_crc, body_crc, body)


def _encode_without_past(bodies: Sequence[bytes], first: tuple[int, int, int], kind: tuple[int, int]) -> EncodedBatch:
    (index, term, position), (magic, channel) = first, kind
    body = bodies[0]
    size = len(body) + HEADER_SIZE
    header = HEADER.pack(magic, size, index, term, position, channel, NO_CHAIN, crc32c(body), len(body))
    unit = INDEX_UNIT.pack(magic, position, size, index, term)
    rest = encode_batch_in_python(bodies[1:], (index + 1, term, position + size), NO_CHAIN, kind)
    return EncodedBatch(header + body + rest.data, unit + rest.units, [position, *rest.positions], rest.chain_crc)


def _stamp(bodies: Sequence[bytes], position: int, stamp_at: int) -> list[bytes]:
    stamped: list[bytes] = []
    stamp_end = stamp_at + STAMP.size
    for body in bodies:
        assert 0 <= stamp_at <= len(body) - STAMP.size, (stamp_at, len(body))
        stamped.append(body[:stamp_at] + STAMP.pack(position + HEADER_SIZE) + body[stamp_end:])
        position += HEADER_SIZE + len(body)
    return stamped

"""Extension files of consume queues, for reading: what RocketMQ keeps of a message's filter beside its unit.

`consumequeue_ext/<topic>/<queue id>/`, files of 48 MiB by default. A unit, big-endian:

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 0 | 2 | i16 | size | of the unit, from 20; -1: nothing more in this file; 0: the end |
| 2 | 8 | i64 | tags_code | hash of TAGS |
| 10 | 8 | i64 | store_timestamp | milliseconds since 1970 |
| 18 | 2 | i16 | bit_map_size | bytes of what follows |
| 20 | | bytes | bit_map | which filters the message passes |

A consume queue whose messages have units here holds, in place of the tags code, the unit's *address*: its offset in
these files plus -2^63. So a tags code at or below -2,147,483,649, which no hash is, is an address.

Source: RocketMQ `ConsumeQueueExt`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from store.errors import CorruptData
from store.fs.mapped_file import MappedFile
from store.fs.mapped_file_queue import MappedFileQueue

DIRECTORY = "consumequeue_ext"
FILE_SIZE_BYTES = 48 << 20
_FIXED_SIZE = 20
_END_OF_FILE = -1
_ADDRESS_BASE = -(1 << 63)
_ADDRESS_MAX = -(1 << 31) - 1
_SIZE = struct.Struct(">h")
_UNIT = struct.Struct(
    ">"
    "h"  # size
    "q"  # tags_code
    "q"  # store_timestamp
    "h"  # bit_map_size
)

assert _UNIT.size == _FIXED_SIZE


class ExtUnit(NamedTuple):
    """One unit.

    Attributes:
        offset: where it begins in the files.
        tags_code: hash of TAGS.
        store_timestamp: milliseconds since 1970.
        bit_map: which filters the message passes; may be empty.
    """

    offset: int
    tags_code: int
    store_timestamp: int
    bit_map: bytes

    @property
    def address(self) -> int:
        """What stands in the consume queue for it."""
        return self.offset + _ADDRESS_BASE


def is_address(tags_code: int) -> bool:
    """Return whether what a consume queue holds as tags code is the address of a unit."""
    return tags_code <= _ADDRESS_MAX


class ConsumeQueueExt:
    """The units of one queue, to be read.

    Args:
        queue: its files, loaded.
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: MappedFileQueue) -> None:
        self._queue = queue

    def get(self, address: int) -> ExtUnit:
        """Return the unit of an address.

        Raises:
            store.errors.CorruptData: no unit stands there.
        """
        assert is_address(address), address
        offset = address - _ADDRESS_BASE
        file = self._queue.find(offset)
        if file is None:
            raise CorruptData(self._queue.directory, offset, "a unit of the extension files", "no such file")
        return self._unit(file, offset)

    def __iter__(self) -> Iterator[ExtUnit]:
        """Iterate over all units in order.

        Raises:
            store.errors.CorruptData: at the first that cannot be right.
        """
        for file in self._queue.mapped_files:
            offset, last = file.begin_offset, file.end_offset - _SIZE.size
            while offset <= last:
                size = _SIZE.unpack_from(file.view(), offset - file.begin_offset)[0]
                if size == 0:
                    return
                if size == _END_OF_FILE:
                    break
                unit = self._unit(file, offset)
                yield unit
                offset += _FIXED_SIZE + len(unit.bit_map)

    def _unit(self, file: MappedFile, offset: int) -> ExtUnit:
        position = offset - file.begin_offset
        room = file.end_offset - offset
        if room < _FIXED_SIZE:
            raise CorruptData(file.path, position, f"a unit of {_FIXED_SIZE} bytes or more", f"room for {room}")
        size, tags_code, store_timestamp, bit_map_size = _UNIT.unpack_from(file.view(), position)
        if size != _FIXED_SIZE + bit_map_size or not _FIXED_SIZE <= size <= room:
            found = f"a unit of {size} bytes with a bit map of {bit_map_size}"
            raise CorruptData(file.path, position, f"a unit of {_FIXED_SIZE} to {room} bytes", found)
        bit_map = bytes(file.view()[position + _FIXED_SIZE : position + size])
        return ExtUnit(offset, tags_code, store_timestamp, bit_map)

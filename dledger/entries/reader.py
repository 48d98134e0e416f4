"""Reads entries out of the maps of the data files, and checks them.

Bytes that are not what they were written as raise `CorruptData`, here and not only at recovery. Not here: which entries
the log holds (`dledger.entries.store`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dledger.entries.format.entry import CHANNEL_OFFSET, HEADER, HEADER_SIZE, Entry, decode
from dledger.entries.format.walk import WalkState, describe_fault, walk
from store.errors import CorruptData

if TYPE_CHECKING:
    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.index import EntryIndex
    from dledger.types import Span
    from store.fs.mapped_file import MappedFile
    from store.fs.mapped_file_queue import MappedFileQueue

# Offset in an entry of the last, lowest byte of its channel.
_CHANNEL_END = CHANNEL_OFFSET + 3
_BYTE_MAX = 0xFF
# Up to here a loop is faster than numpy.
_FEW_ENTRIES = 16


class EntryReader:
    """Reads the bytes of entries that the log holds.

    Args:
        data, index: of the log.
        codec: distinguishes a leader's own entries from those of clients.
    """

    __slots__ = ("_codec", "_data", "_index")

    def __init__(self, data: MappedFileQueue, index: EntryIndex, codec: EntryCodec) -> None:
        self._codec = codec
        self._data = data
        self._index = index

    def read_checked(self, span: Span, chain_crc: int) -> bytes:
        """Return the entries of a span, as stored in the file; `chain_crc` is what the chain of the first starts from.

        All of their checksums are checked, which takes about a microsecond an entry.

        Raises:
            store.errors.CorruptData: the file does not hold what was written; answer nothing from it.
        """
        self._file_with(span.first_index, span.position, span.length)
        encoded = self._data.read(span.position, span.length)
        view, end = memoryview(encoded), len(encoded)
        state = WalkState(span.first_index, span.term, chain_crc)
        done = walk(view, 0, end, span.position, state, span.last_index - span.first_index + 1, self._codec)
        if done.offset != end or done.state.index != span.last_index + 1 or done.state.term != span.term:
            position = span.position + done.offset
            file = self._file_with(span.last_index, position, 0)
            expected, found = describe_fault(view, done.offset, end, position, done.state, self._codec)
            raise CorruptData(file.path, position - file.begin_offset, expected, found)
        return encoded

    def entries_of_channel(self, first_index: int, last_index: int, channel: int) -> list[int]:
        """Return the indexes of entries whose channel ends with the byte that `channel` ends with.

        The others are not read: it costs some ten nanoseconds for each of them. All of them must be in one file.
        """
        is_few = last_index - first_index < _FEW_ENTRIES
        find = self._find_few_of_channel if is_few else self._find_of_channel
        return find(first_index, last_index, channel)

    def chain_crc_of(self, index: int) -> int:
        """Return the chain checksum in the header of an entry; not checked."""
        position = self._index.fields(index)[1]
        file = self._file_with(index, position, HEADER_SIZE)
        chain_crc: int = HEADER.unpack_from(file.view(), position - file.begin_offset)[6]
        return chain_crc

    def _find_of_channel(self, first_index: int, last_index: int, channel: int) -> list[int]:
        positions = self._index.positions(first_index, last_index)
        file = self._file_with(last_index, int(positions[-1]), HEADER_SIZE)
        offsets = positions - (file.begin_offset - _CHANNEL_END)
        if offsets[0] < 0:
            raise self._index.corrupt(first_index)
        ends = np.frombuffer(file.view(), np.uint8)[offsets]
        found: list[int] = (np.flatnonzero(ends == channel & _BYTE_MAX) + first_index).tolist()
        return found

    def _find_few_of_channel(self, first_index: int, last_index: int, channel: int) -> list[int]:
        """Do the same entry by entry: for a few of them a tenth of the work."""
        fields, found = self._index.fields, []
        for index in range(first_index, last_index + 1):
            position = fields(index)[1]
            file = self._file_with(index, position, HEADER_SIZE)
            if file.view()[position - file.begin_offset + _CHANNEL_END] == channel & _BYTE_MAX:
                found.append(index)
        return found

    def _file_with(self, index: int, position: int, size: int) -> MappedFile:
        """Return the file that holds these bytes of entry `index`; a damaged index unit may name any."""
        file = self._data.find(position)
        if file is None or not 0 <= size <= file.end_offset - position:
            raise self._index.corrupt(index)
        return file


def decode_all(encoded: bytes) -> list[Entry]:
    """Return the entries that checked bytes hold."""
    offset, entries = 0, []
    while offset < len(encoded):
        entry = decode(encoded, offset)
        entries.append(entry)
        offset += entry.size
    return entries

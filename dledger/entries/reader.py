"""Reads entries from the mapped data files, and checks them.

Bytes that have changed since they were written raise `CorruptData`, at every read and at recovery. Not here: which
entries are in the log (`dledger.entries.store`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dledger.entries.errors import EntryNotFound
from dledger.entries.format.codec import EFFECT_MARK
from dledger.entries.format.entry import CHANNEL_OFFSET, HEADER, HEADER_SIZE, Entry, decode
from dledger.entries.format.walk import MARKER, MARKER_MASK, WalkState, describe_fault, walk
from store.errors import CorruptData

if TYPE_CHECKING:
    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.index import EntryIndex, Fields
    from dledger.types import Span
    from store.fs.mapped.mapped_file import MappedFile
    from store.fs.mapped.mapped_file_queue import MappedFileQueue

# Offset in an entry of the last, lowest byte of its channel.
_CHANNEL_END = CHANNEL_OFFSET + 3
_BYTE_MAX = 0xFF
# Up to this number of entries a loop is faster than NumPy.
_FEW_ENTRIES = 16


class EntryReader:
    """Reads the bytes of the log's entries.

    Args:
        data, index: of the log.
        codec: distinguishes a leader's own entries from those of clients.
    """

    __slots__ = ("_codec", "_data", "_index", "_is_own", "_own_ends")

    def __init__(self, data: MappedFileQueue, index: EntryIndex, codec: EntryCodec) -> None:
        self._codec = codec
        # The last bytes of the channels of a leader's own entries.
        self._own_ends = [channel & _BYTE_MAX for _, channel in codec.kinds if channel]
        # The same as a mask by byte: a lookup takes a hundredth of the time of `np.isin`.
        self._is_own = np.zeros(_BYTE_MAX + 1, np.bool_)
        self._is_own[self._own_ends] = True
        self._data = data
        self._index = index

    def read_checked(self, span: Span, chain_crc: int) -> bytes:
        """Return the entries of a span, as stored in the file; `chain_crc` is the chain checksum before the first.

        All checksums are checked, which takes about a microsecond per entry.

        Raises:
            store.errors.CorruptData: the file's content has changed since it was written; do not use it.
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

    def read(self, span: Span) -> bytes:
        """Return the entries of a span as stored in the file, without any check.

        Raises:
            store.errors.CorruptData: the index has a position outside of all files.
        """
        self._file_with(span.first_index, span.position, span.length)
        return self._data.read(span.position, span.length)

    def proven(self, index: int) -> Fields:
        """Return (magic, position, size, index, term) of an entry from the index, verified with its header.

        No checksum covers the index, so a truncation, deletion or acknowledgement that depends on it calls this first.

        Raises:
            store.errors.CorruptData: they differ; opening the store again rebuilds the index.
        """
        fields = self._index.fields(index)
        _, position, size, _, term = fields
        if size < HEADER_SIZE:
            raise self._index.corrupt(index)
        file = self._file_with(index, position, size)
        header = HEADER.unpack_from(file.view(), position - file.begin_offset)
        if header[1:4] != (size, index, term):
            raise self._index.corrupt(index)
        return fields

    def confirmed(self, index: int, begin_index: int, begin_position: int, last_index: int) -> Fields:
        """Return the unit of an entry if its header or the neighbouring units agree with it.

        So an entry with a damaged header is still found, and old files can be deleted.

        Args:
            index: of the entry.
            begin_index: the first entry of the log.
            begin_position: of that entry.
            last_index: of the log.

        Raises:
            EntryNotFound: it is not in the log.
            store.errors.CorruptData: as `proven`.
        """
        if not begin_index <= index <= last_index:
            raise EntryNotFound(f"with index {index}", begin_index, last_index)
        try:
            return self.proven(index)
        except CorruptData:
            begin, end = max(index - 1, begin_index), min(index + 1, last_index) + 1
            position = begin_position if begin == begin_index else self._index.fields(begin)[1]
            if not self._index.is_sound(begin, end, position, self._data.file_size):
                raise
            return self._index.fields(index)

    def applied_entries(self, first_index: int, last_index: int) -> list[int]:
        """Return the indexes of the entries that a state machine may receive; see `is_applied`.

        Also of those that have the mark of a leader's own entry in the body, but not its channel, which no checksum
        covers, or half the mark of an effect: the caller must check the whole entry. Other entries are not read, which
        costs about twenty nanoseconds each. All of them must be in one file.

        Raises:
            store.errors.CorruptData: the index is damaged.
        """
        is_few = last_index - first_index < _FEW_ENTRIES
        find = self._find_applied_of_few if is_few else self._find_applied
        return find(first_index, last_index)

    def chain_crc_of(self, index: int) -> int:
        """Return the chain checksum in the header of an entry, after a check that the header is this entry's."""
        position = self.proven(index)[1]
        file = self._file_with(index, position, HEADER_SIZE)
        chain_crc: int = HEADER.unpack_from(file.view(), position - file.begin_offset)[6]
        return chain_crc

    def _find_applied(self, first_index: int, last_index: int) -> list[int]:
        codec = self._codec
        self.proven(first_index)
        positions = self._index.positions_in_row(first_index, last_index)
        file = self._file_with(last_index, int(positions[-1]), HEADER_SIZE)
        offsets = positions - file.begin_offset
        if offsets[0] < 0:
            raise self._index.corrupt(first_index)
        content = np.frombuffer(file.view(), np.uint8)
        ends = content[offsets + _CHANNEL_END]
        is_found = ends == codec.applied_channel & _BYTE_MAX
        if codec.marker_at >= 0:
            markers = content[np.minimum(offsets + (HEADER_SIZE + codec.marker_at), len(content) - 1)]
            is_found |= (markers & MARKER_MASK == MARKER) & ~self._is_own[ends]
        if codec.effect_at >= 0:
            at = np.minimum(offsets + (HEADER_SIZE + codec.effect_at), len(content) - 2)
            is_found |= (content[at] | content[at + 1]) & EFFECT_MARK != 0
        found: list[int] = (np.flatnonzero(is_found) + first_index).tolist()
        return found

    def _find_applied_of_few(self, first_index: int, last_index: int) -> list[int]:
        """Find them from the headers, one by one: for a few entries a tenth of the work."""
        codec, found = self._codec, []
        applied_end, marker_at, effect_at = codec.applied_channel & _BYTE_MAX, codec.marker_at, codec.effect_at
        for index in range(first_index, last_index + 1):
            _, position, size, _, _ = self.proven(index)
            file = self._file_with(index, position, size)
            view, offset = file.view(), position - file.begin_offset
            end, marker, mark = view[offset + _CHANNEL_END], 0, 0
            if 0 <= marker_at < size - HEADER_SIZE:
                marker = view[offset + HEADER_SIZE + marker_at]
            if 0 <= effect_at < size - HEADER_SIZE - 1:
                at = offset + HEADER_SIZE + effect_at
                mark = (view[at] | view[at + 1]) & EFFECT_MARK
            is_lost = marker & MARKER_MASK == MARKER and end not in self._own_ends
            if mark or end == applied_end or is_lost:
                found.append(index)
        return found

    def _file_with(self, index: int, position: int, size: int) -> MappedFile:
        """Return the file with these bytes of entry `index`; a damaged index unit may contain any position."""
        file = self._data.find(position)
        if file is None or not 0 <= size <= file.end_offset - position:
            raise self._index.corrupt(index)
        return file


def decode_all(encoded: bytes) -> list[Entry]:
    """Decode entries whose bytes were checked."""
    offset, entries = 0, []
    while offset < len(encoded):
        entry = decode(encoded, offset)
        entries.append(entry)
        offset += entry.size
    return entries

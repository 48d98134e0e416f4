"""Reads entries by index or position, out of the maps of the data files.

A caller that asks for an entry which the log does not hold gets `EntryNotFound`; bytes that are not what they were
written as raise `CorruptData`, here and not only at recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dledger.entries.errors import EntryNotFound
from dledger.entries.format.entry import CHANNEL_OFFSET, HEADER, HEADER_SIZE, Entry, decode
from dledger.entries.format.walk import UNKNOWN, WalkState, describe_fault, walk
from dledger.entries.log_head import LogHead
from dledger.entries.push import Predecessor
from dledger.types import UNKNOWN_TERM, LogState, Span, TermRun
from store.errors import CorruptData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.index import EntryIndex, IndexUnit
    from dledger.entries.recovery import RecoveredLog
    from store.fs.mapped_file import MappedFile
    from store.fs.mapped_file_queue import MappedFileQueue

# Offset in an entry of the last, lowest byte of its channel.
_CHANNEL_END = CHANNEL_OFFSET + 3
_BYTE_MAX = 0xFF
# Up to here a loop is faster than numpy.
_FEW_ENTRIES = 16


class EntryReader:
    """Finds and reads entries; `EntryStore` is one, and keeps the bounds up to date.

    Attributes:
        begin_index: the first entry, or the one that an empty log will begin with.
        begin_position: the position of that entry, also of one not yet written.
        begin_prev_term: term of the entry before; `NO_TERM` or `UNKNOWN_TERM` without one.
        begin_chain_crc: what the first entry's chain starts from; UNKNOWN (-1) when that is gone.
        last_index: the last entry; `begin_index - 1` when there is none.
        codec: distinguishes a leader's own entries from those of clients.
    """

    def __init__(self, data: MappedFileQueue, index: EntryIndex, log: RecoveredLog, codec: EntryCodec) -> None:
        self.codec = codec
        self._data = data
        self._index = index
        self._file_size = data.file_size
        # `begin_index <= last_index + 1`, with equality in an empty log; only `delete_before` and `reset` move it.
        self.begin_index = log.begin_index
        self.begin_position = log.begin_position
        self.begin_prev_term = log.begin_prev_term
        self.begin_chain_crc = log.begin_chain_crc
        self.last_index = log.last_index

    @property
    def head(self) -> LogHead:
        """Where the log begins."""
        return LogHead(self.begin_index, self.begin_position, self.begin_prev_term, prev_chain_crc=self.begin_chain_crc)

    def _begin_at(self, head: LogHead) -> None:
        self.begin_index, self.begin_position = head.begin_index, head.begin_position
        self.begin_prev_term, self.begin_chain_crc = head.prev_term, head.chain_crc

    def term_before(self, index: int) -> int:
        """Return the term of the entry before `index`; unknown where the log neither holds it nor begins after it."""
        if index == self.begin_index:
            return self.begin_prev_term
        return self._index.term_at(index - 1) if self.begin_index < index <= self.last_index + 1 else UNKNOWN_TERM

    def unit(self, index: int) -> IndexUnit:
        """Return where and what an entry is; raises as `fit`."""
        self._check_held(index)
        return self._index.unit(index)

    def term_runs(self) -> tuple[TermRun, ...]:
        """Return the terms of all entries; found by bisecting, for terms never fall."""
        runs: list[TermRun] = []
        index = self.begin_index
        while index <= self.last_index:
            term = self._index.term_at(index)
            runs.append(TermRun(index, term))
            index = self._index.last_of_term(index, self.last_index, term) + 1
        return tuple(runs)

    def log_state(self) -> LogState:
        """Return what the consensus core starts from."""
        return LogState(self.begin_index, self.begin_prev_term, self.last_index, self.term_runs())

    def fit(self, first_index: int, last_index_max: int, size_bytes_max: int) -> Span:
        """Return the longest span from `first_index` to at most `last_index_max` that can travel together.

        That is: of one term, in one data file, and all together at most `size_bytes_max` bytes; but the first entry
        always counts.

        Raises:
            EntryNotFound: `first_index` is not in the log.
        """
        self._check_held(first_index)
        last_index = min(last_index_max, self.last_index)
        fields = self._index.fields
        _, position, size, _, term = fields(first_index)
        file_end = position - position % self._file_size + self._file_size
        end_max = min(position + max(size_bytes_max, size), file_end)

        def belongs(at_position: int, at_size: int, at_term: int) -> bool:
            return at_term == term and at_position + at_size <= end_max

        _, last_position, last_size, _, last_term = fields(last_index)
        # Most often all that is there belongs.
        if last_term != term or last_position + last_size > end_max:
            last_index = self._index.last_where(first_index + 1, last_index - 1, belongs)
            _, last_position, last_size, _, _ = fields(last_index)
        return Span(first_index, last_index, term, position, last_position + last_size - position)

    def span_of(self, first_index: int, last_index: int) -> Span:
        """Return the span of these entries, which must `fit`; raises as `fit`."""
        self._check_held(first_index)
        self._check_held(last_index)
        _, position, _, _, term = self._index.fields(first_index)
        _, last_position, last_size, _, last_term = self._index.fields(last_index)
        if term != last_term or position // self._file_size != last_position // self._file_size:
            raise self._index.corrupt(last_index)
        return Span(first_index, last_index, term, position, last_position + last_size - position)

    def read_checked(self, span: Span) -> bytes:
        """Return the entries of a span that `fit` or `span_of` returned, as stored in the file.

        All of their checksums are checked, which takes about a microsecond an entry.

        Raises:
            store.errors.CorruptData: the file does not hold what was written; answer nothing from it.
        """
        self._file_with(span.first_index, span.position, span.length)
        encoded = self._data.read(span.position, span.length)
        view, end = memoryview(encoded), len(encoded)
        state = WalkState(span.first_index, span.term, self.chain_crc_before(span.first_index))
        done = walk(view, 0, end, span.position, state, span.last_index - span.first_index + 1, self.codec)
        if done.offset != end or done.state.index != span.last_index + 1 or done.state.term != span.term:
            position = span.position + done.offset
            file = self._file_with(span.last_index, position, 0)
            expected, found = describe_fault(view, done.offset, end, position, done.state, self.codec)
            raise CorruptData(file.path, position - file.begin_offset, expected, found)
        return encoded

    def read_entries(self, first_index: int, last_index: int) -> list[Entry]:
        """Return these entries, which must `fit`, checked and decoded.

        Raises:
            EntryNotFound: they are not all in the log.
            store.errors.CorruptData: the file does not hold what was written; answer nothing from it.
        """
        encoded = self.read_checked(self.span_of(first_index, last_index))
        offset, entries = 0, []
        while offset < len(encoded):
            entry = decode(encoded, offset)
            entries.append(entry)
            offset += entry.size
        return entries

    def read_channel(self, first_index: int, last_index: int, channel: int) -> list[Entry]:
        """Return those of these entries that have `channel`, checked and decoded; raises as `read_entries`.

        The others are not read: it costs some ten nanoseconds for each of them. All of them must be in one file.
        """
        self._check_held(first_index)
        self._check_held(last_index)
        is_few = last_index - first_index < _FEW_ENTRIES
        find = self._find_few_of_channel if is_few else self._find_of_channel
        return [entry for entry in map(self.get, find(first_index, last_index, channel)) if entry.channel == channel]

    def _find_of_channel(self, first_index: int, last_index: int, channel: int) -> list[int]:
        """Return the indexes of entries whose channel ends with the byte that `channel` ends with."""
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

    def get(self, index: int) -> Entry:
        """Return one entry, checked; raises as `read_entries`."""
        return self.read_entries(index, index)[0]

    def term_at(self, index: int) -> int:
        """Return the term of an entry; raises as `fit`."""
        self._check_held(index)
        return self._index.term_at(index)

    def position_of(self, index: int) -> int:
        """Return where an entry begins; raises as `fit`."""
        self._check_held(index)
        return self._index.fields(index)[1]

    def end_position_of(self, index: int) -> int:
        """Return the position after an entry; raises as `fit`."""
        self._check_held(index)
        _, position, size, _, _ = self._index.fields(index)
        return position + size

    def index_at_position(self, position: int) -> int:
        """Return the index of the entry that begins at `position`.

        Raises:
            EntryNotFound: none begins there.
        """
        index = self._index.last_where(self.begin_index, self.last_index, lambda at, _size, _term: at <= position)
        if index < self.begin_index or self._index.fields(index)[1] != position:
            raise EntryNotFound(f"at position {position}", self.begin_index, self.last_index)
        return index

    def data_file(self, position: int) -> MappedFile | None:
        """Return the data file that holds the byte at `position`, if there is one; to read, as the log says."""
        return self._data.find(position)

    @property
    def data_file_size(self) -> int:
        """Bytes of each data file."""
        return self._file_size

    def index_before(self, position: int) -> int:
        """Return the last entry that begins before `position`; `begin_index - 1` when there is none."""
        return self._index.last_where(self.begin_index, self.last_index, lambda at, _size, _term: at < position)

    def positions_within(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the positions in `[begin, end)` at which entries begin.

        Raises:
            store.errors.CorruptData: the index files do not hold them; opening the store again rebuilds them.
        """
        first_index, last_index = self.index_before(begin) + 1, self.index_before(end)
        if first_index > last_index:
            return np.empty(0, np.int64)
        return self._index.positions(first_index, last_index)

    def old_files(self, count_max: int) -> list[tuple[str, int]]:
        """Return (path, end index) of the oldest data files, at most that number; entries of a file are below its end.

        The file that holds the last entry is not among them.

        Raises:
            store.errors.CorruptData: the index does not know the first entry of a file.
        """
        if self.last_index < self.begin_index:
            return []
        last_begin = self.position_of(self.last_index) // self._file_size * self._file_size
        older = [file for file in self._data.mapped_files[:count_max] if file.begin_offset < last_begin]
        try:
            return [(file.path, self.index_at_position(file.end_offset)) for file in older]
        except EntryNotFound as error:
            directory = self._index.queue.directory
            raise CorruptData(directory, 0, "the entry with which a data file begins", str(error)) from error

    def newest_path(self) -> str | None:
        """Return the path of the data file that holds the last entry; None when there is none."""
        if self.last_index < self.begin_index:
            return None
        file = self._data.find(self.position_of(self.last_index))
        return None if file is None else file.path

    def predecessor(self, index: int) -> Predecessor:
        """Return what an entry after `index` must agree with; `index` may be `begin_index - 1`."""
        if index < self.begin_index:
            return Predecessor(self.begin_position, self.chain_crc_before(self.begin_index))
        return Predecessor(self.end_position_of(index), self.chain_crc_before(index + 1))

    def chain_crc_before(self, index: int) -> int:
        """Return the chain checksum that entry `index` starts from; UNKNOWN (-1) when the entry before was deleted."""
        if index <= self.begin_index:
            return self.begin_chain_crc
        position = self._index.fields(index - 1)[1]
        file = self._file_with(index - 1, position, HEADER_SIZE)
        chain_crc: int = HEADER.unpack_from(file.view(), position - file.begin_offset)[6]
        return chain_crc

    def proven_chain_before(self, index: int) -> int:
        """Return what the chain of an entry starts from, if that fits the entry; UNKNOWN (-1) if either is damaged."""
        try:
            self.get(index)
        except CorruptData:
            return UNKNOWN
        return self.chain_crc_before(index)

    def _check_held(self, index: int) -> None:
        if not self.begin_index <= index <= self.last_index:
            raise EntryNotFound(f"with index {index}", self.begin_index, self.last_index)

    def _file_with(self, index: int, position: int, size: int) -> MappedFile:
        """Return the file that holds these bytes of entry `index`; a damaged index unit may name any."""
        file = self._data.find(position)
        if file is None or not 0 <= size <= file.end_offset - position:
            raise self._index.corrupt(index)
        return file

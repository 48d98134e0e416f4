"""Reserves disk space for the next entries, in the data files and in the index files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.entries.format.entry import BLANK_SIZE_MIN
from store.errors import DiskFull

if TYPE_CHECKING:
    from dledger.entries.aside import Aside
    from dledger.entries.index import EntryIndex
    from dledger.types import Span
    from store.fs.mapped.mapped_file_queue import MappedFileQueue


class EntrySpace:
    """Reserves space in the files of one log; on a full disk it first deletes the log that was set aside.

    Args:
        data, index: of the log.
        aside: of the same node.
    """

    __slots__ = ("_aside", "_data", "_file_size", "_index")

    def __init__(self, data: MappedFileQueue, index: EntryIndex, aside: Aside) -> None:
        self._data = data
        self._index = index
        self._aside = aside
        self._file_size = data.file_size

    def reserve(self, begin: int, end: int, first_index: int, last_index: int) -> None:
        """Reserve space for the entries `[first_index, last_index]` at the positions `[begin, end)`, and a blank.

        Raises:
            store.errors.DiskFull: nothing was changed, except that empty files may have been added.
        """
        while True:
            try:
                self._data.reserve(begin, end + BLANK_SIZE_MIN)
                self._index.reserve(first_index, last_index)
            except DiskFull:
                if not self._aside.free_one():
                    raise
            else:
                return

    def reserve_span(self, span: Span, log_begin: tuple[int, int], log_end: tuple[int, int]) -> None:
        """Reserve space for entries of a peer.

        Args:
            span: of the entries.
            log_begin: index and position of the log's first entry.
            log_end: index and position of the entry after its last one.

        Raises:
            store.errors.DiskFull: as `reserve`.
        """
        (begin_index, begin_position), (end_index, end_position) = log_begin, log_end
        # Entries that begin after the end of the log will be refused: there is a gap.
        if span.position <= end_position - end_position % self._file_size + self._file_size:
            # A delayed push may begin with entries that this node has deleted.
            begin = max(min(end_position, span.position), begin_position)
            first_index = max(min(end_index, span.first_index), begin_index)
            if span.last_index >= first_index:
                self.reserve(begin, span.position + span.length, first_index, span.last_index)

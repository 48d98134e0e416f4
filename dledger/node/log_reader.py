"""Reads committed entries in chunks within a reader's limits; a read that fails is refused with a code.

Not here: which entries are committed, and confirming that (`dledger.node.node`), gRPC (`dledger.service.log`).

Invariant: no entry after the caller's last index is ever returned, and none with wrong checksums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.entries.errors import EntryNotFound
from dledger.errors import ResponseCode
from dledger.node.status import position_after
from dledger.pending.reads import RequestRefused
from store.errors import CorruptData

if TYPE_CHECKING:
    from dledger.entries.format.entry import Entry
    from dledger.entries.store import EntryStore
    from dledger.types import Span

# Size of a chunk: large enough that its overhead is negligible, small enough that decoding it (about 2 microseconds per
# entry) does not delay heartbeats.
PIECE_SIZE_BYTES_MAX = 256 * 1024
PIECE_ENTRIES_MAX = 1024
# Above the size of any log; a larger limit is a mistake of the caller.
LIMIT_MAX = 1 << 62


class LogReader:
    """Checks the start of a read and creates its cursor.

    Args:
        store: the log.
    """

    def __init__(self, store: EntryStore) -> None:
        self._store = store

    def at_index(self, index: int, last_index: int) -> int:
        """Check that a read may begin at `index` when entries up to `last_index` may be read.

        Raises:
            RequestRefused: 419 before the log's start, 410 beyond `last_index + 1`.
        """
        begin_index = self._store.begin_index
        if index < begin_index:
            raise _before_begin(f"index {index}", begin_index)
        if index > last_index + 1:
            raise RequestRefused(
                ResponseCode.INDEX_OUT_OF_RANGE,
                f"index {index} is beyond the end; the last committed index is {last_index}",
            )
        return index

    def at_position(self, position: int, last_index: int) -> int:
        """Return the index of the entry that begins at `position`, or `last_index + 1` for the end.

        Raises:
            RequestRefused: 419 before the log's start, 410 beyond the end of `last_index`, 411 where no entry begins.
        """
        store = self._store
        end_position = position_after(store, last_index)
        if position < store.begin_position:
            raise _before_begin(f"position {position}", store.begin_index)
        if position > end_position:
            raise RequestRefused(
                ResponseCode.INDEX_OUT_OF_RANGE, f"position {position} is beyond the committed end at {end_position}"
            )
        if position == end_position:
            return last_index + 1
        try:
            return store.index_at_position(position)
        except EntryNotFound as error:
            raise RequestRefused(ResponseCode.UNEXPECTED_ARGUMENT, f"no entry begins at position {position}") from error

    def cursor(self, first_index: int, max_entries: int = 0, max_size_bytes: int = 0) -> LogCursor:
        """Return a cursor at `first_index`.

        Args:
            first_index: as `at_index` or `at_position` returned it.
            max_entries: 0 means no limit.
            max_size_bytes: of encoded entries, but at least one is read; 0 means no limit.

        Raises:
            RequestRefused: 411, a limit is negative or absurd.
        """
        for name, limit in (("max_entries", max_entries), ("max_bytes", max_size_bytes)):
            if not 0 <= limit <= LIMIT_MAX:
                raise RequestRefused(
                    ResponseCode.UNEXPECTED_ARGUMENT, f"{name}: expected 0 (no limit) to {LIMIT_MAX}, found {limit}"
                )
        return LogCursor(self._store, first_index, max_entries or LIMIT_MAX, max_size_bytes or LIMIT_MAX)


class LogCursor:
    """A forward cursor on the log; obtained from `LogReader.cursor`.

    Attributes:
        next_index: index of the next entry.
        is_done: a limit is reached; no more entries are read.
    """

    def __init__(self, store: EntryStore, next_index: int, entries_left: int, size_bytes_left: int) -> None:
        self.next_index = next_index
        self.is_done = False
        self._store = store
        self._entries_left = entries_left
        self._size_bytes_left = size_bytes_left
        self._is_begun = False

    def read_entries(self, last_index: int) -> list[Entry]:
        """Return the next entries, at least one; none when `last_index` or a limit is reached.

        Raises:
            RequestRefused: 419, the entries were deleted meanwhile; 414, they are damaged on this node's disk.
        """
        try:
            span = self._next_span(last_index)
            if span is None:
                return []
            entries = self._store.read_entries(span.first_index, span.last_index)
        except (EntryNotFound, CorruptData) as error:
            raise self._refusal(error) from error
        self._advance(span)
        return entries

    def read_encoded(self, last_index: int) -> bytes:
        """Return the next whole entries as stored on disk, with checked checksums; else as `read_entries`."""
        try:
            span = self._next_span(last_index)
            if span is None:
                return b""
            encoded = self._store.read_checked(span)
        except (EntryNotFound, CorruptData) as error:
            raise self._refusal(error) from error
        self._advance(span)
        return encoded

    def _next_span(self, last_index: int) -> Span | None:
        if self.is_done or self.next_index > last_index:
            return None
        count_max = min(self._entries_left, PIECE_ENTRIES_MAX)
        size_max = min(self._size_bytes_left, PIECE_SIZE_BYTES_MAX)
        span = self._fit(min(last_index, self.next_index + count_max - 1), size_max)
        if span.length > self._size_bytes_left and self._is_begun:
            self.is_done = True
            return None
        return span

    def _fit(self, last_index_max: int, size_max: int) -> Span:
        store = self._store
        return store.fit(self.next_index, last_index_max, size_max)

    def _advance(self, span: Span) -> None:
        self._is_begun = True
        self._entries_left -= span.last_index - span.first_index + 1
        self._size_bytes_left -= span.length
        self.next_index = span.last_index + 1
        self.is_done = self._entries_left <= 0 or self._size_bytes_left <= 0

    def _refusal(self, error: EntryNotFound | CorruptData) -> RequestRefused:
        if isinstance(error, CorruptData):
            return RequestRefused(ResponseCode.DISK_ERROR, str(error))
        return _before_begin(f"index {self.next_index}", self._store.begin_index)


def _before_begin(asked: str, begin_index: int) -> RequestRefused:
    return RequestRefused(
        ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN, f"{asked} is before the start of the log at index {begin_index}"
    )

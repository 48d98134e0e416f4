"""Finds the position of a time in a log by bisection, although the time of a single record may be wrong.

Store timestamps never decrease along a log, but no checksum covers them in a plain log, and the clock of a Java broker
may have been set back. A record with a wrong time must not send the search to the wrong half. So a time counts only if
it is *confirmed*: not lower than that of the record before it, and not higher than that of the record after it. The
records between the last one that is confirmed to be older and the first one that is not older are read one by one.

What remains: a record with a wrong time is itself found by that time only if it is near its position.

Not here: the time of a message in a queue (`pipeline.log.queue_search`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from commitlog.record.record import decode
from commitlog.record.resync import find_good

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from commitlog.offline.directory import LogFileInfo

# Records that are read in search of one whose time is confirmed. Damage seldom changes more than one.
_NEIGHBOURS_MAX: Final = 16
# Records between two confirmed ones that are read one by one; there are at most three if a single time is wrong.
_UNCONFIRMED_MAX: Final = 64


class _Timed(NamedTuple):
    """A record: begin (of its entry) and end in the log, and its time."""

    offset: int
    end: int
    store_timestamp: int


class TimeSearch:
    """Searches one log.

    Args:
        log_files: in order, none empty.
        view: returns the bytes of a file.
    """

    def __init__(self, log_files: Sequence[LogFileInfo], view: Callable[[LogFileInfo], memoryview]) -> None:
        self._log_files = log_files
        self._view = view

    def offset_at(self, store_timestamp_ms: int, begin: int, end: int, *, is_end: bool) -> int:
        """Return the offset of the first record (or its entry) in `[begin, end)` stored at this time or later.

        Args:
            store_timestamp_ms: milliseconds since 1970.
            begin: of a record, or its entry.
            end: of the searched range; returned if all records are older.
            is_end: whether the result ends a range, instead of beginning it. If a wrong time leaves a choice, no record
                before the end, or after the start, of the range is left out.
        """
        low, high = self._bracket(store_timestamp_ms, begin, end)
        first = None
        for count, record in enumerate(self._records(low, high)):
            if count == _UNCONFIRMED_MAX:
                return high if is_end else record.offset if first is None else first
            if record.store_timestamp >= store_timestamp_ms:
                first = record.offset if first is None else first
            elif is_end:
                first = None
        return high if first is None else first

    def _bracket(self, store_timestamp_ms: int, begin: int, end: int) -> tuple[int, int]:
        """Return the end of the last record that is confirmed to be older, and the start of the first that is not.

        Bisects the files, then the bytes of one, resyncing to the next valid record.
        """
        low, high = begin, end
        for file in self._log_files:
            if begin < file.begin_offset < end:
                found = self._confirmed_from(file, file.begin_offset, end)
                if found is not None and found.store_timestamp >= store_timestamp_ms:
                    high = found.offset
                    break
                low = found.end if found is not None else low
        last = next((each for each in self._log_files if each.begin_offset <= low < each.end_offset), None)
        if last is None:
            return low, high
        limit = min(high, last.end_offset)
        while low < limit:
            middle = (low + limit) // 2
            found = self._confirmed_from(last, middle, end)
            if found is not None and found.store_timestamp < store_timestamp_ms and found.offset < high:
                low = found.end
                continue
            limit = middle
            if found is not None and found.store_timestamp >= store_timestamp_ms:
                high = min(high, found.offset)
        return low, high

    def _confirmed_from(self, file: LogFileInfo, offset: int, end: int) -> _Timed | None:
        """Return the first record of a file after the one at or after `offset` whose neighbours confirm its time.

        None: none of the next ones. The last record of a range needs no record after it.
        """
        before = found = None
        for count, following in enumerate(chain(self._records_of(file, offset, end), (None,))):
            if count > _NEIGHBOURS_MAX:
                break
            if before is not None and found is not None and _is_between(found, before, following):
                return found
            before, found = found, following
        return None

    def _records(self, begin: int, end: int) -> Iterator[_Timed]:
        """Yield the valid records of `[begin, end)`."""
        for file in self._log_files:
            if begin < file.end_offset and file.begin_offset < end:
                yield from self._records_of(file, max(begin, file.begin_offset), end)

    def _records_of(self, file: LogFileInfo, offset: int, end: int) -> Iterator[_Timed]:
        """Yield the valid records of one file in `[offset, end)`; `offset` may be within a record."""
        view, base, header = self._view(file), file.begin_offset, file.header_size
        position, stop = offset - base, min(end, file.end_offset) - base
        while position < stop:
            position = find_good(view, position, stop, base_offset=base, header_size=header)
            if position >= stop:
                return
            record = decode(view, position + header)
            begin, position = position, position + header + record.size
            yield _Timed(base + begin, base + position, record.store_timestamp)


def _is_between(found: _Timed, before: _Timed, following: _Timed | None) -> bool:
    """Return whether the times of three successive records do not decrease."""
    after = found if following is None else following
    return before.store_timestamp <= found.store_timestamp <= after.store_timestamp

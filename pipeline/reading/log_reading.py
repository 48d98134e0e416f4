"""Reads a range of a log: finds its records by the index or by a scan, checks, filters and decodes them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from commitlog.record.resync import find_good, resync
from commitlog.record.rows import RecordRows, good_rows
from commitlog.record.scan import RecordWalk, Stop, blank_size, skipped_at, walk
from dledger.entries.format.entry import HEADER
from pipeline.columns.native_columns import RecordPlaces
from pipeline.common.errors import DataLost, LostRange, StoreUnreadable
from pipeline.reading.crc_check import bad_checksums
from pipeline.reading.row_filter import choose, without_system
from store.errors import StorageFailed
from store.model.dispatch_batch import Int64s, Skipped
from store.model.topics import DLEDGER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pipeline.log.selection import Selection
    from pipeline.reading.corrupt_policy import CorruptPolicy
    from store.fs.read_only_files import OpenFiles

_log = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_ROWS: Final = 1 << 14
# Log bytes for one batch; limits the memory of a batch.
BATCH_SIZE_BYTES: Final = 8 << 20


def _nothing(_: RecordPlaces) -> None:
    """Leave all records to `make`."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """The settings for reading slices, and the function that decodes records.

    Attributes:
        make: decodes records; called with (buffer, records, log offset of the buffer's first byte, header bytes before
            each record), with 1 to `batch_rows` records.
        make_at_once: decodes records that are not checked yet, and checks them; None: `make` has to be called.
        selection, verify_crc, on_corrupt, fail_on_data_loss, batch_rows: see `pipeline.reading.read_slice.read_slice`.
    """

    make: Callable[[memoryview, RecordRows, int, int], T]
    selection: Selection
    verify_crc: bool
    on_corrupt: CorruptPolicy
    fail_on_data_loss: bool
    batch_rows: int
    make_at_once: Callable[[RecordPlaces], T | None] = _nothing

    def open(self, open_files: OpenFiles, path: str, lost: LostRange) -> memoryview | None:
        """Return the bytes of a file; None if it was deleted and `fail_on_data_loss` is false.

        Raises: DataLost: the file was deleted; names the lost range. StoreUnreadable: the file cannot be read.
        """
        try:
            return open_files.get(path).view()
        except StorageFailed as error:
            if not isinstance(error.reason, FileNotFoundError):
                raise StoreUnreadable(path, str(error.reason.strerror)) from error
            self.lose(path, lost)
            return None

    def lose(self, path: str, lost: LostRange) -> None:
        """Skip a lost range, or raise.

        Raises: DataLost: `fail_on_data_loss` is true.
        """
        if self.fail_on_data_loss:
            raise DataLost(path, [lost])
        _log.warning("%s: skipped lost messages: %s", path, lost)

    def walk(
        self,
        view: memoryview,
        base: int,
        path: str,
        header_size: int,
        *,
        position: int = 0,
        stop: int | None = None,
        is_end_known: bool = True,
    ) -> Iterator[T]:
        """Scan a range of a file and yield the results for its records.

        Args:
            view: bytes of the file.
            base: offset of its first byte in the log.
            path: of the file.
            header_size: 48 if records are bodies of entries, else 0.
            position: begin of a record (or its entry).
            stop: position after the range; a record that begins before it may end after it.
            is_end_known: whether a record is known to begin at `stop`, or the file ends there.
        """
        end = len(view)
        stop = end if stop is None else stop
        while position < stop:
            size = min(stop - position, BATCH_SIZE_BYTES)
            walked = walk(view, position, end, header_size=header_size, size_bytes_max=size, count_max=self.batch_rows)
            starts, sizes = (np.array(column, np.int64) for column in (walked.starts, walked.sizes))
            good = yield from self._decode_good(view, starts, sizes, base, path, header_size)
            position = self._position_after(view, walked, good, base, path, header_size)
        # The reader of the next range starts at the first record after `stop` with valid checksums. Records before that
        # one are read here.
        while not is_end_known and position < end:
            if find_good(view, position, end, base_offset=base, header_size=header_size) == position:
                return
            walked = walk(view, position, end, header_size=header_size, count_max=1)
            starts, sizes = (np.array(column, np.int64) for column in (walked.starts, walked.sizes))
            good = yield from self._decode_good(view, starts, sizes, base, path, header_size)
            position = self._position_after(view, walked, good, base, path, header_size)

    def _position_after(
        self, view: memoryview, walked: RecordWalk, good: int, base: int, path: str, header_size: int
    ) -> int:
        """Return the position at which reading continues after a scan; the policy handles corrupt bytes."""
        end, at = len(view), walked.position
        if good < len(walked.starts) or walked.stop is Stop.BAD:
            skipped = skipped_at(view, walked, good, end, base_offset=base, path=path, header_size=header_size)
            if skipped is None:
                return self._position_of_valid(view, walked.starts[good], walked.sizes[good], base, path, header_size)
            return self.skip(skipped, view)
        if walked.stop is Stop.BLANK:
            return min(at + blank_size(view, at, header_size), len(view))
        if walked.stop is Stop.ZEROS:
            after = resync(view, at, end, base_offset=base, header_size=header_size)
            return self.skip(Skipped(path, at, base + at, after - at, "a record or a filler", "zeros"), view)
        return at

    def _position_of_valid(
        self, view: memoryview, start: int, size: int, base: int, path: str, header_size: int
    ) -> int:
        """Return the position at which reading continues, if a record is valid that was not before.

        Either it has been completed since, and is read again, or the header of its entry is corrupt.
        """
        begin = start - header_size
        _, rows = _rows(view, np.array([start], np.int64), np.array([size], np.int64), base, header_size)
        if len(rows):
            return begin
        expected = f"the header of a client's entry of {header_size + size} bytes at {base + begin}"
        found = f"a header {HEADER.unpack_from(view, begin)}"
        return self.skip(Skipped(path, begin, base + begin, header_size + size, expected, found), view)

    def _decode_good(
        self, view: memoryview, starts: Int64s, sizes: Int64s, base: int, path: str, header_size: int
    ) -> Generator[T, None, int]:
        """Yield the messages up to the first bad one; return the number of good messages."""
        if not len(starts):
            return 0
        window_begin, window_end = int(starts[0]) - header_size, int(starts[-1] + sizes[-1])
        begins = starts - window_begin
        places = view[window_begin:window_end], begins, begins + sizes
        found = self.decode_at_once(*places, base + window_begin, header_size)
        if found is not None:
            yield found
            return len(starts)
        first, rows = _rows(view, starts, sizes, base, header_size)
        window = view[first:window_end]
        yield from self.decode(window, rows, base + first, path, first, header_size)
        return len(rows)

    def decode_at_once(
        self,
        window: memoryview,
        begins: Int64s,
        ends: Int64s,
        base: int,
        header_size: int,
        first_index: int | None = None,
    ) -> T | None:
        """Check and decode records in one step, which is faster; None: it has to be done in several.

        Args:
            window: holds the records.
            begins: of the records, ascending.
            ends: of the records.
            base: offset of the window's first byte in the log.
            header_size: as of `walk`.
            first_index: of the first of consecutive entries; None: not checked.
        """
        if not self.selection.is_all or not len(begins) or (self.verify_crc and not header_size):
            return None
        refused = DLEDGER_TOPIC if header_size else ""
        return self.make_at_once(
            RecordPlaces(window, begins, ends, header_size, base, first_index, self.verify_crc, refused)
        )

    def decode(
        self,
        window: memoryview,
        rows: RecordRows,
        base: int,
        path: str,
        position: int,
        header_size: int,
        *,
        is_topic_known: bool = False,
    ) -> Iterator[T]:
        """Yield the results for the selected rows.

        Args:
            window: holds the records.
            rows: valid records except for their checksums, which are not checked yet.
            base: offset of the window's first byte in the log.
            path: of the file.
            position: of the window's first byte in the file.
            header_size: as of `walk`.
            is_topic_known: as of `pipeline.reading.row_filter.choose`.
        """
        if header_size:
            rows = without_system(window, rows)
        rows = choose(window, rows, self.selection, is_topic_known=is_topic_known)
        if self.verify_crc and len(rows):
            is_bad = np.zeros(len(rows), np.bool_)
            for row, expected, found in bad_checksums(window, rows, header_size):
                is_bad[row] = True
                begin, end = int(rows.begins[row]) - header_size, int(rows.ends[row])
                skipped = Skipped(path, position + begin, base + begin, end - begin, expected, found)
                self.on_corrupt.handle(skipped, window[begin:end])
            rows = rows.select(~is_bad) if is_bad.any() else rows
        if len(rows):
            yield self.make(window, rows, base, header_size)

    def skip(self, skipped: Skipped, view: memoryview) -> int:
        """Apply the policy to corrupt bytes of a file; return the position after them."""
        after = skipped.position + skipped.size
        self.on_corrupt.handle(skipped, view[skipped.position : after])
        return after


def _rows(view: memoryview, starts: Int64s, sizes: Int64s, base: int, header_size: int) -> tuple[int, RecordRows]:
    """Return the records up to the first bad one, and the position from which they are counted."""
    first, last = int(starts[0]) - header_size, int(starts[-1] + sizes[-1])
    data = np.frombuffer(view[first:last], np.uint8)
    begins = starts - first
    return first, good_rows(data, begins, begins + sizes, base + first, has_headers=header_size > 0)

"""Reads a range of a log: finds its records by the index or by a scan, checks, filters and decodes them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from commitlog.record.resync import find_good, resync
from commitlog.record.rows import RecordRows, good_rows
from commitlog.record.scan import RecordWalk, Stop, blank_size, skipped_at, walk
from pipeline.common.errors import DataLost, LostRange, StoreUnreadable
from pipeline.reading.crc_check import bad_checksums
from pipeline.reading.row_filter import choose, without_system
from store.errors import StorageFailed
from store.model.dispatch_batch import Int64s, Skipped

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


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """The settings for reading slices, and the function that decodes records.

    Attributes:
        make: decodes records; called with (buffer, records, log offset of the buffer's first byte, header bytes before
            each record), with 1 to `batch_rows` records.
        selection, verify_crc, on_corrupt, fail_on_data_loss, batch_rows: see `pipeline.reading.read_slice.read_slice`.
    """

    make: Callable[[memoryview, RecordRows, int, int], T]
    selection: Selection
    verify_crc: bool
    on_corrupt: CorruptPolicy
    fail_on_data_loss: bool
    batch_rows: int

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
            assert skipped is not None, (path, at, good)
            return self.skip(skipped, view)
        if walked.stop is Stop.BLANK:
            return min(at + blank_size(view, at, header_size), len(view))
        if walked.stop is Stop.ZEROS:
            after = resync(view, at, end, base_offset=base, header_size=header_size)
            return self.skip(Skipped(path, at, base + at, after - at, "a record or a filler", "zeros"), view)
        return at

    def _decode_good(
        self, view: memoryview, starts: Int64s, sizes: Int64s, base: int, path: str, header_size: int
    ) -> Generator[T, None, int]:
        """Yield the messages up to the first bad one; return the number of good messages."""
        if not len(starts):
            return 0
        first, rows = _rows(view, starts, sizes, base, header_size)
        window = view[first : int(starts[-1] + sizes[-1])]
        yield from self.decode(window, rows, base + first, path, first, header_size)
        return len(rows)

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

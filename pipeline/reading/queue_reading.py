"""Reads a range of one queue through its consume queue: only the messages of that queue are read."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Final, Generic

import numpy as np

from commitlog.offline.directory import LogFileInfo, find_store
from commitlog.record.record import find_fault
from commitlog.record.rows import RecordRows, good_rows
from pipeline.common.errors import DataLost, LostRange, StoreUnreadable
from pipeline.reading.log_reading import Reading, T
from store.check.queue_view import QueueView, load_queue_files
from store.errors import StoreError
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles
from store.model.dispatch_batch import Bools, Int64s, Skipped
from store.model.message import QueueKey
from store.model.tags_codes import may_match
from store.queues.unit import BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pipeline.log.slice import Slice

# After any offset.
_ANYTHING: Final = 1 << 62


class QueueReading(Generic[T]):
    """Reads one slice of a queue.

    Args:
        reading: settings.
        part: the slice.
    """

    def __init__(self, reading: Reading[T], part: Slice) -> None:
        assert part.topic is not None
        self._reading = reading
        self._part = part
        self._topic = part.topic
        self._files = ReadOnlyFiles()
        self._open_files = OpenFiles(self._files)

    def batches(self) -> Iterator[T]:
        """Yield its messages, in the order of the queue."""
        try:
            log_files = self._log_files()
            queue = self._queue()
            part, step = self._part, self._reading.batch_rows
            for begin in range(part.begin_queue_offset, part.end_queue_offset, step):
                units = queue.units(begin, min(begin + step, part.end_queue_offset))
                yield from self._of_units(log_files, begin, units)
        finally:
            self._open_files.close_all()

    def _log_files(self) -> list[LogFileInfo]:
        try:
            return find_store(self._files, self._part.root).log_files
        except StoreError as error:
            raise StoreUnreadable(self._part.root, str(error)) from error

    def _queue(self) -> QueueView:
        directory = self._part.path
        try:
            queue_files = load_queue_files(self._files, self._open_files, directory, [])
            return QueueView(self._open_files, QueueKey(self._topic, self._part.queue_id), directory, queue_files)
        except StoreError as error:
            raise StoreUnreadable(directory, str(error)) from error

    def _of_units(self, log_files: Sequence[LogFileInfo], begin: int, units: NDArray[np.void]) -> Iterator[T]:
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        numbers = np.arange(begin, begin + len(units), dtype=np.int64)
        is_wanted: Bools = (sizes != BLANK_SIZE) | (offsets != 0)
        is_wanted &= may_match(self._reading.selection.tag_filter, units["tags_code"].astype(np.int64)) | (
            self._reading.selection.tag_filter.is_everything
        )
        offsets, sizes, numbers = offsets[is_wanted], sizes[is_wanted], numbers[is_wanted]
        first = 0
        while first < len(offsets):
            file, end = _file_of(log_files, int(offsets[first]))
            last = max(first + 1, int(np.searchsorted(offsets, end)))
            if file is not None:
                yield from self._of_file(file, offsets[first:last], sizes[first:last], numbers[first:last])
            elif self._reading.fail_on_data_loss:
                raise DataLost(self._part.root, self._lost(log_files, first=int(numbers[first])))
            else:
                self._reading.lose(self._part.root, self._lost_range(numbers[first:last]))
            first = last

    def _lost(self, log_files: Sequence[LogFileInfo], first: int) -> list[LostRange]:
        """Return the range from unit `first` on whose messages are in no file of the log."""
        queue, found = self._queue(), list[LostRange]()
        offsets = queue.units(first, self._part.end_queue_offset)["physical_offset"].astype(np.int64)
        numbers = np.arange(first, first + len(offsets))
        at = 0
        while at < len(offsets):
            file, end = _file_of(log_files, int(offsets[at]))
            last = max(at + 1, int(np.searchsorted(offsets, end)))
            found += [self._lost_range(numbers[at:last])] if file is None else []
            at = last
        return found

    def _lost_range(self, numbers: Int64s) -> LostRange:
        what = f"topic {self._topic}, queue {self._part.queue_id}"
        return LostRange(what, int(numbers[0]), int(numbers[-1]) + 1, "no file of the log contains it any more")

    def _of_file(self, file: LogFileInfo, offsets: Int64s, sizes: Int64s, numbers: Int64s) -> Iterator[T]:
        view = self._reading.open(self._open_files, file.path, self._lost_range(numbers))
        if view is None:
            return
        starts, base = offsets - file.begin_offset, file.begin_offset
        first = max(int(starts[0]) - file.header_size, 0)
        window = view[first : min(int(starts[-1] + sizes[-1]), len(view))]
        rows = self._good(window, starts - first, sizes, numbers, file, first)
        yield from self._reading.decode(
            window, rows, base + first, file.path, first, file.header_size, is_topic_known=True
        )

    def _good(
        self, window: memoryview, begins: Int64s, sizes: Int64s, numbers: Int64s, file: LogFileInfo, first: int
    ) -> RecordRows:
        """Return the rows of good records of this queue; the policy handles the others."""
        data: NDArray[Any] = np.frombuffer(window, np.uint8)
        ends, base = begins + sizes, file.begin_offset + first
        is_inside = (begins >= 0) & (sizes > 0) & (ends <= len(window))
        for at in np.flatnonzero(~is_inside).tolist():
            self._skip_unit(file, window, int(begins[at]), int(sizes[at]), first)
        begins, ends, numbers = begins[is_inside], ends[is_inside], numbers[is_inside]
        found: list[tuple[Int64s, Int64s]] = []
        while len(begins):
            rows = good_rows(data, begins, ends, base, has_headers=file.header_size > 0)
            good = len(rows)
            is_own = (rows.fields["queue_id"] == self._part.queue_id) & (rows.fields["queue_offset"] == numbers[:good])
            for at in np.flatnonzero(~is_own).tolist():
                self._skip_unit(file, window, int(begins[at]), int(ends[at] - begins[at]), first)
            found.append((begins[:good][is_own], ends[:good][is_own]))
            if good < len(begins):
                self._skip_unit(file, window, int(begins[good]), int(ends[good] - begins[good]), first)
                good += 1
            begins, ends, numbers = begins[good:], ends[good:], numbers[good:]
        if len(found) == 1:
            begins, ends = found[0]
        else:
            begins = np.concatenate([np.empty(0, np.int64), *(begins for begins, _ in found)])
            ends = np.concatenate([np.empty(0, np.int64), *(ends for _, ends in found)])
        return good_rows(data, begins, ends, base, has_headers=file.header_size > 0)

    def _skip_unit(self, file: LogFileInfo, window: memoryview, begin: int, size: int, first: int) -> None:
        position = first + begin
        offset = file.begin_offset + position
        fault = find_fault(window, max(begin, 0), min(begin + max(size, 0), len(window)), physical_offset=offset)
        expected, found = ("a message of this queue", "another one") if fault is None else fault[1:]
        skipped = Skipped(file.path, position, offset, size, f"{expected} (through {self._part.path})", found)
        self._reading.on_corrupt.handle(skipped, window[max(begin, 0) : max(begin + size, 0)])


def _file_of(log_files: Sequence[LogFileInfo], offset: int) -> tuple[LogFileInfo | None, int]:
    """Return the file that contains an offset, and its end; if there is none, None and the start of the next file."""
    after = bisect.bisect_right(log_files, offset, key=lambda file: file.begin_offset)
    file = log_files[after - 1] if after else None
    if file is not None and offset < file.end_offset:
        return file, file.end_offset
    return None, log_files[after].begin_offset if after < len(log_files) else offset + _ANYTHING

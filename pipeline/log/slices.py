"""Plans the slices of a log for tasks (`pipeline.log.slice`), using only index files, queues and bisection.

The log is not scanned, so planning a terabyte takes seconds. Topics and queues are read through their consume queues;
if most of a range is selected, tasks scan and filter the log instead. They also scan the part that consume queues may
lack, in a store that is in use or was not closed cleanly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipeline.common.errors import DataLost, LostRange, UnknownTopic
from pipeline.log.queue_search import first_at
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.slice import Slice
from pipeline.log.slicing import LogSlicer, are_tiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.log.store_view import StoreView
    from store.check.queue_view import QueueView
    from store.model.message import QueueKey

__all__ = ["QUEUED_SHARE_MAX", "SLICE_SIZE_BYTES", "Slice", "plan"]

SLICE_SIZE_BYTES: Final = 64 << 20
# Share of the bytes up to which queues are read instead of the log; above it a scan is cheaper.
QUEUED_SHARE_MAX: Final = 0.3
# The clock of a store may have been set back a little: a search by time includes this margin on both sides.
_CLOCK_STEP_MS: Final = 1000
_SAMPLE_COUNT: Final = 64
_NO_FILE: Final = "no file contains it"


def plan(
    store: StoreView,
    selection: Selection = EVERYTHING,
    *,
    end: int | None = None,
    partitions_min: int = 1,
    rows_max: int | None = None,
    fail_on_data_loss: bool = True,
) -> list[Slice]:
    """Return the slices that contain each selected message exactly once.

    Args:
        store: the open store; its bounds are those of the plan.
        selection: the conditions; `read_slice` must get the same ones.
        end: exclusive upper bound of physical offsets, if before the store's end.
        partitions_min: least number of slices, if there are that many messages.
        rows_max: largest number of messages per slice; approximate for a plain log, which has no index.
        fail_on_data_loss: raise if messages selected by offset no longer exist, instead of skipping them.

    Raises:
        pipeline.common.errors.UnknownTopic: the store does not have a selected topic or queue.
        pipeline.common.errors.DataLost: see `fail_on_data_loss`.
    """
    return _Plan(store, selection, end, max(partitions_min, 1), rows_max, fail_on_data_loss).slices()


@dataclass(frozen=True, slots=True)
class _QueuePart:
    """The part of one queue to read: units `[begin, end)`, with about `size_bytes` bytes of messages."""

    key: QueueKey
    view: QueueView
    begin: int
    end: int
    size_bytes: int


class _Plan:
    def __init__(
        self,
        store: StoreView,
        selection: Selection,
        end: int | None,
        partitions_min: int,
        rows_max: int | None,
        fail_on_data_loss: bool,
    ) -> None:
        self._store = store
        self._selection = selection
        self._end = store.end_offset if end is None else min(end, store.end_offset)
        self._partitions_min = partitions_min
        self._rows_max = rows_max
        self._fails = fail_on_data_loss
        self._slicer = LogSlicer(store)

    def slices(self) -> list[Slice]:
        lost: list[LostRange] = []
        begin, end = self._bounds(lost)
        # A running program may have queues without files yet.
        if self._selection.is_by_topic and (self._store.queue_views or self._store.is_live):
            found = self._by_queue(begin, end, lost)
        else:
            found = self._of_log(begin, end, lost)
        if lost and self._fails:
            raise DataLost(self._store.path, lost)
        return found

    # ------------------------------------------------------------------------------------------------------ bounds

    def _bounds(self, lost: list[LostRange]) -> tuple[int, int]:
        """Return the range of physical offsets in which all selected messages begin."""
        store, selection = self._store, self._selection
        begin, end = store.begin_offset, self._end
        wanted_end = end if selection.offset_range is None else min(end, selection.offset_range[1])
        if store.lost is not None and selection.index_range is None and wanted_end == store.end_offset:
            lost.append(store.lost)
        if selection.offset_range is not None:
            wanted_begin, wanted_end = selection.offset_range
            _note_lost(lost, "log", (wanted_begin, wanted_end), (store.begin_offset, store.end_offset))
            begin, end = max(begin, wanted_begin), min(end, wanted_end)
        if selection.index_range is not None:
            wanted = selection.index_range
            if store.begin_index < 0:
                _note_lost(lost, "entries", wanted, (0, 0))
                return begin, begin
            _note_lost(lost, "entries", wanted, (store.begin_index, store.end_index))
            begin = max(begin, self._slicer.offset_of(wanted[0]))
            end = min(end, self._slicer.offset_of(wanted[1]))
        if selection.begin_ms is not None:
            begin = max(begin, store.offset_at_time(selection.begin_ms - _CLOCK_STEP_MS))
        if selection.end_ms is not None:
            end = min(end, store.offset_at_time(selection.end_ms + _CLOCK_STEP_MS, is_end=True))
        return begin, max(begin, end)

    # --------------------------------------------------------------------------------------------------- by queue

    def _by_queue(self, begin: int, end: int, lost: list[LostRange]) -> list[Slice]:
        certain = max(begin, min(end, self._store.certain_offset))
        parts: list[_QueuePart] = []
        is_behind = False
        for key, first, last in self._wanted(lost):
            view = self._store.queue_views.get(key)
            part, is_all = (None, False) if view is None else self._queued(view, (first, last), begin, certain)
            parts += [] if part is None else [part]
            is_behind |= not is_all
        is_behind = is_behind and certain < end
        size, span = sum(part.size_bytes for part in parts), self._span(parts)
        if size > QUEUED_SHARE_MAX * (span[1] - span[0]):
            return self._of_log(span[0], end if is_behind else span[1], lost)
        target = self._target_size(size)
        found = [each for part in parts for each in self._queue_slices(part, target)]
        return [*found, *self._of_log(certain, end, lost)] if is_behind else found

    def _wanted(self, lost: list[LostRange]) -> Iterator[tuple[QueueKey, int, int]]:
        """Yield each selected queue and its selected range."""
        store, selection = self._store, self._selection
        self._check_names()
        for key, there in store.queues.items():
            if not selection.wants_queue(*key):
                continue
            wanted = selection.range_of(*key)
            if wanted is not None:
                _note_lost(lost, f"topic {key.topic}, queue {key.queue_id}", wanted, there)
            first, last = there if wanted is None else (max(there[0], wanted[0]), min(there[1], wanted[1]))
            if first < last:
                yield key, first, last

    def _check_names(self) -> None:
        store, selection = self._store, self._selection
        topics = store.topics
        for topic in selection.topics or ():
            if topic not in topics and self._fails:
                raise UnknownTopic(topic, topics)
        for (topic, queue_id), (first, last) in (selection.queue_ranges or {}).items():
            if (topic, queue_id) not in store.queues and first < last and self._fails:
                raise UnknownTopic(topic, topics, queue_id if topic in topics else None)

    def _queued(
        self, view: QueueView, wanted: tuple[int, int], begin: int, certain: int
    ) -> tuple[_QueuePart | None, bool]:
        """Return the selected units of messages in `[begin, certain)`, and whether no later one is selected."""
        store = self._store
        first, last = max(wanted[0], view.begin), min(wanted[1], view.end)
        if begin > store.begin_offset:
            first = first_at(view, first, last, store.record_offset(begin))
        after = first_at(view, first, last, store.record_offset(certain))
        is_all = after == wanted[1]
        if first >= after:
            return None, is_all
        step = max(1, (after - first) // _SAMPLE_COUNT)
        sizes = [unit.size for unit in map(view.unit, range(first, after, step)) if not unit.is_blank]
        size = sum(sizes) * (after - first) // max(len(sizes), 1)
        return _QueuePart(view.key, view, first, after, max(size, 1)), is_all

    def _span(self, parts: list[_QueuePart]) -> tuple[int, int]:
        """Return the range of the log with the messages of these parts."""
        begins = [self._store.entry_offset(part.view.unit(part.begin).offset) for part in parts]
        lasts = [part.view.unit(part.end - 1) for part in parts]
        return min(begins, default=0), max((unit.offset + unit.size for unit in lasts), default=0)

    def _queue_slices(self, part: _QueuePart, target: int) -> Iterator[Slice]:
        count = part.end - part.begin
        pieces = max(math.ceil(part.size_bytes / target), math.ceil(count / (self._rows_max or count)))
        pieces = min(pieces, count)
        for piece in range(pieces):
            first = part.begin + count * piece // pieces
            last = part.begin + count * (piece + 1) // pieces
            yield Slice(
                self._store.path,
                part.view.directory,
                self._store.begin_offset,
                self._end,
                0,
                topic=part.key.topic,
                queue_id=part.key.queue_id,
                begin_queue_offset=first,
                end_queue_offset=last,
                size_bytes=part.size_bytes * (last - first) // count,
            )

    # ----------------------------------------------------------------------------------------------------- the log

    def _of_log(self, begin: int, end: int, lost: list[LostRange]) -> list[Slice]:
        """Return the slices of `[begin, end)`; what no slice contains is in no file, and is added to `lost`."""
        target = self._target_size(end - begin)
        found: list[Slice] = []
        after = begin
        for file in self._store.files:
            if file.end_offset <= begin or file.begin_offset >= end:
                continue
            _note_gap(lost, after, file.begin_offset)
            after = file.end_offset
            found += self._slicer.slices(
                file, max(begin, file.begin_offset), min(end, file.end_offset), target, self._rows_max
            )
        if begin < end:
            _note_gap(lost, after, end)
        missing = [(each.begin, each.end) for each in lost if each.reason == _NO_FILE]
        assert are_tiled([*((part.begin, part.end) for part in found), *missing], begin, end), (begin, end, found, lost)
        return found

    def _target_size(self, size: int) -> int:
        return max(1, min(SLICE_SIZE_BYTES, size // self._partitions_min))


def _note_lost(lost: list[LostRange], what: str, wanted: tuple[int, int], there: tuple[int, int]) -> None:
    begin, end = wanted
    if begin < min(end, there[0]):
        lost.append(LostRange(what, begin, min(end, there[0]), "deleted, or never in this store"))
    if max(begin, there[1]) < end:
        lost.append(LostRange(what, max(begin, there[1]), end, f"missing: it ends at {there[1]}"))


def _note_gap(lost: list[LostRange], begin: int, end: int) -> None:
    if begin < end:
        lost.append(LostRange("log", begin, end, _NO_FILE))

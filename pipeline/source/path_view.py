"""The files of a store as a source of messages (`pipeline.source.view`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.log.places import NO_INDEX
from pipeline.log.replicas import choose_replicas
from pipeline.log.selection import Selection
from pipeline.log.slices import QUEUED_SHARE_MAX, plan
from pipeline.source.parts import Part
from pipeline.source.view import Span, Spans, parts_min, spans_of
from store.queues.merge_by_offset import LogWindow, UnitRange, Units, clamp, first_in_log, window_of
from store.queues.unit import BLANK_SIZE
from store.steps import at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.check.queue_view import QueueView
    from store.model.dispatch_batch import Int32s, Int64s
    from store.model.message import QueueKey


class PathView:
    """A view of a store, or of the replica with the largest committed range.

    Args:
        paths: of the store, or of its replicas.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._store = choose_replicas(paths)
        self.name = self._store.path

    @property
    def spans(self) -> Spans:
        """The readable range of each queue."""
        return self._store.queues

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, including topics without messages."""
        return tuple(self._store.topics)

    @property
    def index_range(self) -> Span | None:
        """The readable range of entry indexes, half open; None: the log has no entries."""
        store = self._store
        return None if store.begin_index == NO_INDEX else (store.begin_index, store.end_index)

    def offsets_at(self, keys: Spans, timestamp_ms: int) -> dict[QueueKey, int]:
        """Return the offset of each queue's first message stored at or after a time; its end if there is none."""
        return {key: self._store.queue_offset_at_time(key, timestamp_ms) for key in keys}

    def first(self, spans: Spans, messages_max: int | None, size_bytes_max: int | None) -> dict[QueueKey, int]:
        """Return the ends of these spans, limited to the first messages in log order."""
        ranges = self._ranges(spans)
        known = {each.key: each.end for each in ranges}
        if ranges:
            ends = at_once(first_in_log(ranges, messages_max, size_bytes_max))
        else:
            # These messages are only in the log and not in a consume queue yet.
            size = self._store.end_offset - self._store.certain_offset
            return _all_alike(spans, messages_max, size_bytes_max, size)
        is_all = all(ends.get(key, 0) == end for key, end in known.items())
        if is_all and messages_max is None and size_bytes_max is None:
            return {key: end for key, (_, end) in spans.items()}
        return {key: ends.get(key, begin) for key, (begin, _) in spans.items()}

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """Return the physical offset of a message; None if the message does not exist."""
        view = self._store.queue_views.get(key)
        if view is None or not view.begin <= offset < view.end:
            return self._store.unqueued_offset(key, offset)
        unit = view.unit(offset)
        return None if unit.size == BLANK_SIZE else unit.offset

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """Return the slices of files for tasks. Together they contain each selected message once."""
        known = None if selection.queue_ranges is None else self._known_window(spans_of(selection.queue_ranges))
        size = self._store.size if known is None else known.size_bytes
        least = partitions_min or parts_min(size)
        wanted = selection
        if known is not None and known.size_bytes > QUEUED_SHARE_MAX * (known.end - known.begin):
            # The range is known, so no further lookup is needed.
            wanted = Selection(offset_range=(self._store.entry_offset(known.begin), known.end))
        slices = plan(self._store, wanted, partitions_min=least, rows_max=rows_max, fail_on_data_loss=fail_on_data_loss)
        # A task that reads one queue does not need the ranges of the others.
        small = Selection(begin_ms=selection.begin_ms, end_ms=selection.end_ms, tags=selection.tags, sql=selection.sql)
        return [Part(each, small if each.is_queue else selection) for each in slices]

    def close(self) -> None:
        """Close the files."""
        self._store.close()

    def _known_window(self, spans: Spans) -> LogWindow | None:
        """Return the log range that contains these spans; None: the queue units are not complete for all of them."""
        store = self._store
        ranges = self._ranges(spans)
        window = at_once(window_of(ranges))
        if {each.key: (each.begin, each.end) for each in ranges} != {k: s for k, s in spans.items() if s[0] < s[1]}:
            return None
        # A running process has repaired its queues at startup; after a crash the log is scanned.
        is_sound = store.is_live or window.end <= store.certain_offset
        return window if ranges and is_sound and window.begin >= store.begin_offset else None

    def _ranges(self, spans: Spans) -> list[UnitRange]:
        """Return the consume queue units of these spans."""
        found = []
        for key, (begin, end) in spans.items():
            view = self._store.queue_views.get(key)
            if view is not None:
                last = min(end, view.end, self._store.queue_end(view))
                first = max(begin, view.begin)
                if first == begin and first < last:
                    found.append(UnitRange(key, first, last, _units(view)))
        return clamp(found, {each.key: each.end for each in found})


def _all_alike(
    spans: Spans, messages_max: int | None, size_bytes_max: int | None, size_bytes: int
) -> dict[QueueKey, int]:
    """Return the ends of spans, each cut to its share of a limit; `size_bytes` is their approximate total size."""
    total = sum(end - begin for begin, end in spans.values())
    limit = total if messages_max is None else min(total, messages_max)
    if size_bytes_max is not None:
        limit = min(limit, max(1, size_bytes_max * total // max(size_bytes, 1)))
    ends, seen, given = {}, 0, 0
    for key, (begin, end) in spans.items():
        seen += end - begin
        before, given = given, seen * limit // max(total, 1)
        ends[key] = begin + given - before
    return ends


def _units(view: QueueView) -> Units:
    def units(begin: int, end: int) -> tuple[Int64s, Int32s]:
        found = view.units(begin, end)
        return found["physical_offset"].astype(np.int64), found["size"].astype(np.int32)

    return units

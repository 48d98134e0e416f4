"""The files of a store as a source of messages (`pipeline.source_view`)."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from pipeline.log_places import NO_INDEX
from pipeline.replicas import choose_replicas
from pipeline.selection import Selection
from pipeline.slices import plan
from pipeline.source_parts import Part
from pipeline.source_view import Span, Spans, spans_of
from store.dispatch_batch import Int32s, Int64s
from store.log_order import QueueRange, Units, Window, clamp, first_in_log, window_of
from store.message import QueueKey
from store.queue_unit import BLANK_SIZE
from store.queue_view import QueueView

# Parts smaller than this cost more in tasks than they save in time.
_PART_BYTES_MIN: Final = 4 << 20
# A share of the log up to which queues are read one by one, and not all of the stretch.
_QUEUED_SHARE_MAX: Final = 0.3


class PathView:
    """A store, or that of its replicas that holds most of what is committed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._store = choose_replicas(paths)
        self.name = self._store.path

    @property
    def spans(self) -> Spans:
        """See `SourceView`."""
        return self._store.queues

    @property
    def topics(self) -> tuple[str, ...]:
        """See `SourceView`."""
        return tuple(self._store.topics)

    @property
    def index_range(self) -> Span | None:
        """See `SourceView`."""
        store = self._store
        return None if store.begin_index == NO_INDEX else (store.begin_index, store.end_index)

    def offsets_at(self, keys: Spans, timestamp_ms: int) -> dict[QueueKey, int]:
        """See `SourceView`."""
        return {key: self._store.queue_offset_at_time(key, timestamp_ms) for key in keys}

    def first(self, spans: Spans, messages_max: int | None, size_bytes_max: int | None) -> dict[QueueKey, int]:
        """See `SourceView`."""
        ranges = self._ranges(spans)
        known = {each.key: each.end for each in ranges}
        if ranges:
            ends = first_in_log(ranges, messages_max, size_bytes_max)
        else:
            # Only the log tells of these messages, and no queue: all queues go on alike.
            share = min(1.0, (messages_max or math.inf) / max(sum(end - begin for begin, end in spans.values()), 1))
            return {key: begin + math.ceil((end - begin) * share) for key, (begin, end) in spans.items()}
        is_all = all(ends.get(key, 0) == end for key, end in known.items())
        if is_all and messages_max is None and size_bytes_max is None:
            return {key: end for key, (_, end) in spans.items()}
        return {key: ends.get(key, begin) for key, (begin, _) in spans.items()}

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """See `SourceView`."""
        view = self._store.queue_views.get(key)
        if view is None or not view.begin <= offset < view.end:
            return None
        unit = view.unit(offset)
        return None if unit.size == BLANK_SIZE else unit.offset

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """See `SourceView`."""
        known = None if selection.queue_ranges is None else self._known_window(spans_of(selection.queue_ranges))
        size = self._store.size if known is None else known.size_bytes
        least = partitions_min or max(1, min(os.cpu_count() or 1, size // _PART_BYTES_MIN))
        wanted = selection
        if known is not None and known.size_bytes > _QUEUED_SHARE_MAX * (known.end - known.begin):
            # The stretch is known: nothing has to be looked up once more.
            wanted = Selection(offset_range=(self._store.entry_offset(known.begin), known.end))
        slices = plan(self._store, wanted, partitions_min=least, rows_max=rows_max, fail_on_data_loss=fail_on_data_loss)
        # Whoever reads one queue needs no ranges of all the others.
        small = Selection(begin_ms=selection.begin_ms, end_ms=selection.end_ms, tags=selection.tags)
        return [Part(each, small if each.is_queue else selection) for each in slices]

    def close(self) -> None:
        """See `SourceView`."""
        self._store.close()

    def _known_window(self, spans: Spans) -> Window | None:
        """Return the stretch of the log that holds these spans; None: units do not tell, for all of them."""
        store = self._store
        ranges = self._ranges(spans)
        window = window_of(ranges)
        if {each.key: (each.begin, each.end) for each in ranges} != {k: s for k, s in spans.items() if s[0] < s[1]}:
            return None
        # A program that runs has made its queues sound when it started; what a crash left is scanned.
        is_sound = store.is_live or window.end <= store.certain_offset
        return window if ranges and is_sound and window.begin >= store.begin_offset else None

    def _ranges(self, spans: Spans) -> list[QueueRange]:
        """Return what queues know of these spans."""
        found = []
        for key, (begin, end) in spans.items():
            view = self._store.queue_views.get(key)
            if view is not None:
                last = min(end, view.end, self._store.queue_end(view))
                first = max(begin, view.begin)
                if first == begin and first < last:
                    found.append(QueueRange(key, first, last, _units(view)))
        return clamp(found, {each.key: each.end for each in found})


def _units(view: QueueView) -> Units:
    def units(begin: int, end: int) -> tuple[Int64s, Int32s]:
        found = view.units(begin, end)
        return found["offset"].astype(np.int64), found["size"].astype(np.int32)

    return units

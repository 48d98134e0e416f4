"""A running broker as a source of messages (`pipeline.source_view`)."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import Final

from pipeline.chunk_client import BrokerLog, Planned, Stretch
from pipeline.errors import DataLost, LostRange
from pipeline.selection import Selection
from pipeline.slices import SLICE_SIZE_BYTES
from pipeline.source_parts import Part
from pipeline.source_view import Span, Spans, queue_ranges, spans_of
from store.message import QueueKey

_PART_BYTES_MIN: Final = 4 << 20
# A share of the log up to which queues are read one by one, and not all of the log.
_QUEUED_SHARE_MAX: Final = 0.3


class BrokerView:
    """What a broker had when it was asked.

    Args:
        log: of the broker; stays open.
        endpoints: in the order in which tasks ask them.
        topics: those wanted; none: all.
    """

    def __init__(self, log: BrokerLog, endpoints: str, topics: tuple[str, ...] = ()) -> None:
        self._log = log
        self._endpoints = endpoints
        self._asked = topics
        self._found = log.describe(topics)
        self.name = f"broker {endpoints}"

    @property
    def spans(self) -> Spans:
        """See `SourceView`."""
        return self._found.spans

    @property
    def topics(self) -> tuple[str, ...]:
        """See `SourceView`."""
        return self._found.topics

    @property
    def index_range(self) -> Span | None:
        """See `SourceView`: a broker does not tell."""
        return None

    def offsets_at(self, keys: Spans, timestamp_ms: int) -> dict[QueueKey, int]:
        """See `SourceView`."""
        found = self._log.describe(tuple(sorted({key.topic for key in keys})), timestamp_ms)
        # What came since it was described is not seen.
        return {key: min(found.by_time.get(key, end), end) for key, (_, end) in keys.items()}

    def first(self, spans: Spans, messages_max: int | None, size_bytes_max: int | None) -> dict[QueueKey, int]:
        """See `SourceView`."""
        if messages_max is None and size_bytes_max is None:
            return {key: end for key, (_, end) in spans.items()}
        planned = self._log.plan(spans, messages_max, size_bytes_max)
        return {key: end for key, (_, end) in planned.spans.items()}

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """See `SourceView`."""
        begin, end = self._found.spans.get(key, (0, 0))
        if not begin <= offset < end:
            return None
        planned = self._log.plan({key: (offset, offset + 1)})
        return planned.begin_offset if planned.messages else None

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """See `SourceView`."""
        spans = self.spans if selection.queue_ranges is None else spans_of(selection.queue_ranges)
        wanted = {key: span for key, span in spans.items() if selection.wants_queue(*key) and span[0] < span[1]}
        planned = self._log.plan(wanted)
        if fail_on_data_loss:
            self._check(wanted, planned.spans)
        spans = {key: span for key, span in planned.spans.items() if span[0] < span[1]}
        rest = replace(selection, topics=None, queue_ranges=None)
        target = self._target_size(planned, partitions_min, rows_max)
        span = planned.end_offset - planned.begin_offset
        if selection.is_by_topic and planned.size_bytes < _QUEUED_SHARE_MAX * span:
            return self._of_queues(spans, rest, max(1, target * planned.messages // max(planned.size_bytes, 1)))
        planned = self._log.plan(spans, split_bytes=target)
        borders = [planned.begin_offset, *planned.split_offsets, planned.end_offset]
        if selection.is_by_topic:
            rest = replace(rest, queue_ranges=queue_ranges(spans))
        else:
            # Messages that are in no queue too: all of the log.
            borders[0], borders[-1] = self._found.begin_offset, self._found.end_offset
        return [Part(Stretch(self._endpoints, begin, end), rest) for begin, end in pairwise(borders) if begin < end]

    def _target_size(self, planned: Planned, partitions_min: int | None, rows_max: int | None) -> int:
        """Return how many bytes of messages a part has."""
        size = planned.size_bytes
        least = partitions_min or max(1, min(os.cpu_count() or 1, size // _PART_BYTES_MIN))
        target = min(SLICE_SIZE_BYTES, -(-size // least))
        return max(1, min(target, size * rows_max // max(planned.messages, 1)) if rows_max else target)

    def close(self) -> None:
        """See `SourceView`; the connections stay for the next view."""

    def _check(self, wanted: Spans, there: Spans) -> None:
        lost = [
            LostRange(f"topic {key.topic}, queue {key.queue_id}", *gap, "deleted since it was asked for, or not there")
            for key, (begin, end) in wanted.items()
            for gap in ((begin, there.get(key, (end, end))[0]), (there.get(key, (end, end))[1], end))
            if gap[0] < gap[1]
        ]
        if lost:
            raise DataLost(self.name, lost)

    def _of_queues(self, spans: Spans, rest: Selection, count: int) -> list[Part]:
        return [
            Part(Stretch(self._endpoints, first, min(first + count, end), key.topic, key.queue_id), rest)
            for key, (begin, end) in sorted(spans.items())
            for first in range(begin, end, count)
        ]

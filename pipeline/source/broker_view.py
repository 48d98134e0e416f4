"""A running broker as a source of messages (`pipeline.source.view`)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pipeline.common.errors import DataLost, LostRange
from pipeline.log.slices import QUEUED_SHARE_MAX, SLICE_SIZE_BYTES
from pipeline.source.broker_range import BrokerRange
from pipeline.source.parts import Part
from pipeline.source.view import Span, Spans, parts_min, queue_ranges, spans_of

if TYPE_CHECKING:
    from pipeline.log.selection import Selection
    from pipeline.source.chunk_client import BrokerLog, Planned
    from store.model.message import QueueKey


class BrokerView:
    """The readable range of a broker at one moment.

    Args:
        log: of the broker; not closed by the view.
        endpoints: in the order in which tasks call them.
        topics: the selected topics; empty: all.
    """

    def __init__(self, log: BrokerLog, endpoints: str, topics: tuple[str, ...] = ()) -> None:
        self._log = log
        self._endpoints = endpoints
        self._asked = topics
        self._found = log.describe(topics)
        self.name = f"broker {endpoints}"

    @property
    def spans(self) -> Spans:
        """The readable range of each queue."""
        return self._found.spans

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, including topics without messages."""
        return self._found.topics

    @property
    def index_range(self) -> Span | None:
        """Always None: a broker does not report its range of entries."""
        return None

    def offsets_at(self, keys: Spans, timestamp_ms: int) -> dict[QueueKey, int]:
        """Return the offset of each queue's first message stored at or after a time; its end if there is none."""
        found = self._log.describe(tuple(sorted({key.topic for key in keys})), timestamp_ms)
        # Messages after the view was created are excluded.
        return {key: min(found.by_time.get(key, end), end) for key, (_, end) in keys.items()}

    def first(self, spans: Spans, messages_max: int | None, size_bytes_max: int | None) -> dict[QueueKey, int]:
        """Return the ends of these spans, limited to the first messages in log order."""
        if messages_max is None and size_bytes_max is None:
            return {key: end for key, (_, end) in spans.items()}
        planned = self._log.plan(spans, messages_max, size_bytes_max)
        return {key: end for key, (_, end) in planned.spans.items()}

    def physical_offset(self, key: QueueKey, offset: int) -> int | None:
        """Return the physical offset of a message; None if the message does not exist."""
        begin, end = self._found.spans.get(key, (0, 0))
        if not begin <= offset < end:
            return None
        planned = self._log.plan({key: (offset, offset + 1)})
        return planned.begin_offset if planned.messages else None

    def parts(
        self, selection: Selection, partitions_min: int | None, rows_max: int | None, *, fail_on_data_loss: bool
    ) -> list[Part]:
        """Return the ranges of the log or of queues for tasks. Together they contain each selected message once."""
        spans = self.spans if selection.queue_ranges is None else spans_of(selection.queue_ranges)
        wanted = {key: span for key, span in spans.items() if selection.wants_queue(*key) and span[0] < span[1]}
        planned = self._log.plan(wanted)
        if fail_on_data_loss:
            self._check(wanted, planned.spans)
        spans = {key: span for key, span in planned.spans.items() if span[0] < span[1]}
        rest = replace(selection, topics=None, queue_ranges=None)
        count = _part_count(planned, partitions_min, rows_max)
        span = planned.end_offset - planned.begin_offset
        if selection.is_by_topic and (planned.size_bytes < QUEUED_SHARE_MAX * span or self._is_by_queue_only(planned)):
            messages = max(1, -(-planned.messages // count))
            return self._of_queues(spans, rest, messages)
        planned = self._log.plan(spans, split_bytes=max(1, span // count))
        borders = [planned.begin_offset, *planned.split_offsets, planned.end_offset]
        if selection.is_by_topic:
            rest = replace(rest, queue_ranges=queue_ranges(spans))
        else:
            # Includes messages that are in no queue: the whole log.
            borders[0], borders[-1] = self._found.begin_offset, self._found.end_offset
        return [Part(BrokerRange(self._endpoints, begin, end), rest) for begin, end in pairwise(borders) if begin < end]

    def close(self) -> None:
        """Do nothing. The connections stay open for the next view."""

    def _check(self, wanted: Spans, there: Spans) -> None:
        lost = [
            LostRange(f"topic {key.topic}, queue {key.queue_id}", *gap, "deleted since the request, or missing")
            for key, (begin, end) in wanted.items()
            for gap in ((begin, there.get(key, (end, end))[0]), (there.get(key, (end, end))[1], end))
            if gap[0] < gap[1]
        ]
        if lost:
            raise DataLost(self.name, lost)

    def _is_by_queue_only(self, planned: Planned) -> bool:
        """Return whether this user may not read ranges of the log, which have messages of other topics, too."""
        return planned.messages > 0 and not self._log.may_read_ranges(planned.begin_offset)

    def _of_queues(self, spans: Spans, rest: Selection, count: int) -> list[Part]:
        return [
            Part(BrokerRange(self._endpoints, first, min(first + count, end), key.topic, key.queue_id), rest)
            for key, (begin, end) in sorted(spans.items())
            for first in range(begin, end, count)
        ]


def _part_count(planned: Planned, partitions_min: int | None, rows_max: int | None) -> int:
    """Return the minimum number of parts."""
    least = partitions_min or parts_min(planned.size_bytes)
    of_rows = -(-planned.messages // rows_max) if rows_max else 1
    return max(least, -(-planned.size_bytes // SLICE_SIZE_BYTES), of_rows)

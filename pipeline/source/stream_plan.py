"""Plans each micro-batch of a stream: limits, data loss, new and deleted queues. Does not need Spark.

A stream reads messages in log order (`store.queues.merge_by_offset`), so that queues advance together and a batch is
one range of the log. It skips lost messages only if `failOnDataLoss=false`.

| event | failOnDataLoss=true | failOnDataLoss=false |
| --- | --- | --- |
| messages were deleted before they were read | DataLost names the range | continues at the first remaining message |
| a queue ends before the stream's offset | DataLost: created again, or another store | begins at its first message |
| a topic was deleted | DataLost names its queues | continues without it |
| a topic or a queue is new | begins at its first message | the same |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.columns.waiting import is_broker_topic
from pipeline.common.errors import DataLost, ForeignCheckpoint, LostRange
from pipeline.log.selection import Selection
from pipeline.source.offsets import EARLIEST, LATEST
from pipeline.source.plan import Source, begin_of, wanted_spans
from pipeline.source.stream_offsets import Anchor, StreamOffset
from pipeline.source.view import SourceView, Spans, queue_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.source.options import SourceOptions
    from pipeline.source.parts import Part
    from store.model.message import QueueKey

# Seconds between two checks for new messages while there are none.
_LOOK_INTERVAL_S: Final = 0.1


class Limits(NamedTuple):
    """Limits of one micro-batch; None: no limit."""

    messages_max: int | None = None
    size_bytes_max: int | None = None
    messages_min: int | None = None


class StreamPlan:
    """Plans the batches of one query, for its lifetime.

    Args:
        options: of the query.
        clock: monotonic seconds.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._source = Source(options)
        self._clock = clock
        self._target: dict[QueueKey, int] | None = None
        self._ends: dict[QueueKey, int] = {}
        self._published: Mapping[QueueKey, int] | None = None
        self._waits_since_s: float | None = None
        self._looked_s: float | None = None
        self._kept: tuple[SourceView, StreamOffset] | None = None
        # Anchors that were checked or created by this object and need no further check.
        self._known_anchor: Anchor | None = None

    def initial(self) -> StreamOffset:
        """Return the start offset of a stream without a checkpoint.

        Raises: pipeline.common.errors.PipelineError: there is no store, or a named topic or queue does not exist.
        """
        options, view = self._options, self._source.view()
        try:
            spans = wanted_spans(options, view)
            if options.starting_ms is not None:
                return StreamOffset(view.offsets_at(spans, options.starting_ms))
            default = LATEST if options.starting_offsets is None else EARLIEST
            found = {key: begin_of(options.starting_offsets, key, span, default) for key, span in spans.items()}
            return StreamOffset(found)
        finally:
            view.close()

    def fix_target(self) -> None:
        """Set the current end as the end of the stream, for Trigger.AvailableNow."""
        view = self._source.view()
        try:
            self._target = {key: end for key, (_, end) in wanted_spans(self._options, view, is_checked=False).items()}
        finally:
            view.close()

    def latest(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        """Return the end of the next batch; `start` if there are no new messages.

        Raises: DataLost: see the module's table. ForeignCheckpoint: `start` belongs to another store.
        """
        now = self._clock()
        if self._looked_s is not None and now - self._looked_s < _LOOK_INTERVAL_S:
            return start
        view = self._source.view()
        try:
            found = self._latest(view, start, limits)
        except BaseException:
            view.close()
            raise
        self._keep(view, found)
        self._looked_s = now if found is start else None
        return found

    def _keep(self, view: SourceView, end: StreamOffset) -> None:
        """Keep the view that a batch was planned with, to plan its parts."""
        if self._kept is not None:
            self._kept[0].close()
        self._kept = view, end

    def _view_for(self, end: StreamOffset) -> SourceView:
        """Return the view that a batch was planned with; a new view if another process planned the batch."""
        kept, self._kept = self._kept, None
        if kept is not None and kept[1] == end:
            return kept[0]
        if kept is not None:
            kept[0].close()
        return self._source.view()

    def _latest(self, view: SourceView, start: StreamOffset, limits: Limits) -> StreamOffset:
        there = wanted_spans(self._options, view, is_checked=False)
        spans = self._bounded(there)
        self._check_anchor(view, start)
        ready = self._ready(view.name, start, spans, there)
        self._ends = {key: end for key, (_, end) in spans.items()}
        self._publish(start, spans)
        count = sum(end - begin for begin, end in ready.values())
        if not count or self._should_wait(count, limits):
            return start
        self._waits_since_s = None
        ends = view.first(
            {key: span for key, span in ready.items() if span[0] < span[1]}, limits.messages_max, limits.size_bytes_max
        )
        offsets = {key: ends.get(key, begin) for key, (begin, _) in ready.items()}
        begins = {key: begin for key, (begin, _) in ready.items() if key not in start.offsets}
        return StreamOffset(offsets, begins, self._anchor(view, ready, offsets) or start.anchor)

    def parts(self, start: StreamOffset, end: StreamOffset) -> list[Part]:
        """Return the parts for the tasks of a batch.

        Raises: DataLost: messages of the batch were deleted after planning.
        """
        spans = start.spans_to(end)
        if not spans:
            return []
        options, view = self._options, self._view_for(end)
        try:
            if not options.fail_on_data_loss:
                spans = _within(spans, view.spans)
            self._check_anchor(view, start)
            # A batch of the checkpoint is read even if a follower has not received all of it yet.
            selection = Selection(
                queue_ranges=queue_ranges(spans), tags=options.tags, sql=options.sql, begin_ms=options.starting_ms
            )
            return view.parts(
                selection, options.min_partitions, options.max_records, fail_on_data_loss=options.fail_on_data_loss
            )
        finally:
            view.close()

    @property
    def newest(self) -> StreamOffset | None:
        """Ends of the queues at the last check; None before the first."""
        return StreamOffset(self._ends) if self._ends else None

    # ------------------------------------------------------------------------------------------------- one batch

    def _bounded(self, spans: Spans) -> Spans:
        if self._target is None:
            return spans
        target = self._target
        return {key: (begin, min(end, target[key])) for key, (begin, end) in spans.items() if key in target}

    def _ready(self, name: str, start: StreamOffset, spans: Spans, there: Spans) -> dict[QueueKey, tuple[int, int]]:
        """Return the next readable range of each queue.

        Args:
            name: of the source.
            start: position of the stream.
            spans: ranges to read; for Trigger.AvailableNow those at the start.
            there: available ranges.
        """
        ready: dict[QueueKey, tuple[int, int]] = {}
        lost: list[LostRange] = []
        for key, (least, most) in spans.items():
            begin = start.offsets.get(key, least)
            what = f"topic {key.topic}, queue {key.queue_id}"
            if begin < least:
                lost.append(LostRange(what, begin, least, "deleted before it was read"))
                begin = least
            elif begin > (end := there[key][1]):
                lost.append(LostRange(what, end, begin, f"it ends at {end}: created again, or another store"))
                begin = least
            ready[key] = (begin, max(begin, most))
        for key, begin in start.offsets.items():
            if is_broker_topic(key.topic) and not self._options.wants_queue(*key):
                # Of a checkpoint from before `brokerTopics`, or without that option now: nothing of it is read.
                ready[key] = (begin, begin)
            elif key not in there:
                lost.append(LostRange(f"topic {key.topic}, queue {key.queue_id}", begin, begin, "it was deleted"))
            elif key not in spans:
                ready[key] = (begin, begin)
        if lost and self._options.fail_on_data_loss:
            raise DataLost(name, lost)
        return ready

    def _should_wait(self, count: int, limits: Limits) -> bool:
        if limits.messages_min is None or count >= limits.messages_min or self._target is not None:
            return False
        now = self._clock()
        if self._waits_since_s is None:
            self._waits_since_s = now
        return now - self._waits_since_s < self._options.max_delay_s

    def _publish(self, start: StreamOffset, spans: Spans) -> None:
        """Publish the offsets that the sink has committed: all messages before the start of the next batch.

        Spark also requests a next batch after the last one of Trigger.AvailableNow, and after a restart.
        """
        group = self._options.commit_group
        if group is None or start.offsets == self._published:
            return
        self._source.commit(group, {key: offset for key, offset in start.offsets.items() if key in spans})
        self._published = start.offsets

    def _anchor(self, view: SourceView, ready: Spans, offsets: dict[QueueKey, int]) -> Anchor | None:
        key = next((key for key, offset in offsets.items() if offset > ready[key][0]), None)
        if key is None:
            return None
        place = view.physical_offset(key, offsets[key] - 1)
        self._known_anchor = None if place is None else Anchor(key, offsets[key] - 1, place)
        return self._known_anchor

    def _check_anchor(self, view: SourceView, start: StreamOffset) -> None:
        """Raise if the anchor is at another position now. A deleted anchor is ignored."""
        anchor = start.anchor
        if anchor is None or anchor == self._known_anchor:
            return
        place = view.physical_offset(anchor.key, anchor.offset)
        if place is None:
            return
        if place != anchor.physical_offset and self._options.fail_on_data_loss:
            what = f"message {anchor.offset} of queue {anchor.key.queue_id} of topic {anchor.key.topic!r}"
            raise ForeignCheckpoint(
                f"{what} at {anchor.physical_offset} of the log, where it was read",
                f"at {place} in {view.name}: another store, or the topic was created again",
            )
        self._known_anchor = anchor


def _within(spans: Spans, there: Spans) -> dict[QueueKey, tuple[int, int]]:
    found = {}
    for key, (begin, end) in spans.items():
        least, most = there.get(key, (0, 0))
        if max(begin, least) < min(end, most):
            found[key] = (max(begin, least), min(end, most))
    return found

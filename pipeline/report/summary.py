"""Computes the figures of a report, for its JSON and its page, from the merged partial results."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipeline.report.partial import SEPARATOR, QueueCounts, ReportPartial
from pipeline.report.sketches import percentile, sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.dispatch_batch import Int64s

_TOP_NAMES: Final = 20
_GAPS_LISTED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of sizes in bytes, or of delays in milliseconds; None: no values."""

    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic.

    Attributes:
        topic: its name.
        messages: in the log.
        size: bytes of their records.
        body_size: bytes of their bodies.
        queues: how many queues have messages.
        per_second: messages, on average over the time range of the report.
        peak_per_second: messages, in the busiest interval of the timeline.
        retried: messages that a consumer returned at least once.
        born_later: messages stored before their born timestamp: the client's clock is ahead.
        keyed, tagged: messages with KEYS, with TAGS.
        body_sizes: in bytes.
        delays_ms: from the born timestamp to the store timestamp.
    """

    topic: str
    messages: int
    size: int
    body_size: int
    queues: int
    per_second: float
    peak_per_second: float
    retried: int
    born_later: int
    keyed: int
    tagged: int
    body_sizes: Percentiles
    delays_ms: Percentiles


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue: its messages, and the gaps between its first and its last offset.

    Attributes:
        missing: offsets; a lower bound if `is_missing_exact` is false, because only a bounded number of gaps is kept.
        repeated: messages with the queue offset of another message.
        gaps: the largest.
    """

    topic: str
    queue_id: int
    messages: int
    size: int
    begin_offset: int | None
    end_offset: int | None
    missing: int
    repeated: int
    gaps: list[tuple[int, int]]
    is_missing_exact: bool = True


@dataclass(frozen=True, slots=True)
class NameCount:
    """A key or a tag of a topic: it occurs `at_least` to `at_most` times."""

    topic: str
    name: str
    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Report:
    """All figures; see the classes above.

    Attributes:
        title: the source.
        begin, end: when the first and the last message were stored (UTC).
        span_s: seconds between them.
        step_ms, first_step_ms, series: the timeline: for each topic messages and bytes of each step.
        repeated_keys: unique keys that occur more than once; an estimate unless `is_repeated_exact`.
        skipped: records that could not be read.
    """

    title: str
    messages: int
    size: int
    body_size: int
    begin: datetime | None
    end: datetime | None
    span_s: float
    topics: list[TopicSummary]
    queues: list[QueueSummary]
    step_ms: int
    first_step_ms: int
    series: dict[str, tuple[list[int], list[int]]]
    body_sizes: Percentiles
    delays_ms: Percentiles
    size_histogram: list[list[int]]
    delay_histogram: list[list[int]]
    hot_keys: list[NameCount]
    hot_tags: list[NameCount]
    repeated_keys: int
    is_repeated_exact: bool
    repeated_examples: list[tuple[str, str]]
    skipped: int

    def to_json(self) -> dict[str, Any]:
        """Return the figures in JSON's types."""
        content = asdict(self)
        for name in ("begin", "end"):
            content[name] = content[name].isoformat() if content[name] is not None else None
        return content


def summarise(partial: ReportPartial, title: str) -> Report:
    """Return the report of merged partial results; the topic with the most bytes comes first."""
    names = list(partial.topics)
    span_s = max((partial.end_ms or 0) - (partial.begin_ms or 0), 1) / 1000
    steps = partial.timeline.values
    topics = [_topic(partial, name, number, span_s) for number, name in enumerate(names)]
    topics.sort(key=lambda topic: (-topic.size, topic.topic))
    sample = partial.unique_keys
    sizes, delays = partial.sizes.sum(axis=0), partial.delays.sum(axis=0)
    return Report(
        title,
        sum(counts.messages for counts in partial.counts),
        sum(counts.size for counts in partial.counts),
        sum(counts.body_size for counts in partial.counts),
        _time(partial.begin_ms),
        _time(partial.end_ms),
        span_s,
        topics,
        [_queue(*key, counts) for key, counts in sorted(partial.queues.items())],
        partial.timeline.width_ms,
        partial.timeline.first * partial.timeline.width_ms,
        {
            name: (steps[number, :, 0].tolist(), steps[number, :, 1].tolist())
            for number, name in enumerate(names)
            if number < len(steps)
        },
        _percentiles(sizes),
        _percentiles(delays),
        sparse(sizes),
        sparse(delays),
        _names(partial.keys.top(_TOP_NAMES), partial.keys.error),
        _names(partial.tags.top(_TOP_NAMES), partial.tags.error),
        sample.estimate(),
        sample.level == 0,
        [(topic, key) for topic, _, key in (text.partition(SEPARATOR) for text in partial.repeated_examples)],
        partial.skipped,
    )


def _topic(partial: ReportPartial, name: str, number: int, span_s: float) -> TopicSummary:
    counts = partial.counts[number]
    steps = partial.timeline.values[number, :, 0] if number < len(partial.timeline.values) else np.zeros(0, np.int64)
    return TopicSummary(
        name,
        counts.messages,
        counts.size,
        counts.body_size,
        sum(topic == name for topic, _ in partial.queues),
        counts.messages / span_s,
        int(steps.max(initial=0)) / (partial.timeline.width_ms / 1000),
        counts.retried,
        counts.born_later,
        counts.keyed,
        counts.tagged,
        _percentiles(partial.sizes[number]),
        _percentiles(partial.delays[number]),
    )


def _queue(topic: str, queue_id: int, counts: QueueCounts) -> QueueSummary:
    runs, gaps = counts.offsets.runs, counts.offsets.gaps()
    return QueueSummary(
        topic,
        queue_id,
        counts.messages,
        counts.size,
        runs[0][0] if runs else None,
        runs[-1][1] if runs else None,
        sum(end - begin for begin, end in gaps),
        counts.offsets.repeated,
        sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_GAPS_LISTED_MAX],
        not counts.offsets.is_cut,
    )


def _percentiles(counts: Int64s) -> Percentiles:
    return Percentiles(*(percentile(counts, share) for share in (0.5, 0.9, 0.99, 0.999, 1.0)))


def _names(counts: Sequence[tuple[str, int]], error: int) -> list[NameCount]:
    # A count within the error is meaningless.
    split = ((text.partition(SEPARATOR), count) for text, count in counts if count > error)
    return [NameCount(topic, name, count, count + error) for (topic, _, name), count in split]


def _time(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)

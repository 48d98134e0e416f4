"""Plans a query: computes ranges of queues from its options and the available data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.common.errors import BadOption, UnknownTopic
from pipeline.log.selection import Selection
from pipeline.source.offsets import EARLIEST, LATEST, Bound
from pipeline.source.path_view import PathView
from pipeline.source.view import SourceView, Span, queue_ranges
from store.model.message import QueueKey

if TYPE_CHECKING:
    from pipeline.source.chunk_client import BrokerLog
    from pipeline.source.options import SourceOptions
    from pipeline.source.parts import Part


class Source:
    """The source of a query, which opens views.

    Args:
        options: of the query.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._log = _open_log(options.endpoints) if options.endpoints else None

    def view(self) -> SourceView:
        """Return a view of the readable messages. The caller closes it.

        Raises:
            pipeline.common.errors.PipelineError: there is no store, or no broker answers.
        """
        options = self._options
        if self._log is None:
            return PathView(options.paths)
        from pipeline.source.broker_view import BrokerView  # noqa: PLC0415

        # The leader may have changed since the last call.
        endpoints = self._log.order(is_leader_first=options.read_mode != "follower")
        return BrokerView(self._log, endpoints, options.named_topics)

    def commit(self, group: str, offsets: Mapping[QueueKey, int]) -> None:
        """Publish consumed offsets; see `BrokerLog.commit_offsets`."""
        assert self._log is not None
        self._log.commit_offsets(group, offsets)


def _open_log(endpoints: str) -> BrokerLog:
    # Imported only if needed: otherwise every Python process of Spark would load gRPC, also for reading files.
    from pipeline.source.chunk_client import BrokerLog  # noqa: PLC0415

    return BrokerLog(endpoints)


def wanted_spans(options: SourceOptions, view: SourceView, *, is_checked: bool = True) -> dict[QueueKey, Span]:
    """Return the readable ranges of the queues that a query selects.

    Args:
        options: of the query.
        view: the available data.
        is_checked: whether all named topics and queues must exist. Raises: UnknownTopic: a named topic or queue does
            not exist.
    """
    if is_checked:
        _check_names(options, view)
    return {key: span for key, span in view.spans.items() if options.wants_queue(*key)}


def batch_selection(options: SourceOptions, view: SourceView) -> Selection:
    """Return the selection of a batch query.

    Raises: UnknownTopic: as in `wanted_spans`. BadOption: a starting offset is after the end.
    """
    spans = wanted_spans(options, view)
    is_chosen = options.subscribe is not None or options.subscribe_pattern is not None or options.assign is not None
    is_all = not is_chosen and options.broker_topics is not False
    rest = Selection(begin_ms=options.starting_ms, end_ms=options.ending_ms, tags=options.tags, sql=options.sql)
    if not _has_offsets(options) and is_all:
        return rest
    if not _has_offsets(options) and options.paths and options.assign is None:
        return replace(rest, topics=tuple(topic for topic in view.topics if options.wants_topic(topic)))
    ranges = {key: _range(options, key, span) for key, span in spans.items()}
    if not options.paths:
        ranges = _within_time(options, view, ranges)
    return replace(rest, queue_ranges=queue_ranges(ranges))


def batch_parts(
    options: SourceOptions,
    narrow: Callable[[Selection, SourceView], Selection | None] = lambda selection, _view: selection,
) -> list[Part]:
    """Return the parts for the tasks of a batch query; messages appended later are not included.

    Args:
        options: of the query.
        narrow: returns a smaller selection from the query's filters, or None if nothing is left.

    Raises:
        pipeline.common.errors.PipelineError: see `Source.view`, `batch_selection` and `SourceView.parts`.
    """
    options.check_batch()
    view = Source(options).view()
    try:
        selection = narrow(batch_selection(options, view), view)
        if selection is None:
            return []
        return view.parts(
            selection, options.min_partitions, options.max_records, fail_on_data_loss=options.fail_on_data_loss
        )
    finally:
        view.close()


def begin_of(bound: Bound | None, key: QueueKey, span: Span, default: int) -> int:
    """Return the offset of a bound for a queue.

    Args:
        bound: from the options.
        key: of the queue.
        span: readable range of the queue.
        default: EARLIEST or LATEST, for queues that are not in the bound.
    """
    offset = (
        default if bound is None else bound if isinstance(bound, int) else bound.get((key.topic, key.queue_id), default)
    )
    if offset == EARLIEST:
        return span[0]
    return span[1] if offset == LATEST else offset


def _range(options: SourceOptions, key: QueueKey, span: Span) -> Span:
    begin = begin_of(options.starting_offsets, key, span, EARLIEST)
    end = begin_of(options.ending_offsets, key, span, LATEST)
    if begin > end:
        if options.fail_on_data_loss:
            where = f"{begin} for queue {key.queue_id} of topic {key.topic!r}"
            raise BadOption("startingOffsets", f"at most its end ({end})", where)
        return (end, end)
    return (begin, end)


def _within_time(options: SourceOptions, view: SourceView, ranges: dict[QueueKey, Span]) -> dict[QueueKey, Span]:
    for is_begin, moment in ((True, options.starting_ms), (False, options.ending_ms)):
        if moment is not None and ranges:
            found = view.offsets_at(ranges, moment)
            ranges = {
                key: (max(begin, found[key]), end) if is_begin else (begin, min(end, found[key]))
                for key, (begin, end) in ranges.items()
            }
    return {key: (min(begin, end), end) for key, (begin, end) in ranges.items()}


def _has_offsets(options: SourceOptions) -> bool:
    return any(isinstance(bound, Mapping) for bound in (options.starting_offsets, options.ending_offsets))


def _check_pattern(options: SourceOptions, topics: set[str]) -> None:
    """Refuse a pattern for topics of the broker that would read none of them."""
    pattern = options.subscribe_pattern
    if pattern is None or options.broker_topics is not None or any(options.wants_topic(topic) for topic in topics):
        return
    if own := sorted(topic for topic in topics if re.fullmatch(pattern, topic)):
        remedy = "Set brokerTopics=true to read them"
        raise BadOption("subscribePattern", "a pattern that matches a topic of clients", f"only {own[0]!r}", remedy)


def _check_names(options: SourceOptions, view: SourceView) -> None:
    topics, spans = set(view.topics), view.spans
    _check_pattern(options, topics)
    for topic in options.named_topics:
        if topic not in topics:
            raise UnknownTopic(topic, topics)
    named = set(options.assign or ())
    for bound in (options.starting_offsets, options.ending_offsets):
        named |= set(bound) if isinstance(bound, Mapping) else set()
    for topic, queue_id in sorted(named):
        if QueueKey(topic, queue_id) not in spans:
            raise UnknownTopic(topic, topics, queue_id if topic in topics else None)

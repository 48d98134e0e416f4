"""Narrows a selection by the filters of a query, as Spark passes them.

Spark applies all filters again, so filters that are not supported here only cost time. Supported: `topic` and `queueId`
(= and IN), and =, <, <=, >, >= on `queueOffset`, `index` and `storeTimestamp`; also the corresponding columns of
`schemaStyle=kafka`. Filters on topic and queue are used only if the query's options name topics or queues.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.log.selection import Range, Selection
    from pipeline.source.view import Spans

_NATIVE_NAMES: Final = {"partition": "queueId", "offset": "queueOffset", "timestamp": "storeTimestamp"}
_MAX: Final = (1 << 63) - 1


def narrowed(
    selection: Selection, filters: Sequence[Filter], spans: Spans, index_range: Range | None
) -> Selection | None:
    """Return the part of a selection that must be read; None: nothing.

    Args:
        selection: of the query without filters.
        filters: combined with AND.
        spans: readable ranges of queues.
        index_range: readable range of entry indexes; None: not known.
    """
    topics = _values(filters, "topic")
    queue_ids = _values(filters, "queueId")
    offsets = _bounds(filters, "queueOffset")
    if topics is not None or queue_ids is not None or offsets != (0, _MAX):
        found = _by_queue(selection, topics, queue_ids, offsets, spans)
        if found is None:
            return None
        selection = found
    begin_ms, end_ms = _times(filters)
    begin, end = _bounds(filters, "index")
    # Without such a filter, messages without an entry index are selected too: the base log may hold some.
    if index_range is not None and (begin, end) != (0, _MAX):
        index_range = max(begin, index_range[0]), min(end, index_range[1])
        if index_range[0] >= index_range[1]:
            return None
        selection = replace(selection, index_range=index_range)
    begins = [moment for moment in (selection.begin_ms, begin_ms) if moment is not None]
    ends = [moment for moment in (selection.end_ms, end_ms) if moment is not None]
    if begins and ends and max(begins) >= min(ends):
        return None
    return replace(selection, begin_ms=max(begins, default=None), end_ms=min(ends, default=None))


def _by_queue(
    selection: Selection, topics: set[Any] | None, queue_ids: set[Any] | None, offsets: Range, spans: Spans
) -> Selection | None:
    """Return the selection with fewer queues and shorter ranges.

    A message in no queue (a prepared message of a transaction) also has a topic. So a query of the whole log with a
    filter on the topic returns those messages too, by the topic alone.
    """
    if not selection.is_by_topic:
        return selection
    ranges = {}
    for key, span in spans.items():
        if not selection.wants_queue(*key) or (topics is not None and key[0] not in topics):
            continue
        if queue_ids is not None and key[1] not in queue_ids:
            continue
        wanted = selection.range_of(*key)
        begin, end = wanted or span
        # An offset outside the readable range is kept: it comes from the query and may be lost data.
        begin, end = max(begin, offsets[0]), min(end, offsets[1])
        if begin < end:
            ranges[key.topic, key.queue_id] = (begin, end)
    return replace(selection, topics=None, queue_ranges=ranges) if ranges else None


def _values(filters: Sequence[Filter], name: str) -> set[Any] | None:
    """Return the values that a column may have; None: any."""
    found: set[Any] | None = None
    for each in filters:
        if isinstance(each, EqualTo | In) and _name_of(each) == name:
            values = {each.value} if isinstance(each, EqualTo) else set(each.value)
            found = values if found is None else found & values
    return found


def _bounds(filters: Sequence[Filter], name: str) -> Range:
    """Return the range of values that an integer column may have."""
    begin, end = 0, _MAX
    for each in filters:
        if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            value = each.value
            if _name_of(each) != name or not isinstance(value, int):
                continue
            if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                begin = max(begin, value + isinstance(each, GreaterThan))
            if isinstance(each, EqualTo | LessThan | LessThanOrEqual):
                end = min(end, value + (not isinstance(each, LessThan)))
    return begin, end


def _times(filters: Sequence[Filter]) -> tuple[int | None, int | None]:
    """Return the half-open range of milliseconds that a store timestamp may have."""
    begin: int | None = None
    end: int | None = None
    for each in filters:
        if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            value = each.value
            if _name_of(each) != "storeTimestamp" or not isinstance(value, datetime) or value.tzinfo is None:
                continue
            # Rounded down to milliseconds, and one more at the end. Spark filters the excess.
            moment = int(value.timestamp() * 1000)
            if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                begin = moment if begin is None else max(begin, moment)
            if isinstance(each, EqualTo | LessThan | LessThanOrEqual):
                end = moment + 1 if end is None else min(end, moment + 1)
    return begin, end


def _name_of(each: Any) -> str:
    name = each.attribute[0] if len(each.attribute) == 1 else ""
    return _NATIVE_NAMES.get(name, name)

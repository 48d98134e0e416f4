"""Converts the filters of a query, as Spark passes them, to what need not be read.

They only narrow what is read: Spark applies them all the same, so what is not understood here costs nothing but time.
Understood: `topic` and `queueId` (= and IN), and =, <, <=, >, >= of `queueOffset`, `index` and `storeTimestamp`; the
columns of `schemaStyle=kafka` likewise. Topic and queue only where the query's options name topics or queues.
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
    """Return the part of a selection that is left to read; None: nothing.

    Args:
        selection: what the query reads without the filters.
        filters: all of them hold for each wanted message.
        spans: what there is of queues.
        index_range: what there is of entries; None: not known.
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
    # Without such a filter messages are wanted that have no index, too: the base log may hold some where no entry is.
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
    """Return the selection with less queues and shorter ranges.

    A message that is in no queue (a half of a transaction) has a topic too: so a query of all of the log that names a
    topic only in a filter returns those as well, by the topic alone.
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
        # An offset outside of what there is stays: it is the query's own, and may be lost data.
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
    """Return the range that a column of whole numbers may have."""
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
    """Return the first and after the last millisecond that a store timestamp may have."""
    begin: int | None = None
    end: int | None = None
    for each in filters:
        if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            value = each.value
            if _name_of(each) != "storeTimestamp" or not isinstance(value, datetime) or value.tzinfo is None:
                continue
            # Down to the millisecond, and one more after: what is too much is filtered by Spark.
            moment = int(value.timestamp() * 1000)
            if isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
                begin = moment if begin is None else max(begin, moment)
            if isinstance(each, EqualTo | LessThan | LessThanOrEqual):
                end = moment + 1 if end is None else min(end, moment + 1)
    return begin, end


def _name_of(each: Any) -> str:
    name = each.attribute[0] if len(each.attribute) == 1 else ""
    return _NATIVE_NAMES.get(name, name)

"""The selection of a query: topics, ranges of queues, times, tags, an SQL92 expression, a part of the log.

*A query with topics or queues returns the messages that consumers would get*: no half or rolled-back transactions. A
query without them returns all messages of the log. No query returns leaders' own entries.

Ranges are half open, and an offset is the next one to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.common.errors import BadOption
from store.errors import IllegalExpression, IllegalRequest
from store.model.tag_filter import TagFilter
from store.sql92.predicate import Predicate, predicate_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions of a query; None: no condition. It is sent to the tasks.

    Attributes:
        topics: names of topics.
        queue_ranges: `{(topic, queue id): (begin, end)}` in queue offsets: only these queues of the topics.
        begin_ms, end_ms: store timestamps, milliseconds since 1970.
        tags: in the syntax of consumers: `A || B`.
        sql: an SQL92 expression over the properties of a message, as of consumers; with tags both must hold.
        index_range: entries of the replicated log.
        offset_range: physical offsets of the begins of records.

    Raises:
        pipeline.common.errors.BadOption: a range ends before it begins, or the tags or the expression are not valid.
    """

    topics: tuple[str, ...] | None = None
    queue_ranges: Mapping[tuple[str, int], Range] | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str | None = None
    sql: str | None = None
    index_range: Range | None = None
    offset_range: Range | None = None
    _tag_filter: TagFilter = field(init=False, repr=False, compare=False)
    _predicate: Predicate | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, found in (("index range", self.index_range), ("offset range", self.offset_range)):
            _check_range(name, found)
        for (topic, queue_id), found in (self.queue_ranges or {}).items():
            _check_range(f"offsets of topic {topic}, queue {queue_id}", found)
        if self.begin_ms is not None and self.end_ms is not None:
            _check_range("timestamps", (self.begin_ms, self.end_ms))
        try:
            object.__setattr__(self, "_tag_filter", TagFilter.parse(self.tags))
        except IllegalRequest as error:
            raise BadOption("tags", error.expected, error.found) from error
        try:
            object.__setattr__(self, "_predicate", None if self.sql is None else predicate_of(self.sql))
        except IllegalExpression as error:
            raise BadOption("sql", f"at character {error.position}: {error.expected}", error.found) from error

    @property
    def predicate(self) -> Predicate | None:
        """The compiled expression; None: there is none."""
        return self._predicate

    @property
    def tag_filter(self) -> TagFilter:
        """The parsed tags."""
        return self._tag_filter

    @property
    def is_by_topic(self) -> bool:
        """Whether it has topics or queues."""
        return self.topics is not None or self.queue_ranges is not None

    @property
    def has_time(self) -> bool:
        """Whether it has a time range."""
        return self.begin_ms is not None or self.end_ms is not None

    @property
    def is_all(self) -> bool:
        """Whether it selects every message of the ranges that are read."""
        is_filtered = self.has_time or not self.tag_filter.is_everything or self.sql is not None
        return not self.is_by_topic and not is_filtered

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether messages of a queue may be selected."""
        if self.topics is not None and topic not in self.topics:
            return False
        return self.queue_ranges is None or (topic, queue_id) in self.queue_ranges

    def range_of(self, topic: str, queue_id: int) -> Range | None:
        """Return the selected range of a queue; None: all of it."""
        return None if self.queue_ranges is None else self.queue_ranges.get((topic, queue_id))

    def __getstate__(self) -> tuple[Any, ...]:
        """Omit derived fields."""
        return (
            self.topics,
            None if self.queue_ranges is None else dict(self.queue_ranges),
            self.begin_ms,
            self.end_ms,
            self.tags,
            self.sql,
            self.index_range,
            self.offset_range,
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Restore derived fields."""
        Selection.__init__(self, *state)


def _check_range(name: str, found: Range | None) -> None:
    if found is not None and found[0] > found[1]:
        raise BadOption(name, "a start that is not after the end", f"[{found[0]}, {found[1]})")


EVERYTHING = Selection()

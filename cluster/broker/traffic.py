"""Counts of a broker's messages by topic and group, and of its calls, under the distinctions of RocketMQ's metrics.

One request adds to one row, so a put costs some hundred nanoseconds more, whatever its number of messages. Rows are
bounded: above `ROWS_MAX` the others share one row with the labels `REST`. For use by one event loop.

Source: RocketMQ `SendMessageProcessor.handlePutMessageResult`, `PullMessageProcessor`, `RemotingMetricsManager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.metrics import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Label of the row that everything above the bound of rows shares; no topic and no group can have this name.
REST: Final = "(rest)"
ROWS_MAX: Final = 10_000
# Queues whose read position is known; an older position is forgotten.
POSITIONS_MAX: Final = 100_000
# Bytes and milliseconds; those of RocketMQ.
SIZE_BOUNDS_BYTES: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
LATENCY_BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
_MS_PER_S: Final = 1_000


class PutKey(NamedTuple):
    """Messages of one topic and type: `normal` or `delay`."""

    topic: str
    message_type: str


class ReadKey(NamedTuple):
    """Messages of one topic that one group read; the group is empty if the reader names none that exists."""

    topic: str
    group: str


class CallKey(NamedTuple):
    """Calls of one kind with one answer, by RocketMQ's names in lower case."""

    request_code: str
    response_code: str
    is_long_polling: bool


class Position(NamedTuple):
    """One queue, as read by one group."""

    group: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class PutRow:
    """Messages and bytes of bodies and properties; and mean size of a message of each request, in bytes."""

    messages: int = 0
    size_bytes: int = 0
    sizes: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS_BYTES))


@dataclass(slots=True)
class ReadRow:
    """Messages and bytes of their records."""

    messages: int = 0
    size_bytes: int = 0


class Traffic:
    """The counts of one broker's process.

    Args:
        has_group: returns whether a group exists; names of others, which any reader may send, make no rows.
        rows_max: rows of each kind.
        positions_max: queues whose read position is kept.

    Attributes:
        puts, reads, calls: the rows; latencies of calls are in milliseconds.
        streams: open streams of producers.
    """

    def __init__(
        self, has_group: Callable[[str], bool], *, rows_max: int = ROWS_MAX, positions_max: int = POSITIONS_MAX
    ) -> None:
        self._has_group = has_group
        self._rows_max = rows_max
        self._positions_max = positions_max
        self._positions: dict[Position, int] = {}
        self.puts: dict[PutKey, PutRow] = {}
        self.reads: dict[ReadKey, ReadRow] = {}
        self.calls: dict[CallKey, Histogram] = {}
        self.streams = 0

    def put(self, topic: str, message_type: str, count: int, size_bytes: int) -> None:
        """Count the stored messages of one request, at least one."""
        row = self.puts.get(PutKey(topic, message_type))
        if row is None:
            is_full = len(self.puts) >= self._rows_max
            row = self.puts.setdefault(PutKey(REST if is_full else topic, message_type), PutRow())
        row.messages += count
        row.size_bytes += size_bytes
        row.sizes.observe(size_bytes // count)

    def read(self, topic: str, group: str, count: int, size_bytes: int) -> None:
        """Count messages that a reader got."""
        row = self.reads.get(ReadKey(topic, group))
        if row is None:
            key = ReadKey(topic, group if self._has_group(group) else "")
            if key not in self.reads and len(self.reads) >= self._rows_max:
                key = ReadKey(REST, REST)
            row = self.reads.setdefault(key, ReadRow())
        row.messages += count
        row.size_bytes += size_bytes

    def moved(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record up to which offset a group has read a queue."""
        position = Position(group, topic, queue_id)
        if position not in self._positions:
            if not self._has_group(group):
                return
            if len(self._positions) >= self._positions_max:
                del self._positions[next(iter(self._positions))]
        self._positions[position] = offset

    def position(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset up to which a group has read a queue; 0: it is not known."""
        return self._positions.get(Position(group, topic, queue_id), 0)

    def called(self, request_code: str, response_code: str, latency_s: float, *, is_long_polling: bool = False) -> None:
        """Count a call that was answered. The codes are of fixed sets."""
        key = CallKey(request_code, response_code, is_long_polling)
        histogram = self.calls.get(key)
        if histogram is None:
            histogram = self.calls[key] = Histogram(LATENCY_BOUNDS_MS)
        histogram.observe(latency_s * _MS_PER_S)

    def forget(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        """Remove the rows of deleted topics and groups."""
        gone_topics, gone_groups = set(topics), set(groups)
        for put in [each for each in self.puts if each.topic in gone_topics]:
            del self.puts[put]
        for read in [each for each in self.reads if each.topic in gone_topics or each.group in gone_groups]:
            del self.reads[read]
        for place in [each for each in self._positions if each.topic in gone_topics or each.group in gone_groups]:
            del self._positions[place]

    def topics(self) -> set[str]:
        """Return the topics that have rows or positions."""
        named = {each.topic for each in self.puts} | {each.topic for each in self.reads}
        return (named | {each.topic for each in self._positions}) - {REST}

    def groups(self) -> set[str]:
        """Return the groups that have rows or positions."""
        return ({each.group for each in self.reads} | {each.group for each in self._positions}) - {REST, ""}

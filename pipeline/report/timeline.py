"""Messages and bytes by time and topic. The number of steps is bounded: steps widen with the time range.

Each width is a multiple of the previous one, so that steps can be joined and two timelines merged exactly.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from store.model.dispatch_batch import Int64s

STEPS_MAX: Final = 512
_SECOND: Final = 1000
_HOUR: Final = 3_600 * _SECOND
_WIDTHS_MS: Final = (
    100,
    *(seconds * _SECOND for seconds in (1, 5, 10, 30, 60, 300, 600, 1800)),
    *(hours * _HOUR for hours in (1, 6, 24)),
)
_MEASURES: Final = 2


class Timeline:
    """Counts and bytes of each topic in each step.

    Attributes:
        width_ms: of a step.
        first: number of the first step; it begins at `first * width_ms` since 1970.
        values: `[topic, step, 0]` messages, `[topic, step, 1]` bytes.
    """

    __slots__ = ("first", "values", "width_ms")

    def __init__(self) -> None:
        self.width_ms = _WIDTHS_MS[0]
        self.first = 0
        self.values: Int64s = np.zeros((0, 0, _MEASURES), np.int64)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.values.shape[1])

    def add(self, topics: Int64s, topic_count: int, times_ms: Int64s, sizes: Int64s) -> None:
        """Count messages.

        Args:
            topics: topic number of each message.
            topic_count: all topic numbers are smaller.
            times_ms: since 1970.
            sizes: bytes of each message.
        """
        if not len(times_ms):
            return
        self._make_space(topic_count, int(times_ms.min()), int(times_ms.max()))
        places = topics * self.steps + (times_ms // self.width_ms - self.first)
        size = self.values.shape[0] * self.steps
        shape = self.values.shape[:2]
        self.values[:, :, 0] += np.bincount(places, minlength=size).reshape(shape)
        self.values[:, :, 1] += np.bincount(places, sizes, minlength=size).reshape(shape).astype(np.int64)

    def merge(self, other: Timeline, topics: Int64s, topic_count: int) -> None:
        """Add another timeline; `topics` maps its topic numbers to those of this one."""
        if not other.steps:
            return
        begin, end = other.first * other.width_ms, (other.first + other.steps) * other.width_ms - 1
        self._make_space(topic_count, begin, end, other.width_ms)
        joined = other.values
        first = other.first
        if other.width_ms != self.width_ms:
            joined, first = _joined(joined, first, self.width_ms // other.width_ms)
        begin_step = first - self.first
        np.add.at(self.values, (topics[:, None], np.arange(begin_step, begin_step + joined.shape[1])[None, :]), joined)

    def to_dict(self) -> dict[str, Any]:
        """Return the timeline in JSON's types."""
        return {"widthMs": self.width_ms, "first": self.first, "steps": self.steps, "values": self.values.tolist()}

    @classmethod
    def from_dict(cls, content: dict[str, Any], topic_count: int) -> Timeline:
        """Return the timeline that `to_dict` converted."""
        timeline = cls()
        timeline.width_ms, timeline.first = content["widthMs"], content["first"]
        timeline.values = np.array(content["values"], np.int64).reshape(topic_count, content["steps"], _MEASURES)
        return timeline

    def _make_space(self, topic_count: int, begin_ms: int, end_ms: int, width_ms: int = 0) -> None:
        """Widen or add steps so that the times from `begin_ms` to `end_ms` (inclusive) are covered."""
        if self.steps:
            begin_ms = min(begin_ms, self.first * self.width_ms)
            end_ms = max(end_ms, (self.first + self.steps) * self.width_ms - 1)
        width = next(
            width
            for width in _widths()
            if width >= max(self.width_ms, width_ms) and end_ms // width - begin_ms // width < STEPS_MAX
        )
        values, first = self.values, self.first
        if width != self.width_ms and self.steps:
            values, first = _joined(values, first, width // self.width_ms)
        self.width_ms, self.first = width, begin_ms // width
        steps = end_ms // width - self.first + 1
        if (topic_count, steps) == values.shape[:2]:
            self.values = values
            return
        self.values = np.zeros((max(topic_count, values.shape[0]), steps, _MEASURES), np.int64)
        if values.size:
            ahead = first - self.first
            self.values[: values.shape[0], ahead : ahead + values.shape[1]] = values


def _widths() -> Iterator[int]:
    yield from _WIDTHS_MS
    for power in itertools.count(1):
        yield _WIDTHS_MS[-1] << power


def _joined(values: NDArray[np.int64], first: int, factor: int) -> tuple[NDArray[np.int64], int]:
    """Return the values in steps that are `factor` times as wide, and the number of the first step."""
    begin = first // factor
    steps = np.arange(first, first + values.shape[1]) // factor - begin
    joined = np.zeros((values.shape[0], int(steps[-1]) + 1, values.shape[2]), np.int64)
    np.add.at(joined, (np.arange(values.shape[0])[:, None], steps[None, :]), values)
    return joined, begin

"""What all axes of the measurement share: its settings, and the form of an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from shape_figures import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings of a measurement.

    Attributes:
        folder: parent of temporary folders for the data of the nodes; it determines the disk.
        seconds: measured time of a point, after its warm-up.
        warm_up_s: time before it, in which connections are opened and buffers grow.
        runs: number of runs of each point; the axes of full load and of idle nodes have one.
        log_gib: the largest log of the axis of log sizes, in GiB.
        minutes: duration of the full load.
        points: values to measure instead of the axis' own; empty: its own.
        progress: called with a line about what is measured next.
    """

    folder: Path
    seconds: float
    warm_up_s: float
    runs: int
    log_gib: float
    minutes: float
    points: tuple[int, ...]
    progress: Callable[[str], None]

    def values(self, own: Sequence[int]) -> tuple[int, ...]:
        """Return the values of an axis to measure."""
        return self.points or tuple(own)

    def runs_of(self, own: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield run and value of each point: one run of all values, then the next, so that runs alternate."""
        for run in range(self.runs):
            for value in self.values(own):
                yield run, value


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        name: name for the command line.
        measure: measures all points, one at a time.
        needed_bytes: returns the space on the disk that it needs at a time, on all nodes together.
        reports_itself: whether it calls `progress` with its figures, because it yields its points at the end only.
    """

    name: str
    measure: Callable[[Plan], Iterator[Point]]
    needed_bytes: Callable[[Plan], int]
    reports_itself: bool = False


# An estimate for the disk that is above what three nodes on one machine write with bodies of 1 KiB.
_BYTES_A_SECOND_MAX = 200_000_000


def bytes_of_a_point(plan: Plan) -> int:
    """Return the space that one short point needs."""
    return int((plan.seconds + plan.warm_up_s) * _BYTES_A_SECOND_MAX)

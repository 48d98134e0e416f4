"""The figures of a measurement and their arithmetic: rates, percentiles, and CPU time by process.

All latencies of a measured time are kept, so percentiles are exact and need no histogram. Nothing here reads a clock or
a process.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# The percentiles that are kept, as shares; the last is the maximum.
SHARES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 1.0)
_DIGITS: Final = 6
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU time and memory of all processes of a measurement at one time.

    Attributes:
        at_s: time, of the performance counter.
        node_cpu_s: CPU seconds of each node since its start, the leader first.
        node_memory_bytes: memory of each node without mapped files, in the same order.
        client_cpu_s: CPU seconds of the client's process.
        machine_cpu_s: CPU seconds of all programs on the machine; 0: unknown.
    """

    at_s: float
    node_cpu_s: tuple[float, ...]
    node_memory_bytes: tuple[int, ...]
    client_cpu_s: float
    machine_cpu_s: float


class Calls:
    """The times at which each call began and ended; for use by one thread."""

    def __init__(self) -> None:
        self._began = array("d")
        self._ended = array("d")

    def add(self, began_s: float, ended_s: float) -> None:
        """Add a call that succeeded."""
        self._began.append(began_s)
        self._ended.append(ended_s)

    def take(self) -> CallTimes:
        """Return the calls since the last `take`."""
        times = CallTimes(np.array(self._began, dtype=np.float64), np.array(self._ended, dtype=np.float64))
        self._began, self._ended = array("d"), array("d")
        return times


@dataclass(frozen=True, slots=True)
class CallTimes:
    """The times at which calls began and ended, in seconds of one clock."""

    began_s: Floats
    ended_s: Floats

    def began_between(self, begin_s: float, end_s: float) -> CallTimes:
        """Return the calls that began in a time, its end excluded; they may have ended later."""
        chosen = (self.began_s >= begin_s) & (self.began_s < end_s)
        return CallTimes(self.began_s[chosen], self.ended_s[chosen])

    def ended_between(self, begin_s: float, end_s: float) -> CallTimes:
        """Return the calls that ended in a time, its end excluded."""
        chosen = (self.ended_s >= begin_s) & (self.ended_s < end_s)
        return CallTimes(self.began_s[chosen], self.ended_s[chosen])

    @property
    def count(self) -> int:
        """The number of calls."""
        return len(self.began_s)

    @property
    def quantiles_ms(self) -> tuple[float, ...]:
        """The latency for each of `SHARES`, in ms: the smallest that this share of the calls did not exceed."""
        if not self.count:
            return ()
        found = np.quantile(self.ended_s - self.began_s, SHARES, method="inverted_cdf") * 1e3
        return tuple(round(float(each), _DIGITS) for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run at one value of an axis.

    Attributes:
        x: the value, such as the body size in bytes.
        run: number of the run, from 0.
        series: which of several curves of the axis it belongs to; empty: there is one.
        seconds: the measured time.
        messages_s: acknowledged, or delivered, messages a second.
        quantiles_ms: latency for each of `SHARES`; empty: not measured.
        node_cores: cores that each node used, the leader first.
        client_cores: cores that the client's process used.
        other_cores: cores that all other programs used, and the system for them; None: unknown.
        node_memory_mib: memory of each node at the end, without mapped files, in the same order.
        elections: by how much the term rose.
    """

    x: float
    run: int = 0
    series: str = ""
    seconds: float
    messages_s: float
    quantiles_ms: tuple[float, ...]
    node_cores: tuple[float, ...]
    client_cores: float
    other_cores: float | None
    node_memory_mib: tuple[float, ...]
    elections: int = 0

    @classmethod
    def from_object(cls, fields: Mapping[str, Any]) -> Point:
        """Return the point that `as_object` wrote.

        Raises:
            TypeError: a field is unknown or missing.
        """
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**given)

    def as_object(self) -> dict[str, object]:
        """Return it for JSON."""
        return asdict(self)

    def latency_ms(self, share: float) -> float | None:
        """Return the latency for one of `SHARES`; None: not measured."""
        return self.quantiles_ms[SHARES.index(share)] if self.quantiles_ms else None

    def _us(self, cores: float) -> float | None:
        return cores / self.messages_s * 1e6 if self.messages_s else None

    @property
    def leader_us(self) -> float | None:
        """CPU time of the leader for a message, in µs."""
        return self._us(self.node_cores[0])

    @property
    def follower_us(self) -> float | None:
        """CPU time of a follower for a message, in µs: the mean of all followers; None: there is none."""
        followers = self.node_cores[1:]
        return self._us(sum(followers) / len(followers)) if followers else None

    @property
    def nodes_us(self) -> float | None:
        """CPU time of all nodes together for a message, in µs."""
        return self._us(sum(self.node_cores))

    @property
    def client_us(self) -> float | None:
        """CPU time of the client for a message, in µs."""
        return self._us(self.client_cores)


def point_between(
    before: Reading,
    after: Reading,
    messages: float,
    quantiles_ms: Sequence[float],
    *,
    x: float,
    run: int = 0,
    series: str = "",
    elections: int = 0,
) -> Point:
    """Return the point of the time between two readings, in which `messages` were acknowledged."""
    seconds = after.at_s - before.at_s
    nodes_s = [end - begin for begin, end in zip(before.node_cpu_s, after.node_cpu_s, strict=True)]
    client_s = after.client_cpu_s - before.client_cpu_s
    other = None
    if after.machine_cpu_s:
        other = max(after.machine_cpu_s - before.machine_cpu_s - sum(nodes_s) - client_s, 0.0) / seconds
    return Point(
        x=x,
        run=run,
        series=series,
        seconds=round(seconds, _DIGITS),
        messages_s=round(messages / seconds, 3),
        quantiles_ms=tuple(quantiles_ms),
        node_cores=tuple(round(each / seconds, _DIGITS) for each in nodes_s),
        client_cores=round(client_s / seconds, _DIGITS),
        other_cores=None if other is None else round(other, 3),
        node_memory_mib=tuple(round(each / _MIB, 1) for each in after.node_memory_bytes),
        elections=elections,
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, the lowest and the highest value of several runs."""

    median: float
    low: float
    high: float


def spread_of(points: Iterable[Point], figure: Callable[[Point], float | None]) -> Spread | None:
    """Return the spread of a figure over the points that have it; None: none has."""
    values = [value for point in points if (value := figure(point)) is not None]
    return Spread(median(values), min(values), max(values)) if values else None


def latency_at(share: float) -> Callable[[Point], float | None]:
    """Return the figure of a latency for one of `SHARES`."""
    return lambda point: point.latency_ms(share)


def by_x(points: Iterable[Point], series: str = "") -> dict[float, list[Point]]:
    """Return the points of a series for each value of the axis, in the order of the values."""
    chosen = [point for point in points if point.series == series]
    return {x: [point for point in chosen if point.x == x] for x in sorted({point.x for point in chosen})}


def series_of(points: Iterable[Point]) -> list[str]:
    """Return the names of the series, in the order of the measurement."""
    return list(dict.fromkeys(point.series for point in points))


def drift(points: Sequence[Point], figure: Callable[[Point], float | None]) -> float | None:
    """Return the median of a figure in the last quarter of a run as a share of that in the first, less one.

    Args:
        points: consecutive windows of one run.
        figure: the figure.
    """
    quarter = max(len(points) // 4, 1)
    first, last = spread_of(points[:quarter], figure), spread_of(points[-quarter:], figure)
    return last.median / first.median - 1 if first and last and first.median else None

"""The figures of a comparison: one sample of each round, system and workload, and what is computed from them.

A ratio is computed from the samples of one round, because a machine's speed differs more between rounds than within
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

OURS: Final = "ours"
FAILOVER: Final = "failover"


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a workload on one system.

    Attributes:
        round: number of the round, from 0.
        system: name of the system.
        workload: name of the workload, or `FAILOVER`.
        ops_s: acknowledged bodies a second; None: a failover, or it failed.
        p50_ms, p99_ms: latency of an append call; of a batch, of all of it.
        gap_s: of a failover, from the kill to the next acknowledged append.
        node_cpu_s, client_cpu_s: CPU seconds of all nodes, and of the client, for 1,000 bodies.
        other_cores: cores that all other programs, and the system for them, used meanwhile.
        failure: why there are no figures; empty: there are.
    """

    round: int
    system: str
    workload: str
    ops_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    gap_s: float | None = None
    node_cpu_s: float | None = None
    client_cpu_s: float | None = None
    other_cores: float | None = None
    failure: str = ""

    @property
    def figure(self) -> float | None:
        """The main figure: seconds of a failover, otherwise bodies a second."""
        return self.gap_s if self.workload == FAILOVER else self.ops_s


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of the values of several rounds."""

    median: float
    low: float
    high: float

    def as_object(self) -> dict[str, float]:
        """Return it for JSON."""
        return {"median": round(self.median, 5), "lowest": round(self.low, 5), "highest": round(self.high, 5)}


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the values that exist; None if none does."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known)) if known else None


class Comparison:
    """All samples of a run.

    Args:
        samples: in the order of the runs.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def of(self, system: str, workload: str) -> list[Sample]:
        """Return the samples of a system and a workload, by rounds."""
        return [sample for sample in self._samples if (sample.system, sample.workload) == (system, workload)]

    def spread(self, system: str, workload: str, figure: Callable[[Sample], float | None]) -> Spread | None:
        """Return the spread of one figure over the rounds."""
        return spread_of(figure(sample) for sample in self.of(system, workload))

    def ratio(self, system: str, workload: str) -> Spread | None:
        """Return the main figure of ours as a multiple of that of a system, of rounds in which both have one."""
        ours = {sample.round: sample.figure for sample in self.of(OURS, workload)}
        pairs = ((ours.get(sample.round), sample.figure) for sample in self.of(system, workload))
        return spread_of(own / other for own, other in pairs if own is not None and other)

    def failures(self) -> list[str]:
        """Return a line for each system and workload that failed in a round."""
        lines = [f"{each.system}, {each.workload}: {each.failure}" for each in self._samples if each.failure]
        return list(dict.fromkeys(lines))

    def other_cores(self) -> Spread | None:
        """Return the spread of the cores that other programs used."""
        return spread_of(sample.other_cores for sample in self._samples)

"""Measures the message store in one process: puts, dispatch, gets, verify, rebuild, queries by key, memory.

Every run begins with a new store; its parts are measured one after another on the same messages. The time to create the
messages and to open the store is excluded.
"""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cluster.bench.queues import FEW_QUEUES, longest_turn_ms, opening_s, put_p99_ms
from cluster.bench.store_measurements import (
    BenchWork,
    get_all,
    memory_of_reading_mib,
    open_store,
    put_all,
    query_p99_ms,
    rebuild_s,
    record_size,
    timed,
    verify_s,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MB = 1_000_000
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """The unit and the target of a figure.

    Attributes:
        unit: unit of the figure.
        value: its required minimum, or maximum if `is_less_better`.
        is_less_better: whether lower values are better.
    """

    unit: str
    value: float
    is_less_better: bool = False


TARGETS = {
    "put": BenchTarget("messages/s", 150_000),
    "dispatch": BenchTarget("messages/s", 250_000),
    "get": BenchTarget("messages/s", 200_000),
    "memory": BenchTarget("MiB beside maps", 200, is_less_better=True),
    "verify": BenchTarget("MB/s", 300),
    # For a log of 1 GiB; proportionally less for a smaller one.
    "rebuild": BenchTarget("s", 6, is_less_better=True),
    "query": BenchTarget("ms, p99", 1, is_less_better=True),
    "open": BenchTarget("s, many queues", 2, is_less_better=True),
    "open-killed": BenchTarget("s, many queues", 2, is_less_better=True),
    "turn": BenchTarget("ms, many queues", 50, is_less_better=True),
    "put-many": BenchTarget("p99 of 8 queues = 1", 2, is_less_better=True),
}
# Parts with a separate store.
_ALONE = frozenset({"query", "open", "open-killed", "turn", "put-many"})
_PUT_MANY_S = 10.0


@dataclass(frozen=True, slots=True)
class Figure:
    """All runs of one part.

    Attributes:
        name: name of the part.
        target: unit and target.
        messages: messages of one run; for queries, items of the index file; for parts with many queues, the number of
            queues; 0: limited only by time.
        runs: the measured values, in order.
    """

    name: str
    target: BenchTarget
    messages: int
    runs: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the runs."""
        return median(self.runs)

    @property
    def is_met(self) -> bool:
        """Whether the median reaches the target."""
        return self.median <= self.target.value if self.target.is_less_better else self.median >= self.target.value

    def as_object(self) -> dict[str, object]:
        """Return the figure for JSON."""
        return {
            "figure": self.name,
            "unit": self.target.unit,
            "target": round(self.target.value, 3),
            "median": round(self.median, 4),
            "lowest": round(min(self.runs), 4),
            "highest": round(max(self.runs), 4),
            "runs": len(self.runs),
            "messages": self.messages,
        }


@dataclass(frozen=True, slots=True)
class StoreBench:
    """The settings of a measurement.

    Attributes:
        folder: parent of a temporary folder for the stores; it determines the disk.
        log_size: bytes of the log.
        body_size: bytes of each body.
        index_items: items of the queried index file.
        queues: number of queues of the parts with many queues.
    """

    folder: Path
    log_size: int
    body_size: int
    index_items: int
    queues: int

    @property
    def work(self) -> BenchWork:
        """The messages to put: as many whole batches as fit into the log size."""
        return BenchWork.of_size(self.log_size, self.body_size)

    @property
    def title(self) -> str:
        """A line that describes the measurement."""
        sizes = f"bodies of {self.body_size} bytes, {record_size(self.body_size)} in all"
        return f"{self.work.messages:,} messages ({sizes}), one process, async flush"

    def measure(self, parts: Sequence[str], runs: int, progress: Callable[[str], None]) -> list[Figure]:
        """Measure the parts, named as in `TARGETS`, `runs` times; `progress` is called with each step.

        Raises:
            store.errors.StoreError: a store failed; usually the disk is full.
        """
        figures = {name: Figure(name, self._target_of(name), self._messages_of(name)) for name in parts}
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, runs + 1):
            folder = Path(tempfile.mkdtemp(prefix="store-", dir=self.folder))
            try:
                for name, value in self._run(folder, parts, _PrefixedProgress(progress, f"run {number} of {runs}")):
                    figures[name].runs.append(value)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return list(figures.values())

    def _run(self, folder: Path, parts: Sequence[str], progress: Callable[[str], None]) -> Iterator[tuple[str, float]]:
        """Measure the parts once, in a new store; other parts are run only if a requested part depends on them."""
        work = self.work
        for name in parts:
            if name in _ALONE:
                progress(name)
                yield name, self._alone(folder / name, name)
                shutil.rmtree(folder / name)
        if not set(parts) - _ALONE:
            return
        with open_store(folder / "store") as store:
            progress("put")
            seconds = put_all(store, work)
            if "put" in parts:
                yield "put", work.messages / seconds
            progress("dispatch")
            seconds = timed(store.dispatch)
            if "dispatch" in parts:
                yield "dispatch", work.messages / seconds
            if "get" in parts:
                progress("get")
                yield "get", work.messages / get_all(store, work)
        yield from self._run_closed(folder / "store", parts, progress)

    def _alone(self, folder: Path, name: str) -> float:
        """Measure a part with a separate store, in a new folder."""
        if name == "query":
            return query_p99_ms(folder, self.index_items)
        if name == "turn":
            return longest_turn_ms(folder, self.queues)
        if name == "put-many":
            few = put_p99_ms(folder / "few", FEW_QUEUES, _PUT_MANY_S)
            return put_p99_ms(folder / "many", self.queues, _PUT_MANY_S) / few
        return opening_s(folder, self.queues, is_killed=name == "open-killed")

    def _run_closed(
        self, folder: Path, parts: Sequence[str], progress: Callable[[str], None]
    ) -> Iterator[tuple[str, float]]:
        """Measure the parts for which the store must be closed."""
        work = self.work
        if "memory" in parts:
            progress("memory")
            # Spawned, not forked, because memory that is shared with this process would be counted.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                yield "memory", pool.submit(memory_of_reading_mib, folder).result()
        if "verify" in parts:
            progress("verify")
            yield "verify", work.log_size / _MB / verify_s(folder, work)
        if "rebuild" in parts:
            progress("rebuild")
            yield "rebuild", rebuild_s(folder, work)

    def _target_of(self, name: str) -> BenchTarget:
        target = TARGETS[name]
        return replace(target, value=target.value * self.work.log_size / _GIB) if name == "rebuild" else target

    def _messages_of(self, name: str) -> int:
        if name == "query":
            return self.index_items
        return self.queues if name in _ALONE else self.work.messages


@dataclass(frozen=True, slots=True)
class _PrefixedProgress:
    """Reports the current step with the number of the run."""

    progress: Callable[[str], None]
    prefix: str

    def __call__(self, what: str) -> None:
        self.progress(f"{self.prefix}: {what}")

"""Measures the data pipeline on this machine: prints each figure with its target, and writes them as JSON.

The log is 1 GiB of a replicated store, about 1.85 million messages of 580 bytes. It is created once and kept. Each part
runs several times, and the fastest run is reported, because other load can only slow it down. The CPU time is shown
too, because it depends less on other load.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import bench_spark_parts
import sample_store
from bench_spark_parts import PARTS, Bench, Part
from cpu_clock import CpuClock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from sample_store import SampleConfig, make_sample_store

from cluster.cli.bench.output import empty_table, show_figures
from pipeline.spark.session import SparkChoice, spark_session
from store.errors import StoreError

if TYPE_CHECKING:
    from rich.table import Table

MIB = 1 << 20
DONE = "complete"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        name: of the measurement.
        value: measured; None: it could not be measured.
        unit: of value and target.
        target: None: there is no target.
        is_at_most: the target is an upper bound.
        wall_s, cpu_s: elapsed time of the fastest run, and CPU time of all processes in it.
        note: why there is no value.
    """

    name: str
    value: float | None
    unit: str
    target: float | None
    is_at_most: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None: there is no target or no value."""
        if self.value is None or self.target is None:
            return None
        return self.value <= self.target if self.is_at_most else self.value >= self.target


def main() -> int:
    """Run the measurements and print the table."""
    arguments = _parser().parse_args()
    console = Console()
    folder: Path = arguments.folder
    store = folder / f"spark-store-{arguments.size}"
    _make_store(store, arguments.size, console)
    parts = [part for part in PARTS if not arguments.only or part.name in arguments.only]
    figures: list[Figure] = []
    with (
        spark_session("bench", SparkChoice(f"local[{arguments.cores}]")) as spark,
        CpuClock() as clock,
        closing(Bench(spark, store, folder / "spark-scratch")) as bench,
    ):
        # The workers of Spark unpickle functions by their module, and the folder of this script is not on their path.
        for path in (sample_store.__file__, bench_spark_parts.__file__):
            spark.sparkContext.addPyFile(path)
        bench.warm_up()
        for part in parts:
            found = _measured(bench, clock, part, arguments.runs)
            figures += found
            for figure in found:
                console.print(f"  {figure.name}: {_value(figure)}", highlight=False, markup=False)
    objects = [asdict(figure) | {"met": figure.is_met} for figure in figures]
    show_figures(_table(figures, arguments), objects, folder, arguments.json, "spark-")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the data pipeline; targets are for two quiet cores.")
    parser.add_argument("--folder", type=Path, default=Path("bench"), help="where the store and the JSON are")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of the log (1024)")
    parser.add_argument("--cores", type=int, default=2, help="that Spark uses (2)")
    parser.add_argument("--runs", type=int, default=3, help="of each part; the best counts (3)")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], help="measure only these parts")
    parser.add_argument("--json", type=Path, help="where the JSON goes instead")
    return parser


def _make_store(store: Path, size_mib: int, console: Console) -> None:
    if (store / DONE).exists():
        return
    if store.exists():
        sys.exit(f"{store} is incomplete: remove it, and it is created again")
    columns = (TextColumn("making the log"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=size_mib * MIB)
        store.parent.mkdir(parents=True, exist_ok=True)
        make_sample_store(str(store), SampleConfig(size=size_mib * MIB), lambda size: progress.advance(task, size))
    (store / DONE).write_text("whole\n")


def _measured(bench: Bench, clock: CpuClock, part: Part, runs: int) -> list[Figure]:
    """Return the figures of one part, from its fastest run."""
    best: tuple[float, float, dict[str, float]] | None = None
    try:
        prepared = part.prepare(bench)
        for _ in range(1 if part.is_once else runs):
            gc.collect()
            cpu_s, began = clock.seconds(), time.perf_counter()
            extra = prepared() or {}
            wall_s, cpu_s = time.perf_counter() - began, clock.seconds() - cpu_s
            if best is None or wall_s < best[0]:
                best = wall_s, cpu_s, extra
    except (StoreError, ImportError) as error:
        return [Figure(part.title, None, part.unit, part.target, part.is_at_most, note=str(error))]
    assert best is not None
    wall_s, cpu_s, extra = best
    of = cpu_s if part.is_per_core else wall_s
    figures = [Figure(part.title, part.value(bench, of, extra), part.unit, part.target, part.is_at_most, wall_s, cpu_s)]
    figures += [
        Figure(title, extra[name], unit, target, is_at_most) for name, title, unit, target, is_at_most in part.more
    ]
    return figures


def _value(figure: Figure) -> str:
    if figure.value is None:
        return f"not measured: {figure.note}"
    return f"{_number(figure.value)} {figure.unit}"


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _table(figures: list[Figure], arguments: argparse.Namespace) -> Table:
    title = f"The pipeline on {arguments.cores} cores, {arguments.size} MiB of log"
    table = empty_table(title, "figure", ("measured", "target", "met", "wall s", "CPU s"))
    table.columns[0].no_wrap = False
    for figure in figures:
        verdict = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[figure.is_met]
        target = "" if figure.target is None else f"{'≤' if figure.is_at_most else '≥'} {figure.target:,g}"
        times = [f"{seconds:.2f}" if seconds else "" for seconds in (figure.wall_s, figure.cpu_s)]
        value = "-" if figure.value is None else _number(figure.value)
        table.add_row(f"{figure.name}, {figure.unit}", value, target, verdict, *times)
    return table


if __name__ == "__main__":
    sys.exit(main())

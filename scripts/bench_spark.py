"""Measures the data pipeline on this machine: every figure beside its target, as a table and as JSON.

The log is 1 GiB of a replicated store, about 1.85 million messages of 580 bytes; it is made once, by our own code, and
kept. Each part runs a few times, and the best run counts, for a machine is never quieter than it is; the processor time
beside it tells what a busy machine hides.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import psutil
from bench_spark_parts import PARTS, Bench
from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pipeline.sample_store import SampleConfig, make_sample_store
from pipeline.spark_session import SparkChoice, spark_session
from store.errors import StoreError

MIB = 1 << 20
DONE = "complete"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        name: what was measured.
        value: as the target has it; None: it could not be measured.
        unit: of both.
        target: what is wanted; None: nothing in particular.
        is_at_most: the target is an upper bound.
        wall_s, cpu_s: of the run that counts; processor time of all processes.
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
        """Whether the target is met; None: there is none, or no value."""
        if self.value is None or self.target is None:
            return None
        return self.value <= self.target if self.is_at_most else self.value >= self.target


def main() -> int:
    """Measure, and show."""
    arguments = _parser().parse_args()
    console = Console()
    folder: Path = arguments.folder
    store = folder / f"spark-store-{arguments.size}"
    _make_store(store, arguments.size, console)
    parts = [part for part in PARTS if not arguments.only or part.name in arguments.only]
    figures: list[Figure] = []
    with spark_session("bench", SparkChoice(f"local[{arguments.cores}]")) as spark:
        bench = Bench(spark, store, folder / "spark-scratch")
        bench.warm_up()
        for part in parts:
            found = _measured(bench, part, arguments.runs)
            figures += found
            for figure in found:
                console.print(f"  {figure.name}: {_value(figure)}", highlight=False, markup=False)
        bench.close()
    console.print(_table(figures, arguments))
    file = arguments.json or folder / f"spark-{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}.json"
    file.write_text("".join(json.dumps(asdict(figure) | {"met": figure.is_met}) + "\n" for figure in figures))
    console.print(f"the same as JSON, one object a line: {file}", highlight=False)
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
        sys.exit(f"{store} is there and not complete: remove it, it is made anew")
    columns = (TextColumn("making the log"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=size_mib * MIB)
        store.parent.mkdir(parents=True, exist_ok=True)
        make_sample_store(str(store), SampleConfig(size=size_mib * MIB), lambda size: progress.advance(task, size))
    (store / DONE).write_text("whole\n")


def _measured(bench: Bench, part: object, runs: int) -> list[Figure]:
    """Return the figures of one part: those of its best run."""
    from bench_spark_parts import Part  # noqa: PLC0415  # for the type alone

    assert isinstance(part, Part)
    best: tuple[float, float, dict[str, float]] | None = None
    try:
        prepared = part.prepare(bench)
        for _ in range(1 if part.is_once else runs):
            gc.collect()
            cpu_s, began = _cpu_s(), time.perf_counter()
            extra = prepared() or {}
            wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu_s
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


def _cpu_s() -> float:
    """Return the processor time of this process and all below it, those that have ended included."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with _gone_is_nothing():
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def _gone_is_nothing() -> Iterator[None]:
    try:
        yield
    except psutil.Error:
        return


def _value(figure: Figure) -> str:
    if figure.value is None:
        return f"not measured: {figure.note}"
    text = f"{figure.value:,.2f}" if figure.value < 10 else f"{figure.value:,.0f}"
    return f"{text} {figure.unit}"


def _table(figures: list[Figure], arguments: argparse.Namespace) -> Table:
    title = f"The pipeline on {arguments.cores} cores, {arguments.size} MiB of log"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for name in ("figure", "measured", "target", "", "wall s", "CPU s"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for figure in figures:
        sign = "<=" if figure.is_at_most else ">="
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[figure.is_met]
        target = "" if figure.target is None else f"{sign} {figure.target:,g} {figure.unit}"
        times = [f"{seconds:.2f}" if seconds else "" for seconds in (figure.wall_s, figure.cpu_s)]
        table.add_row(figure.name, "-" if figure.value is None else _value(figure), target, verdict, *times)
    return table


if __name__ == "__main__":
    sys.exit(main())

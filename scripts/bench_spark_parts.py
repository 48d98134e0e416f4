"""What `make bench-spark` measures, part by part."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from commitlog.store_directory import LogFile, StoreDirectory, StoreMode
from pipeline.audit_replica import open_replicas
from pipeline.audit_run import run_audit
from pipeline.read_slice import read_slice
from pipeline.report_page import write_report
from pipeline.report_summary import summarise
from pipeline.schema import DEFAULT_NAMES
from pipeline.selection import EVERYTHING
from pipeline.slices import plan
from pipeline.spark_jobs import report_over, run_over, split
from pipeline.stores import open_store

_PRUNED = "topic,queueId,queueOffset,storeTimestamp,bodySize"
_KEYS_KEPT = 1 << 22
_MB = 1e6
_TASKS = 64
_TRIGGER_ROWS = 400_000

Extra = dict[str, float]
Run = Callable[[], Extra | None]


class Bench:
    """What the parts share.

    Attributes:
        spark: the session.
        store: directory of the log.
        scratch: a folder for what parts write; emptied in the end.
        slices: all of the log.
        size: bytes of log.
        messages: in it.
    """

    def __init__(self, spark: SparkSession, store: Path, scratch: Path) -> None:
        self.spark = spark
        self.store = store
        self.scratch = scratch
        with open_store(str(store)) as view:
            self.slices = plan(view, EVERYTHING)
            self.size = view.size
        self.messages = sum(part.end_index - part.begin_index for part in self.slices)

    def frame(self, **options: str) -> DataFrame:
        """Return the log as Spark reads it."""
        return self.spark.read.format("dledger").options(path=str(self.store), **options).load()

    def warm_up(self) -> None:
        """Let Spark compile what it needs, and the system read the log into memory."""
        self.frame(columns="topic,storeSize").groupBy("topic").count().collect()

    def folder(self, name: str) -> Path:
        """Return a new, empty folder."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def close(self) -> None:
        """Remove what parts wrote."""
        shutil.rmtree(self.scratch, ignore_errors=True)


def _mb_a_second(bench: Bench, seconds: float, _extra: Extra) -> float:
    return bench.size / seconds / _MB


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that is measured.

    Attributes:
        name: for `--only`.
        title: for the table.
        unit, target, is_at_most: of the figure.
        prepare: returns what is timed; that may return figures of its own.
        value: makes the figure of the seconds.
        is_per_core: processor time counts, not the clock.
        is_once: one run is enough.
        more: further figures: (name in what is returned, title, unit, target as an upper bound).
    """

    name: str
    title: str
    unit: str
    target: float | None
    prepare: Callable[[Bench], Run]
    value: Callable[[Bench, float, Extra], float] = _mb_a_second
    is_at_most: bool = False
    is_per_core: bool = False
    is_once: bool = False
    more: list[tuple[str, str, str, float]] = field(default_factory=list)


# --------------------------------------------------------------------------------------------------- without Spark


def _decode(bench: Bench, *, verify_crc: bool) -> Run:
    parts = bench.slices[: max(len(bench.slices) // 4, 1)]

    def run() -> Extra:
        for part in parts:
            for _ in read_slice(part, DEFAULT_NAMES, verify_crc=verify_crc):
                pass
        return {"bytes": float(sum(part.size_bytes for part in parts))}

    return run


def _own_mb(_bench: Bench, seconds: float, extra: Extra) -> float:
    return extra["bytes"] / seconds / _MB


def _plan_of_a_terabyte(_bench: Bench) -> Run:
    """Plan a store of 16,000 files of 64 MiB that are not there: a plan that looked into one would fail."""
    size, count = 64 << 20, 16_000
    files = tuple(
        LogFile(f"/nowhere/commitlog/{number * size:020d}", number * size, size, 0) for number in range(count)
    )
    directory = StoreDirectory("/nowhere", StoreMode.PLAIN, list(files))

    def run() -> Extra:
        from pipeline.log_places import LogPlaces  # noqa: PLC0415
        from pipeline.store_view import StoreView  # noqa: PLC0415
        from store.read_only_files import OpenFiles, ReadOnlyFiles  # noqa: PLC0415

        open_files = OpenFiles(ReadOnlyFiles())
        view = StoreView(
            path="/nowhere",
            directory=directory,
            open_files=open_files,
            is_live=False,
            files=files,
            log=LogPlaces(open_files, files),
            queue_views={},
            end_offset=count * size,
            certain_offset=count * size,
        )
        slices = plan(view, EVERYTHING)
        assert len(slices) >= count, len(slices)
        return {"slices": float(len(slices))}

    return run


# ------------------------------------------------------------------------------------------------------ with Spark


def _read(bench: Bench, **options: str) -> Run:
    def run() -> None:
        bench.frame(**options).write.format("noop").mode("overwrite").save()

    return run


def _stream(bench: Bench) -> Run:
    def run() -> Extra:
        checkpoint = bench.folder("stream")
        frame = (
            bench.spark.readStream.format("dledger")
            .options(path=str(bench.store))
            .options(maxOffsetsPerTrigger=str(_TRIGGER_ROWS), startingOffsets="earliest")
        )
        writer = frame.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        rows = sum(each["numInputRows"] for each in progress)
        assert rows == bench.messages, (rows, bench.messages)
        besides = [each["durationMs"]["triggerExecution"] - each["durationMs"]["addBatch"] for each in progress]
        return {"batches": float(len(progress)), "overhead": sorted(besides)[len(besides) // 2] / 1000}

    return run


def _report(bench: Bench) -> Run:
    def run() -> None:
        partial = report_over(bench.spark, bench.slices, EVERYTHING, keys_kept=_KEYS_KEPT)
        folder = bench.folder("report")
        write_report(summarise(partial, "bench"), folder / "report.html", folder / "report.json")

    return run


def _seconds_a_gb(bench: Bench, seconds: float, _extra: Extra) -> float:
    return seconds / (bench.size / 1e9)


def _audit(bench: Bench) -> Run:
    folder = bench.folder("audit")
    paths = []
    for name in ("a", "b", "c"):
        # Files of their own, so that nothing is read once for all three; where it costs no copy.
        shutil.copytree(bench.store, folder / name, copy_function=os.link, symlinks=True)
        paths.append(str(folder / name))

    def run() -> Extra:
        def in_tasks(pieces: Any, work: Any) -> list[Any]:
            return run_over(
                bench.spark, split(pieces, _TASKS), lambda group: [found for piece in group for found in work(piece)]
            )

        audit = run_audit(open_replicas(paths), runner=in_tasks)
        assert not audit.findings, audit.findings[:3]
        return {"bytes": float(audit.size_bytes)}

    return run


PARTS = [
    Part(
        "decode",
        "decode all columns, a core",
        "MB/s",
        2000,
        lambda bench: _decode(bench, verify_crc=False),
        _own_mb,
        is_per_core=True,
    ),
    Part(
        "crc",
        "the same with checksums, a core",
        "MB/s",
        600,
        lambda bench: _decode(bench, verify_crc=True),
        _own_mb,
        is_per_core=True,
    ),
    Part(
        "plan",
        "plan of 1 TB (16,000 slices)",
        "s",
        10,
        _plan_of_a_terabyte,
        lambda _bench, seconds, _extra: seconds,
        is_at_most=True,
        is_once=True,
    ),
    Part("read", "batch read, all columns", "MB/s", 400, _read),
    Part("pruned", "batch read, five columns", "MB/s", 700, lambda bench: _read(bench, columns=_PRUNED)),
    Part(
        "stream",
        "stream",
        "MB/s",
        150,
        _stream,
        more=[("overhead", "  of which a batch costs besides its work (median)", "s", 0.5)],
    ),
    Part("audit", "audit of three replicas", "MB/s", 400, _audit, _own_mb),
    Part("report", "report, page included", "s/GB", 15, _report, _seconds_a_gb, is_at_most=True),
]

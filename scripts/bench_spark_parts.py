"""What `make bench-spark` measures, part by part."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cluster.broker_calls import BrokerCalls
from cluster.local_node import choose_ports
from cluster.local_process import LocalProcess
from cluster.v1 import broker_pb2 as pb
from commitlog.store_directory import LogFile, StoreDirectory, StoreMode
from pipeline.archive import Archive
from pipeline.audit_replica import open_replicas
from pipeline.audit_run import run_audit
from pipeline.index_builder import build_index, extract_keys
from pipeline.queue_builder import build_queues, finish_queues
from pipeline.read_slice import read_slice
from pipeline.report_page import write_report
from pipeline.report_summary import summarise
from pipeline.schema import DEFAULT_NAMES
from pipeline.selection import EVERYTHING
from pipeline.sink_options import LakeTarget
from pipeline.slices import plan
from pipeline.spark_archive import SparkRunner
from pipeline.spark_jobs import report_over, run_over, split
from pipeline.stores import open_store
from store.consume_queues import FILE_SIZE_BYTES as QUEUE_FILE_SIZE
from store.index_file import IndexLayout

_PRUNED = "topic,queueId,queueOffset,storeTimestamp,bodySize"
_KEYS_KEPT = 1 << 22
_MB = 1e6
_TASKS = 64
_TRIGGER_ROWS = 400_000
_TOPIC = "bench"
_SINK_ROWS = 200_000
_START_S = 60.0

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
        more: further figures: (name in what is returned, title, unit, target, whether at most).
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
    more: list[tuple[str, str, str, float, bool]] = field(default_factory=list)


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


# ----------------------------------------------------------------------------------------------- builders and a lake


def _queues(bench: Bench) -> Run:
    def run() -> None:
        target = bench.folder("queues")
        built = run_over(
            bench.spark,
            split(bench.slices, _TASKS),
            lambda group: [build_queues(part, str(target), QUEUE_FILE_SIZE) for part in group],
        )
        finish_queues(str(bench.store), str(target), built, QUEUE_FILE_SIZE)

    return run


def _index(bench: Bench) -> Run:
    def run() -> Extra:
        target = bench.folder("index")
        keys = run_over(
            bench.spark,
            split(bench.slices, _TASKS),
            lambda group: [extract_keys(part, str(target)) for part in group],
        )
        return {"keys": float(build_index(str(target), keys, IndexLayout()))}

    return run


def _keys_a_core(_bench: Bench, seconds: float, extra: Extra) -> float:
    # The processor time of all; an index file's tables of 20 MB are written by one.
    return extra["keys"] / seconds / 1e6


def _archive(bench: Bench) -> Run:
    def run() -> None:
        lake = bench.folder("lake")
        with open_store(str(bench.store)) as view:
            Archive(LakeTarget(str(lake)), "bench").run(view, SparkRunner(bench.spark))

    return run


# ---------------------------------------------------------------------------------------------------------- a broker


@contextmanager
def _broker(bench: Bench) -> Iterator[str]:
    """Give the address of a broker of one node with two topics."""
    folder = bench.folder("broker")
    (port,) = choose_ports(1, None)
    address = f"127.0.0.1:{port}"
    words = ["broker", "--standalone", str(folder / "store"), "--listen", address, "--set", "mapped_file_size=67108864"]
    (folder / "store").mkdir()
    broker = LocalProcess("the broker", words, folder / "broker.log")
    broker.launch()
    try:
        broker.wait_ready(time.monotonic() + _START_S)
        with BrokerCalls(address, 30.0) as calls:
            topic = pb.Topic(name=_TOPIC, read_queues=4, write_queues=4, permission=6)
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        yield address
    finally:
        broker.stop()


def _sink_and_online(bench: Bench) -> Run:
    """Write messages to a broker, then read them from there; both are timed apart."""

    def run() -> Extra:
        rows = bench.frame(columns="body,keys,tags").limit(_SINK_ROWS)
        size = _SINK_ROWS * bench.size / bench.messages
        with _broker(bench) as address:
            began = time.perf_counter()
            writer = rows.write.format("dledger").mode("append").options(endpoints=address, topic=_TOPIC)
            writer.save()
            sink_s = time.perf_counter() - began
            began = time.perf_counter()
            online = bench.spark.read.format("dledger").options(endpoints=address, subscribe=_TOPIC).load()
            online.write.format("noop").mode("overwrite").save()
            online_s = time.perf_counter() - began
        return {"sink": _SINK_ROWS / sink_s, "online": size / online_s / _MB}

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
        more=[("overhead", "  of which a batch costs besides its work (median)", "s", 0.5, True)],
    ),
    Part("audit", "audit of three replicas", "MB/s", 400, _audit, _own_mb),
    Part("report", "report, page included", "s/GB", 15, _report, _seconds_a_gb, is_at_most=True),
    Part("archive", "archive to Parquet, zstd", "MB/s", 350, _archive),
    Part("queues", "rebuild of consume queues", "MB/s", 600, _queues),
    Part("index", "rebuild of the index, a core", "M keys/s", 0.5, _index, _keys_a_core, is_per_core=True),
    Part(
        "broker",
        "sink to a broker",
        "messages/s",
        20_000,
        _sink_and_online,
        lambda _bench, _seconds, extra: extra["sink"],
        more=[("online", "batch read from a broker, all columns", "MB/s", 150, False)],
    ),
]

"""The parts of `make bench-spark`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sample_store import FILE_SIZE as SAMPLE_FILE_SIZE
from sample_store import INDEX_FILE_SIZE as SAMPLE_INDEX_FILE_SIZE

from cluster.local.node import choose_ports
from cluster.local.process import START_LIMIT_S, LocalProcess
from cluster.local.topics import create_topics
from commitlog.offline.directory import LogFileInfo, StoreDirectory, StoreMode
from pipeline.archive.archive import Archive
from pipeline.audit.replica import open_replicas
from pipeline.audit.run import run_audit
from pipeline.columns.schema import DEFAULT_NAMES
from pipeline.log.selection import EVERYTHING
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.reading.read_slice import read_slice
from pipeline.rebuild.dispatch_slices import dispatch_batches
from pipeline.rebuild.index_builder import KeyExtractor, KeyFile, build_index
from pipeline.rebuild.queue_builder import BuiltQueues, QueueBuilder, finish_queues
from pipeline.report.page import write_report
from pipeline.report.summary import summarise
from pipeline.sink.options import LakeTarget
from pipeline.source import parts as source_parts
from pipeline.spark.archive import SparkRunner
from pipeline.spark.jobs import report_over, run_each
from store.index.layout import IndexLayout
from store.queues.consume_queues import FILE_SIZE_BYTES as QUEUE_FILE_SIZE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.log.slice import Slice

_PRUNED = "topic,queueId,queueOffset,storeTimestamp,bodySize"
_KEYS_KEPT = 1 << 22
_MB = 1e6
_TASKS = 64
_TRIGGER_ROWS = 400_000
_TOPIC = "bench"
_SINK_ROWS = 200_000

Extra = dict[str, float]
Run = Callable[[], Extra | None]


class Bench:
    """Resources shared by the parts.

    Attributes:
        spark: the session.
        store: directory of the log.
        scratch: folder for the output of parts; deleted by `close`.
        slices: of the whole log.
        size: bytes of the log.
        messages: number of messages in the log.
        running: processes started by parts; stopped by `close`.
    """

    def __init__(self, spark: SparkSession, store: Path, scratch: Path) -> None:
        self.spark = spark
        self.store = store
        self.scratch = scratch
        self.running = ExitStack()
        with open_store(str(store)) as view:
            self.slices = plan(view, EVERYTHING)
            self.size = view.size
        self.messages = sum(part.end_index - part.begin_index for part in self.slices)

    def frame(self, **options: str) -> DataFrame:
        """Return the log as a data frame."""
        return self.spark.read.format("dledger").options(path=str(self.store), **options).load()

    def warm_up(self) -> None:
        """Warm up the JVM and load the log into the page cache."""
        self.frame(columns="topic,storeSize").groupBy("topic").count().collect()

    def folder(self, name: str) -> Path:
        """Return a new, empty folder."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def close(self) -> None:
        """Stop the processes of parts, and delete their files."""
        self.running.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _mb_a_second(bench: Bench, seconds: float, _extra: Extra) -> float:
    return bench.size / seconds / _MB


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement.

    Attributes:
        name: for `--only`.
        title: for the table.
        unit, target, is_at_most: of the figure.
        prepare: returns the function to time, which may return further figures.
        value: computes the figure from the seconds.
        is_per_core: use CPU time instead of elapsed time.
        is_once: run once.
        more: further figures: (key in the returned figures, title, unit, target, whether at most).
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
    """Plan a store of 16,000 files of 64 MiB that do not exist: planning fails if it opens one."""
    size, count = 64 << 20, 16_000
    files = tuple(
        LogFileInfo(f"/nowhere/commitlog/{number * size:020d}", number * size, size, 0) for number in range(count)
    )
    directory = StoreDirectory("/nowhere", StoreMode.PLAIN, list(files))

    def run() -> Extra:
        from pipeline.log.places import LogPlaces
        from pipeline.log.store_view import StoreView
        from store.fs.read_only_files import OpenFiles, ReadOnlyFiles

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
        parts = [source_parts.Part(part, EVERYTHING) for part in bench.slices]
        partial = report_over(bench.spark, parts, keys_kept=_KEYS_KEPT)
        folder = bench.folder("report")
        write_report(summarise(partial, "bench"), folder / "report.html", folder / "report.json")

    return run


def _seconds_a_gb(bench: Bench, seconds: float, _extra: Extra) -> float:
    return seconds / (bench.size / 1e9)


def _audit(bench: Bench) -> Run:
    folder = bench.folder("audit")
    paths = []
    for name in ("a", "b", "c"):
        # Separate copies, so that no replica is in the page cache because of another; reflinks if possible.
        shutil.copytree(bench.store, folder / name, copy_function=os.link, symlinks=True)
        paths.append(str(folder / name))

    def run() -> Extra:
        audit = run_audit(open_replicas(paths), runner=partial(run_each, bench.spark, tasks_max=_TASKS))
        assert not audit.findings, audit.findings[:3]
        return {"bytes": float(audit.size_bytes)}

    return run


# ----------------------------------------------------------------------------------------------- builders and a lake


def _build_queues(part: Slice, target: str) -> BuiltQueues:
    with QueueBuilder(part, target, QUEUE_FILE_SIZE) as builder:
        for batch in dispatch_batches(part, has_keys=False):
            builder.add(batch)
    return builder.built


def _extract_keys(part: Slice, folder: str) -> KeyFile:
    extractor = KeyExtractor(part, folder)
    for batch in dispatch_batches(part, has_keys=True):
        extractor.add(batch)
    return extractor.finish()


def _queues(bench: Bench) -> Run:
    def run() -> None:
        target = bench.folder("queues")
        built = run_each(
            bench.spark,
            bench.slices,
            lambda part: [_build_queues(part, str(target))],
            tasks_max=_TASKS,
        )
        finish_queues(str(bench.store), str(target), built, QUEUE_FILE_SIZE)

    return run


def _index(bench: Bench) -> Run:
    def run() -> Extra:
        target = bench.folder("index")
        keys = run_each(bench.spark, bench.slices, lambda part: [_extract_keys(part, str(target))], tasks_max=_TASKS)
        return {"keys": float(build_index(str(target), keys, IndexLayout()))}

    return run


def _keys_a_core(_bench: Bench, seconds: float, extra: Extra) -> float:
    # CPU time of all processes; one process writes the 20 MB tables of an index file.
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
    """Provide the address of a broker of one node with two topics."""
    folder = bench.folder("broker")
    (port,) = choose_ports(1, None)
    address = f"127.0.0.1:{port}"
    words = ["broker", "--standalone", str(folder / "store"), "--listen", address, "--set", "mapped_file_size=67108864"]
    (folder / "store").mkdir()
    broker = LocalProcess("the broker", words, folder / "broker.log")
    broker.launch()
    try:
        broker.wait_ready(time.monotonic() + START_LIMIT_S)
        create_topics(address, [_TOPIC])
        yield address
    finally:
        broker.stop()


def _sink(bench: Bench) -> Run:
    def run() -> Extra:
        rows = bench.frame(columns="body,keys,tags").limit(_SINK_ROWS)
        with _broker(bench) as address:
            began = time.perf_counter()
            rows.write.format("dledger").mode("append").options(endpoints=address, topic=_TOPIC).save()
            return {"sink": _SINK_ROWS / (time.perf_counter() - began)}

    return run


@contextmanager
def _node_of(bench: Bench) -> Iterator[str]:
    """Provide the address of a single-node group that opened a copy of the log, with all of its topics."""
    folder = bench.folder("node")
    shutil.copytree(bench.store, folder / "store")
    peer, client, metrics = (f"127.0.0.1:{port}" for port in choose_ports(3, None))
    options = {
        "broker": _TOPIC,
        "self_id": "n0",
        "peers": f"n0-{peer}",
        "client_address": client,
        "metrics_address": metrics,
        "store_base_dir": folder / "store",
        # No node has made this store, so it has no identity.
        "is_adopting": "true",
        "mapped_file_size_for_entry_data": SAMPLE_FILE_SIZE,
        "mapped_file_size_for_entry_index": SAMPLE_INDEX_FILE_SIZE,
    }
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    node = LocalProcess("the node", ["server", *words], folder / "node.log")
    node.launch()
    try:
        node.wait_ready(time.monotonic() + START_LIMIT_S)
        create_topics(client, [path.name for path in (bench.store / "consumequeue").iterdir()])
        yield client
    finally:
        node.stop()


def _online(bench: Bench) -> Run:
    address = bench.running.enter_context(_node_of(bench))
    frame = bench.spark.read.format("dledger").options(endpoints=address).load()
    return frame.write.format("noop").mode("overwrite").save


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
        _sink,
        lambda _bench, _seconds, extra: extra["sink"],
    ),
    Part("online", "batch read from a broker, all columns", "MB/s", 150, _online),
]

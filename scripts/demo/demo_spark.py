"""The third part of the demo: Spark streams real logs from a broker into a lake while the leader is killed.

Each log file is a topic of a broker of three nodes, each line a message. While they are put, a Spark query reads them
from the broker and writes Parquet. In the middle the leader is killed with kill -9. At the end every line must be in
the lake exactly once, and a report shows the contents of the log.
"""

from __future__ import annotations

import lzma
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from demo_stage import BROKER_OPTIONS, counting_bar, say, security_of
from demo_writer import DemoError
from rich.console import Console
from rich.table import Table

from cluster import OutgoingMessage, Producer
from cluster.local.brokers import LocalBrokers
from cluster.local.secured import APPLICATION
from cluster.local.topics import create_topics
from pipeline.common.errors import PipelineError
from pipeline.common.java_home import NoJava, find_java_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from cluster.local.cluster import LocalCluster

LOGS = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "loghub"
PAGE = Path("dist") / "demo-report.html"
_BATCH = 100
_CATCH_UP_S = 120.0
_POLL_S = 0.2


@dataclass(slots=True)
class Drill:
    """The kill -9 of the leader: its node, the number of messages sent before, and the pause of puts."""

    victim: str = ""
    at: int = 0
    failover_s: float = 0.0


def why_not() -> str | None:
    """Return why this part cannot run on this machine; None: it can."""
    for library in ("pyspark", "pyarrow", "matplotlib", "deltalake"):
        if find_spec(library) is None:
            return f"{library} is not installed: pip install -e '.[spark]'"
    try:
        find_java_home()
    except NoJava as error:
        return str(error)
    return None if LOGS.is_dir() else f"the logs of {LOGS} do not exist here"


def third_act(folder: Path, console: Console, *, is_secured: bool = False) -> bool:
    """Run this part; return whether every line is in the lake exactly once.

    Args:
        folder: for all files.
        console: for all output.
        is_secured: whether the nodes use TLS and have users; Spark gets the files by its environment.

    Raises: DemoError, cluster.local.node.ClusterError, dledger.errors.DLedgerError: the demo cannot continue.
    """
    from pipeline.spark.session import SparkChoice, spark_session  # only where it is installed

    topics = {path.name.partition(".")[0]: _lines(path) for path in sorted(LOGS.glob("*.log.xz"))}
    count = sum(map(len, topics.values()))
    say(console, f"{count:,} lines of {len(topics)} programs, a topic each: {', '.join(topics)}")
    brokers = LocalBrokers.create(folder / "lake-brokers", options=BROKER_OPTIONS, is_secured=is_secured)
    (cluster,) = brokers.clusters.values()
    lake = folder / "lake"
    try:
        if brokers.secrets is not None:
            os.environ |= brokers.secrets.files_of(APPLICATION).environment()
        with brokers, spark_session("demo", SparkChoice("local[2]")) as spark:
            cluster.wait_for_leader()
            create_topics(cluster.endpoints, topics, security_of(brokers))
            say(console, "Spark reads from the broker and writes Parquet; halfway the leader is killed with kill -9")
            query = _stream(spark, cluster.endpoints, list(topics), lake, folder)
            drill = _send(topics, brokers, cluster, lake, console)
            cluster.start_node(drill.victim)
            _wait(query, lake, count, console)
            found = _counted(spark, lake)
            brokers.stop()
            say(console, "The nodes are stopped. Writing a report on the files of one of them")
            _report(spark, cluster.directory_of("n0").parent)
    except PipelineError as error:
        raise DemoError(str(error)) from error
    is_exact = _print_comparison(topics, found, console)
    console.print(
        f"{drill.victim} was killed at message {drill.at:,}; puts continued after {drill.failover_s:.2f} s. "
        f"The report: {PAGE.absolute()}"
    )
    return is_exact


def _lines(path: Path) -> list[bytes]:
    return lzma.decompress(path.read_bytes()).splitlines()


# --------------------------------------------------------------------------------------------- putting, and kill -9


def _send(
    topics: Mapping[str, Sequence[bytes]], brokers: LocalBrokers, cluster: LocalCluster, lake: Path, console: Console
) -> Drill:
    """Put all lines, a batch of each topic in turn; the leader is killed in the middle while the query runs."""
    batches = [
        [OutgoingMessage(topic, line, keys=f"{topic}-{first + number}") for number, line in enumerate(part)]
        for first in range(0, max(map(len, topics.values())), _BATCH)
        for topic, lines in topics.items()
        if (part := lines[first : first + _BATCH])
    ]
    drill, sent = Drill(), 0
    with (
        Producer(
            brokers.endpoints,
            compression=None,
            is_unknown_retried=True,
            deadline_s=60.0,
            security=security_of(brokers),
        ) as producer,
        counting_bar(console) as progress,
    ):
        task = progress.add_task("lines", total=sum(map(len, batches)))
        for number, batch in enumerate(batches):
            if number == len(batches) // 2:
                drill = Drill(cluster.wait_for_leader(), sent)
                cluster.kill(drill.victim)
                killed_at = time.monotonic()
                progress.console.print(f"  [red]kill -9[/] of {drill.victim} at message {sent:,}")
                producer.send_many(batch)
                drill.failover_s = time.monotonic() - killed_at
            else:
                producer.send_many(batch)
            sent += len(batch)
            if number in {len(batches) // 4, 3 * len(batches) // 4}:
                # Without a pause all lines would be put before the query starts.
                _wait_for_rows(lake, sent // 2)
            progress.update(task, completed=sent)
    return drill


# -------------------------------------------------------------------------------------------------------- the lake


def _stream(spark: SparkSession, endpoints: str, topics: Sequence[str], lake: Path, folder: Path) -> StreamingQuery:
    stream = spark.readStream.format("dledger").option("endpoints", endpoints).option("subscribe", ",".join(topics))
    frame = stream.option("startingOffsets", "earliest").load()
    writer = frame.writeStream.format("dledger-lake").option("path", str(lake))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="1 second").start()


def _wait(query: StreamingQuery, lake: Path, count: int, console: Console) -> None:
    """Wait until the lake has as many rows as there are lines, and the query is idle."""
    began = time.monotonic()
    while _rows(lake) < count:
        error = query.exception()
        if error is not None:
            raise DemoError(f"the query ended: {error}")
        if time.monotonic() - began > _CATCH_UP_S:
            raise DemoError(f"the lake has {_rows(lake):,} of {count:,} lines after {_CATCH_UP_S:.0f} s")
        time.sleep(_POLL_S)
    query.processAllAvailable()
    batches = len({each["batchId"] for each in query.recentProgress if each["numInputRows"]})
    query.stop()
    say(console, f"The query has caught up, {time.monotonic() - began:.1f} s after the last put, in {batches} batches")


def _wait_for_rows(lake: Path, count: int) -> None:
    began = time.monotonic()
    while _rows(lake) < count:
        if time.monotonic() - began > _CATCH_UP_S:
            raise DemoError(f"the lake has {_rows(lake):,} lines after {_CATCH_UP_S:.0f} s: the query has stalled")
        time.sleep(_POLL_S)


def _rows(lake: Path) -> int:
    """Return the number of rows committed to the lake. Does not use Spark, because it is called often."""
    from pipeline.lake.lake import DamagedLake, Lake  # only where Arrow is installed

    try:
        return sum(file.rows for file in Lake.open(str(lake)).files())
    except DamagedLake:
        # The query has not created the lake yet.
        return 0


def _counted(spark: SparkSession, lake: Path) -> dict[str, Counter[bytes]]:
    """Return the number of occurrences of each line of each topic in the lake."""
    from pipeline.spark.lake_frame import lake_frame  # only where PySpark is installed

    found: dict[str, Counter[bytes]] = {}
    for row in lake_frame(spark, str(lake)).select("topic", "body").collect():
        found.setdefault(row["topic"], Counter())[bytes(row["body"])] += 1
    return found


def _report(spark: SparkSession, store: Path) -> None:
    from pipeline.log.selection import EVERYTHING
    from pipeline.log.slices import plan
    from pipeline.log.stores import open_store
    from pipeline.report.page import write_report  # only where it is installed
    from pipeline.report.summary import summarise
    from pipeline.source.parts import Part
    from pipeline.spark.jobs import report_over

    with open_store(str(store)) as view:
        slices = plan(view)
    partial = report_over(spark, [Part(part, EVERYTHING) for part in slices], keys_kept=1 << 20)
    PAGE.parent.mkdir(exist_ok=True)
    write_report(summarise(partial, "make demo: five programs' logs"), PAGE, None)


def _print_comparison(
    topics: Mapping[str, Sequence[bytes]], found: Mapping[str, Counter[bytes]], console: Console
) -> bool:
    """Print a table of the lines in the lake by topic; return whether each is there exactly once."""
    table = Table(title="Contents of the lake", title_justify="left")
    for name in ("topic", "sent", "in the lake", "missing", "doubled or foreign"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    is_exact = True
    for topic, lines in topics.items():
        sent, there = Counter(lines), found.get(topic, Counter())
        missing, more = (sent - there).total(), (there - sent).total()
        is_exact &= not missing and not more
        table.add_row(topic, *(f"{number:,}" for number in (sent.total(), there.total(), missing, more)))
    console.print(table)
    return is_exact


def main() -> int:
    """Run this part alone."""
    import tempfile

    console = Console(highlight=False, soft_wrap=True)
    reason = why_not()
    if reason is not None:
        console.print(f"skipped: {reason}")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="dledger-demo-"))
    try:
        return 0 if third_act(folder, console) else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

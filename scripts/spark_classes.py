"""Writes the archive of Spark's classes that the JVMs of tests/spark map into memory.

    python scripts/spark_classes.py

A JVM spends half of its processor time until the end of its first queries on reading and verifying classes from jar
files, and the tests of Spark start about twenty JVMs. This program starts one, has it load the classes of batches and
streams, and dump them at its exit. A JVM of another version, or with other jar files, ignores the archive.

It ends at once if this environment has an archive that is newer than its jar files.

Without Java there is nothing to write, and a JVM that cannot dump classes only makes the tests slower: both are
reported, and the exit status is 0. So is a stream that fails, for example because Spark gives a Python worker 10 s to
connect, and a machine may be busy: then the archive lacks the classes that were not loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
# The dump takes some seconds; a machine may be busy.
EXIT_S = 300


def main() -> int:
    """Run the program and return the exit status."""
    sys.path.insert(0, str(ROOT))
    processes: Any = importlib.import_module("tests.spark.processes")
    target: Path = processes.CLASSES
    if target.exists() and target.stat().st_mtime > processes.JARS.stat().st_mtime:
        return 0
    from pipeline.common.java_home import NoJava, use_java

    try:
        use_java()
    except NoJava as error:
        print(f"no archive of Spark's classes: {error}", file=sys.stderr)
        return 0
    draft = target.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        session = _session(Path(folder), draft)
        _use_spark(session, Path(folder))
        _end(session)
    if draft.exists():
        draft.replace(target)
    else:
        print(f"no archive of Spark's classes: this JVM has not written {draft}", file=sys.stderr)
    return 0


def _session(folder: Path, archive: Path) -> SparkSession:
    processes: Any = importlib.import_module("tests.spark.processes")
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("classes")
    flags = f"{processes.QUICK_START} -XX:ArchiveClassesAtExit={archive} {processes.QUIET_ARCHIVE}"
    settings = processes.session_settings(folder) | {"spark.driver.extraJavaOptions": flags}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _use_spark(session: SparkSession, folder: Path) -> None:
    """Run a query of each kind, so that its classes are loaded."""
    from pyspark.errors import StreamingQueryException
    from sample_store import SampleConfig, make_sample_store

    store = str(folder / "store")
    make_sample_store(store, SampleConfig(size=1 << 19, file_size=1 << 19))
    messages = session.read.format("dledger").load(store)
    messages.where("queueId = 1").groupBy("topic").count().orderBy("topic").collect()
    reader = session.readStream.format("dledger").option("startingOffsets", "earliest")
    for sink in ("parquet", "dledger-lake"):
        writer = reader.load(store).writeStream.format(sink).option("path", str(folder / sink))
        writer = writer.option("checkpointLocation", str(folder / f"{sink}-checkpoint"))
        try:
            writer.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException as error:
            print(f"the archive of Spark's classes lacks those of {sink}: {error.getCondition()}", file=sys.stderr)
            continue
        if sink == "parquet":
            session.read.parquet(str(folder / sink)).count()


def _end(session: SparkSession) -> None:
    """End the JVM, and wait until it has written what it loaded."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark shows the process of the JVM nowhere else
    process = gateway.proc
    session.stop()
    process.stdin.close()
    process.wait(EXIT_S)


if __name__ == "__main__":
    sys.exit(main())

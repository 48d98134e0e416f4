"""Invalid input through Spark itself: each one gets one clear error that names the option or the file."""

import shutil
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from cluster.v1 import broker_pb2 as pb
from pipeline.cli.common import cause_of
from pipeline.common.errors import BrokerUnreachable
from pipeline.log.selection import EVERYTHING
from pipeline.log.slices import plan
from pipeline.log.stores import open_store
from pipeline.source.chunk_client import BrokerLog
from pipeline.source.parts import Part
from pipeline.spark.jobs import report_over
from scripts.sample_store import SampleConfig, make_sample_store
from tests.spark.processes import session_settings, spark_environment
from tests.spark.queries import LIMIT_S, run_until
from tests.spark.test_options import run_stream
from tests.spark.test_streams import offsets_of
from tests.support.brokers.thread import running_broker
from tests.support.waiting import wait_until
from tests.unit.pipeline.source.test_stream_plan import put


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store of entries in three files."""
    folder = tmp_path_factory.mktemp("bad") / "store"
    make_sample_store(str(folder), SampleConfig(size=3 << 20, file_size=1 << 20))
    return folder


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker", "a", "b") as running:
        put(running, "a", 0, 60)
        put(running, "b", 1, 20)
        running.wait_dispatched()
        yield running


def refused(frame_of):
    """Return the error text of a frame that cannot be read."""
    with pytest.raises(PySparkException) as caught:
        frame_of().collect()
    return cause_of(str(caught.value))


def frame(spark, **options):
    return spark.read.format("dledger").options(**options).load()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"path": "/usr/lib"}, "/usr/lib"),
        ({"endpoints": "not an address"}, "option 'endpoints'"),
        ({"subscrib": "a"}, "Did you mean 'subscribe'"),
        ({"subscribe": "absent"}, "topic 'absent'"),
        ({"assign": '{"orders": [99]}'}, "queue 99 of topic 'orders'"),
        ({"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"}, "option 'endingTimestamp'"),
        (
            {"startingOffsets": '{"orders": {"0": 9}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "option 'endingOffsets'",
        ),
        ({"startingOffsets": '{"orders": {"0": 99999999}}'}, "option 'startingOffsets'"),
        ({"endingOffsets": '{"orders": {"0": 99999999}}'}, "topic orders, queue 0"),
        ({"columns": "topic,bodysize"}, "Did you mean 'bodySize'"),
    ],
    ids=["missing", "foreign", "address", "option", "topic", "queue", "times", "offsets", "behind", "lost", "column"],
)
def test_mismatches_are_reported_by_name(spark, store, options, said):
    place = {} if {"path", "endpoints"} & set(options) else {"path": str(store)}

    assert said in refused(lambda: frame(spark, **place, **options))


def test_nodes_that_do_not_answer_are_named():
    with pytest.raises(BrokerUnreachable, match=r"broker 127\.0\.0\.1:1: .*'endpoints'"):
        BrokerLog("127.0.0.1:1", 0.5).describe()


def test_a_schema_that_does_not_fit_names_its_column(spark, store):
    assert "column 'topic'" in refused(lambda: spark.read.format("dledger").schema("topic bigint").load(str(store)))


def test_a_file_that_is_deleted_after_the_plan_names_what_is_lost(spark, store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    data = sorted((copy / "dledger-n0" / "data").iterdir())[1]

    with open_store(str(copy)) as view:
        parts = [Part(part, EVERYTHING) for part in plan(view)]
    data.unlink()
    with pytest.raises(Exception, match="lost entries") as caught:
        report_over(spark, parts, keys_kept=1 << 20)
    assert f"{data} was deleted since the plan was made" in cause_of(str(caught.value))
    assert "no file contains it" in refused(lambda: frame(spark, path=str(copy)))
    assert frame(spark, path=str(copy), failOnDataLoss="false").count() > 0


def test_the_checkpoint_of_another_source_ends_the_query(spark, broker, tmp_path):
    """A query of Spark's own source has used the checkpoint before."""
    rates = spark.readStream.format("rate").load().selectExpr("cast(value as string) body")
    writer = rates.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(lambda: query.recentProgress and any(each["numInputRows"] for each in query.recentProgress))
    query.stop()

    with pytest.raises(PySparkException, match="checkpoint: expected offsets of this source"):
        run_stream(spark, tmp_path, {"endpoints": broker.endpoints, "columns": "body"})


def test_the_second_of_two_queries_with_one_checkpoint_is_ended(spark, broker, tmp_path):
    stream = spark.readStream.format("dledger").options(path=str(broker.path), startingOffsets="earliest").load()
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    start = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start
    first = run_until(start, lambda _: (tmp_path / "checkpoint" / "commits" / "0").exists(), "a batch")
    try:
        spark.conf.set("spark.sql.streaming.stopActiveRunOnRestart", "false")
        second = stream.writeStream.format("parquet").option("path", str(tmp_path / "other"))
        with pytest.raises(Exception, match=r"(?i)concurrent|already active"):
            second.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    finally:
        spark.conf.unset("spark.sql.streaming.stopActiveRunOnRestart")
        first.stop()
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.count() == 80


def test_a_topic_that_is_deleted_while_a_query_runs_ends_it_unless_that_may_be(spark, broker, tmp_path):
    options = {"endpoints": broker.endpoints, "columns": "topic,queueOffset"}
    run_stream(spark, tmp_path, options)
    broker.call("DeleteTopic", pb.DeleteTopicRequest(topic="b"))
    put(broker, "a", 0, 5)
    broker.wait_dispatched()

    with pytest.raises(PySparkException, match=r"topic b, queue 1 \[20, 20\): it was deleted"):
        run_stream(spark, tmp_path, options | {"startingOffsets": "earliest"})
    run_stream(spark, tmp_path, options | {"failOnDataLoss": "false"})
    assert spark.read.parquet(str(tmp_path / "out")).count() == 85


def test_messages_that_expire_while_a_query_is_away_are_named(spark, store, tmp_path):
    """Old files are deleted between two runs of one query, as retention does it."""
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    options = {"path": str(copy), "columns": "topic,queueId,queueOffset", "maxOffsetsPerTrigger": "200"}
    reader = spark.readStream.format("dledger").options(startingOffsets="earliest", **options).load()
    writer = reader.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    # One batch, and no other one for long: the number of batches until the stop must not depend on the machine.
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 hour")
    run_until(writer.start, lambda _: (tmp_path / "checkpoint" / "commits" / "0").exists(), "a batch").stop()
    first, *_ = sorted((copy / "dledger-n0" / "data").iterdir())
    first.unlink()

    with pytest.raises(PySparkException, match=r"lost topic .*deleted before it was read"):
        run_stream(spark, tmp_path, options)
    # All remaining messages in few batches.
    run_stream(spark, tmp_path, options | {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "100000"})
    rows = [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert len(rows) == len(set(rows))


def test_progress_reports_the_lag_of_the_query(spark, broker, tmp_path):
    """`latestOffset` is the end of the queues, `endOffset` the position of the query."""

    query = run_stream(spark, tmp_path, {"endpoints": broker.endpoints, "maxOffsetsPerTrigger": "30"})

    batches = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
    ends, latest = ([offsets_of(each[name]) for each in batches] for name in ("endOffset", "latestOffset"))
    lags = [
        sum(latest_[topic].get(queue, 0) - offset for topic, queues in end.items() for queue, offset in queues.items())
        for end, latest_ in zip(ends, latest, strict=True)
    ]
    assert lags == [50, 20, 0]


def test_an_executor_without_pyarrow_gets_an_error_with_the_package_to_install(tmp_path, store):
    """The Python of the tasks differs from the driver's, and has no pyarrow."""

    bare = tmp_path / "without"
    (bare / "pyarrow").mkdir(parents=True)
    (bare / "pyarrow" / "__init__.py").write_text("raise ImportError('No module named pyarrow', name='pyarrow')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{bare}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    settings = session_settings(tmp_path)
    program = (
        "from pyspark.sql import SparkSession\n"
        "builder = SparkSession.builder\n"
        f"for name, value in {settings!r}.items():\n    builder = builder.config(name, value)\n"
        "spark = builder.getOrCreate()\n"
        f"spark.read.format('dledger').load({str(store)!r}).count()\n"
    )

    env = spark_environment(tmp_path, PYSPARK_PYTHON=str(python))
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=LIMIT_S * 2, check=False
    )

    assert done.returncode != 0
    assert "pyarrow" in done.stderr
    assert "pip install" in done.stderr or "PACKAGE_NOT_INSTALLED" in done.stderr

"""`format("dledger")` as a sink: rows of batches and streams are messages, once also through crashes."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pipeline.sink.log_writer import LogTarget, LogWriter, RowOrigin
from pipeline.spark.source import DLedgerSource
from tests.support.brokers.thread import running_broker

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "store", TOPIC, "other") as broker:
        yield broker


def numbers(broker):
    return sorted(map(int, broker.bodies(TOPIC)))


def test_rows_of_a_batch_are_messages(spark, broker):
    rows = spark.range(3_000).selectExpr(
        "cast(id as string) as body",
        "'orders' as topic",
        "concat('t', id % 3) as tags",
        "array(concat('k', id)) as keys",
    )

    writer = rows.repartition(3).write.format("dledger").option("endpoints", broker.endpoints)
    writer.mode("append").save()

    messages = [each for queue in broker.messages(TOPIC).values() for each in queue]
    assert numbers(broker) == list(range(3_000))
    assert all(each.properties["TAGS"] == f"t{int(each.body) % 3}" for each in messages)
    assert all(each.properties["KEYS"] == f"k{int(each.body)}" for each in messages)


def test_repeated_write_with_the_same_id_is_stored_once(spark, broker):
    options = {"endpoints": broker.endpoints, "topic": TOPIC, "exactlyOnce": "true", "writeId": "monday"}
    for _ in range(2):
        rows = spark.range(0, 2_000, 1, 2).selectExpr("cast(id as string) as body")
        rows.write.format("dledger").options(**options).mode("append").save()

    assert numbers(broker) == list(range(2_000))


def crashing_source(folder):
    """Return a data source like ours, which dies once each: before a batch is committed, and in a task at its end."""

    class CrashingLog(DLedgerSource):
        @classmethod
        def name(cls):
            return "crashing-dledger"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            writer = super().streamWriter(schema, overwrite)
            write, commit = writer.write, writer.commit

            def die(what):
                flag = Path(folder) / what
                if not flag.exists():
                    flag.touch()
                    raise RuntimeError(f"the {what} dies here")

            def write_and_die(iterator):
                from pipeline.spark.task import stream_task

                written = write(iterator)
                if stream_task().batch_id == 2:
                    die("task")
                return written

            def die_and_commit(messages, batch_id):
                if batch_id == 1:
                    die("driver")
                commit(messages, batch_id)

            writer.write, writer.commit = write_and_die, die_and_commit
            return writer

    return CrashingLog


def test_stream_is_stored_once_despite_crashes_between_append_and_commit(spark, broker, tmp_path):
    """The query restarts when the dedupe window no longer has the messages that it stored."""
    source = tmp_path / "source"
    for number in range(4):
        rows = spark.range(600 * number, 600 * (number + 1), 1, 1).selectExpr("cast(id as string) as body")
        rows.write.mode("append").parquet(str(source))
    spark.dataSource.register(crashing_source(tmp_path))
    options = {"endpoints": broker.endpoints, "topic": TOPIC, "exactlyOnce": "true"}

    def run():
        stream = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1).parquet(str(source))
        writer = stream.writeStream.format("crashing-dledger").options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True).start()
        query.awaitTermination(200)

    for number, process in enumerate(("driver", "task")):
        with pytest.raises(PySparkException, match=f"the {process} dies here"):
            run()
        with LogWriter(LogTarget(broker.endpoints, topic="other"), RowOrigin("x", number, 0)) as writer:
            writer.write(pa.record_batch({"body": [b"x"] * 1_500}))
            writer.finish()
    run()

    assert numbers(broker) == list(range(2_400))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("'a' as body, 1 as queueOffset", {}, "queueOffset"),
        ("'a' as text", {}, "body"),
        ("'a' as body", {"topic": "nothing"}, "UNKNOWN_TOPIC"),
        ("'a' as body", {"exactlyonce": "perhaps"}, "exactlyOnce"),
        ("'a' as body", {"endpoints": "127.0.0.1:1", "deliveryTimeout": "300ms"}, "NOT_REACHED"),
    ],
)
def test_rows_that_cannot_be_written_are_reported(spark, broker, columns, options, said):
    writer = spark.sql(f"select {columns}").write.format("dledger")
    with pytest.raises(PySparkException, match=said):
        writer.options(**{"endpoints": broker.endpoints, "topic": TOPIC, **options}).mode("append").save()

    assert broker.bodies(TOPIC) == []

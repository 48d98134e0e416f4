"""Every option of the source through Spark itself: each does what its table says, or is refused by its name."""

import json
import shutil

import pytest
from pyspark.errors import PySparkException

from cluster.v1 import broker_pb2 as pb
from pipeline.source.options import OPTION_NAMES
from tests.spark.queries import run_to_the_end, run_until
from tests.support.brokers.thread import running_broker
from tests.unit.pipeline.source.test_stream_plan import put

# Topic a: queues 0 and 1 of 60 messages; topic b: queue 0 of 30.
COUNT = 150


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("options") / "broker", "a", "b") as running:
        for number in range(30):
            put(running, "a", number % 2, 4)
            put(running, "b", 0, 1)
        request = pb.PutRequest(topic="b", queue_ids=[1], bodies=[b"tagged"], properties=[b"TAGS\1red\2KEYS\1k1\2"])
        assert not running.call("Put", request).answer.code
        running.wait_dispatched()
        yield running


@pytest.fixture(params=["path", "endpoints"])
def place(request, broker):
    return {"path": str(broker.path)} if request.param == "path" else {"endpoints": broker.endpoints}


@pytest.fixture(scope="module")
def closed(broker, tmp_path_factory):
    """Return a copy of the broker's files, made while it is closed."""
    folder = tmp_path_factory.mktemp("closed") / "store"
    broker.stop()
    shutil.copytree(broker.path, folder)
    broker.start()
    return folder


def moment(broker):
    """Return when the 41st message of queue 1 of topic a was stored."""
    return broker.messages("a")[1][40].store_timestamp


# Option, its value, others beside it, and how many messages a batch gets.
BATCHES = [
    ("subscribe", "a", {}, 120),
    ("subscribePattern", "[b-z]", {}, 31),
    ("assign", '{"a": [1]}', {}, 60),
    ("startingOffsets", '{"a": {"0": 50}}', {"subscribe": "a"}, 70),
    ("endingOffsets", '{"a": {"0": 5, "1": -1}}', {"subscribe": "a"}, 65),
    ("startingTimestamp", moment, {"assign": '{"a": [1]}'}, lambda rows: rows >= 20),
    ("endingTimestamp", moment, {"assign": '{"a": [1]}'}, lambda rows: rows <= 40),
    ("minPartitions", "6", {}, COUNT + 1),
    ("maxRecordsPerPartition", "40", {}, COUNT + 1),
    ("failOnDataLoss", "false", {"endingOffsets": '{"a": {"0": 500}}', "assign": '{"a": [0]}'}, 60),
    ("columns", "topic,queueOffset", {}, COUNT + 1),
    ("brokerTopics", "false", {}, COUNT + 1),
    ("tags", "red || blue", {"subscribe": "b"}, 1),
    ("verifyCrc", "true", {}, COUNT + 1),
    ("onCorrupt", "skip", {}, COUNT + 1),
    ("decompress", "true", {}, COUNT + 1),
    ("schemaStyle", "kafka", {}, COUNT + 1),
    ("includeHeaders", "true", {"schemaStyle": "kafka"}, COUNT + 1),
    ("pushFilters", "true", {}, COUNT + 1),
]


def frame(spark, options):
    return spark.read.format("dledger").options(**options).load()


@pytest.mark.parametrize(("name", "value", "more", "count"), BATCHES, ids=[each[0] for each in BATCHES])
def test_each_option_of_a_batch_has_its_effect(spark, broker, place, name, value, more, count):
    value = str(value(broker)) if callable(value) else value

    found = frame(spark, place | more | {name: value})

    rows = len(found.collect())
    assert count(rows) if callable(count) else rows == count
    if name == "columns":
        assert found.columns == ["topic", "queueOffset"]
    if name == "includeHeaders":
        assert "headers" in found.columns
    if name in {"minPartitions", "maxRecordsPerPartition"}:
        assert found.rdd.getNumPartitions() >= {"minPartitions": 6, "maxRecordsPerPartition": 4}[name]


def test_read_mode_and_path_choose_the_replica_to_read(spark, broker, closed):
    for mode in ("leader", "follower", "nearest"):
        assert frame(spark, {"endpoints": broker.endpoints, "readMode": mode}).count() == COUNT + 1
    assert frame(spark, {"path": f"{closed},{broker.path}"}).count() == COUNT + 1


def test_damaged_records_are_refused_skipped_or_quarantined(spark, broker, closed, tmp_path):
    bad, kept = tmp_path / "bad", tmp_path / "kept"
    shutil.copytree(closed, bad)
    message = broker.messages("a")[0][30]
    (file,) = [path for path in (bad / "commitlog").iterdir() if int(path.name) == 0]
    with file.open("r+b") as out:
        out.seek(message.physical_offset + 110)
        out.write(b"?!?!?")
    options = {"path": str(bad), "verifyCrc": "true"}

    with pytest.raises(PySparkException, match=rf"{file}.*offset {message.physical_offset}.*onCorrupt=skip"):
        frame(spark, options).collect()
    assert frame(spark, options | {"onCorrupt": "skip"}).count() == COUNT
    quarantine = options | {"onCorrupt": "quarantine", "quarantinePath": str(kept)}
    assert frame(spark, quarantine).count() == COUNT
    (reported,) = [json.loads(path.read_text()) for path in kept.glob("*.json")]
    assert reported["offset"] == message.physical_offset


def run_stream(spark, folder, options):
    """Return a query that has read all available messages."""
    reader = spark.readStream.format("dledger").options(**{"startingOffsets": "earliest"} | options)
    writer = reader.load().writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    return run_to_the_end(writer.start)


def rows_of(query):
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"maxOffsetsPerTrigger": "60", "subscribe": "a"}, [60, 60]),
        ({"maxBytesPerTrigger": "12k", "subscribe": "a"}, lambda rows: len(rows) > 1 and sum(rows) == 120),
        ({"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h", "subscribe": "a"}, [120]),
        ({"maxOffsetsPerTrigger": "100", "minOffsetsPerTrigger": "50", "subscribe": "a"}, [100, 20]),
    ],
    ids=["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "both"],
)
def test_a_stream_keeps_its_limits(spark, place, tmp_path, options, batches):
    rows = rows_of(run_stream(spark, tmp_path, place | options))

    assert batches(rows) if callable(batches) else rows == batches


def test_few_messages_are_read_after_the_delay(spark, place, tmp_path):
    options = place | {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "3s", "startingOffsets": "earliest"}
    reader = spark.readStream.format("dledger").options(**options)
    writer = reader.load().writeStream.format("parquet").option("path", str(tmp_path / "out"))
    start = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start

    run_until(start, lambda query: rows_of(query) == [COUNT + 1], "a batch of all messages").stop()


def test_the_table_of_options_is_tested_whole():
    """Each option is in a test of this folder."""
    from pathlib import Path

    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [] == [name for name in OPTION_NAMES if f'"{name}"' not in texts and f" {name}=" not in texts]

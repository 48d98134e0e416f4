"""Streams through Spark itself: batches, restarts, progress."""

import json

import pytest

from cluster.v1 import broker_pb2 as pb
from tests.spark.queries import run_to_the_end
from tests.support.brokers.thread import running_broker
from tests.unit.pipeline.source.test_stream_plan import put


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker", "a", "b") as running:
        for number in range(30):
            put(running, "a", number % 2, 4)
        running.wait_dispatched()
        yield running


def stream(spark, **options):
    reader = spark.readStream.format("dledger")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def write(frame, folder):
    """Return a writer to Parquet, which Spark fills exactly once."""
    return (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


def written(spark, folder):
    frame = spark.read.parquet(str(folder / "out"))
    return sorted((row.topic, row.queueId, row.queueOffset) for row in frame.collect())


@pytest.mark.parametrize("kind", ["path", "endpoints"])
def test_a_query_reads_existing_messages_in_batches_and_continues_after_a_restart(spark, broker, tmp_path, kind):
    place = {"path": str(broker.path)} if kind == "path" else {"endpoints": broker.endpoints}
    frame = stream(
        spark, **place, startingOffsets="earliest", maxOffsetsPerTrigger="50", columns="topic,queueId,queueOffset"
    )

    first = run_to_the_end(write(frame, tmp_path).trigger(availableNow=True).start)
    assert [50, 50, 20] == [each["numInputRows"] for each in first.recentProgress if each["numInputRows"]]
    put(broker, "b", 1, 7)
    broker.wait_dispatched()
    second = run_to_the_end(write(frame, tmp_path).trigger(availableNow=True).start)

    expected = [("a", queue, number) for queue in (0, 1) for number in range(60)] + [("b", 1, n) for n in range(7)]
    assert expected == written(spark, tmp_path)
    source = second.lastProgress["sources"][0]
    assert {"a": {"0": 60, "1": 60}, "b": {"1": 7}} == {
        topic: {queue: offset for queue, offset in queues.items() if offset}
        for topic, queues in json.loads(json.dumps(offsets_of(source["latestOffset"]))).items()
    }


def offsets_of(found):
    return (json.loads(found) if isinstance(found, str) else found)["offsets"]


def test_offsets_are_committed_after_the_sink_has_committed(spark, broker, tmp_path):
    frame = stream(
        spark, endpoints=broker.endpoints, startingOffsets="earliest", maxOffsetsPerTrigger="70", commitGroup="etl"
    )

    run_to_the_end(write(frame, tmp_path).trigger(availableNow=True).start)

    found = broker.call("FetchOffset", pb.FetchOffsetRequest(group="etl", topic="a"))
    assert {0: 60, 1: 60} == dict(zip(found.queue_ids, found.offsets, strict=True))


def test_the_checkpoint_of_another_store_ends_the_query(spark, broker, tmp_path):
    query = write(stream(spark, endpoints=broker.endpoints, startingOffsets="earliest"), tmp_path)
    run_to_the_end(query.trigger(availableNow=True).start)
    with running_broker(tmp_path / "other", "b", "a") as other:
        put(other, "b", 1, 100)
        put(other, "a", 0, 100)
        put(other, "a", 1, 100)
        frame = stream(spark, endpoints=other.endpoints, startingOffsets="earliest")

        with pytest.raises(Exception, match="another store"):
            run_to_the_end(write(frame, tmp_path).trigger(availableNow=True).start)

"""Streams through Spark itself: batches, restarts, progress, a live cluster whose leaders and queries are ended."""

import json
import os
import random
import threading
import time

import pytest

from cluster import OutgoingMessage, Producer
from cluster.client.outcomes import AppendUnknown, NotAppended
from cluster.errors import RequestFailed
from cluster.local_brokers import LocalBrokers
from cluster.v1 import broker_pb2 as pb
from pipeline.broker_nodes import Nodes
from pipeline.chunk_client import BrokerLog, Stretch
from pipeline.lake import Lake
from pipeline.lake_upkeep import verify
from pipeline.selection import EVERYTHING
from pipeline.source_parts import HowToRead, Part
from tests.broker_thread import running_broker
from tests.unit.pipeline.test_stream_plan import put

# Of queries and leaders; make test takes a few, a long run takes 20.
ENDS = int(os.environ.get("DLEDGER_STREAM_ENDS", "5"))
SEED = int(os.environ.get("DLEDGER_STREAM_SEED", str(random.randrange(1 << 30))))
LIMIT_S = 120


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker", "a", "b") as running:
        for number in range(30):
            put(running, "a", number % 2, 4)
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


def write_lake(frame, folder):
    """Return a writer to a lake, which drivers that are ended fill exactly once."""
    return (
        frame.writeStream.format("dledger-lake")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


def written(spark, folder):
    frame = spark.read.parquet(str(folder / "out"))
    return sorted((row.topic, row.queueId, row.queueOffset) for row in frame.collect())


@pytest.mark.parametrize("kind", ["path", "endpoints"])
def test_what_is_there_is_read_in_batches_and_a_restart_goes_on(spark, broker, tmp_path, kind):
    place = {"path": str(broker.path)} if kind == "path" else {"endpoints": broker.endpoints}
    frame = stream(
        spark, **place, startingOffsets="earliest", maxOffsetsPerTrigger="50", columns="topic,queueId,queueOffset"
    )

    first = write(frame, tmp_path).trigger(availableNow=True).start()
    assert first.awaitTermination(LIMIT_S)
    assert [50, 50, 20] == [each["numInputRows"] for each in first.recentProgress if each["numInputRows"]]
    put(broker, "b", 1, 7)
    second = write(frame, tmp_path).trigger(availableNow=True).start()
    assert second.awaitTermination(LIMIT_S)

    expected = [("a", queue, number) for queue in (0, 1) for number in range(60)] + [("b", 1, n) for n in range(7)]
    assert expected == written(spark, tmp_path)
    source = second.lastProgress["sources"][0]
    assert {"a": {"0": 60, "1": 60}, "b": {"1": 7}} == {
        topic: {queue: offset for queue, offset in queues.items() if offset}
        for topic, queues in json.loads(json.dumps(offsets_of(source["latestOffset"]))).items()
    }


def offsets_of(found):
    return (json.loads(found) if isinstance(found, str) else found)["offsets"]


def test_progress_is_published_when_the_sink_has_committed(spark, broker, tmp_path):
    frame = stream(
        spark, endpoints=broker.endpoints, startingOffsets="earliest", maxOffsetsPerTrigger="70", commitGroup="etl"
    )

    query = write(frame, tmp_path).trigger(availableNow=True).start()

    assert query.awaitTermination(LIMIT_S)
    found = broker.call("FetchOffset", pb.FetchOffsetRequest(group="etl", topic="a"))
    assert {0: 60, 1: 60} == dict(zip(found.queue_ids, found.offsets, strict=True))


def test_the_checkpoint_of_another_store_ends_the_query(spark, broker, tmp_path):
    query = write(stream(spark, endpoints=broker.endpoints, startingOffsets="earliest"), tmp_path)
    assert query.trigger(availableNow=True).start().awaitTermination(LIMIT_S)
    with running_broker(tmp_path / "other", "b", "a") as other:
        put(other, "b", 1, 100)
        put(other, "a", 0, 100)
        put(other, "a", 1, 100)
        frame = stream(spark, endpoints=other.endpoints, startingOffsets="earliest")

        query = write(frame, tmp_path).trigger(availableNow=True).start()
        with pytest.raises(Exception, match="another store"):
            query.awaitTermination(LIMIT_S)


class Load(threading.Thread):
    """Sends numbered messages without end, and writes down what became of them."""

    def __init__(self, endpoints):
        super().__init__(daemon=True)
        self._endpoints = endpoints
        self._is_over = threading.Event()
        self.acknowledged = set()
        self.unknown = set()

    def run(self):
        number = 0
        with Producer(self._endpoints, deadline_s=20.0) as producer:
            while not self._is_over.is_set():
                numbers = range(number, number := number + 20)
                try:
                    producer.send_many([OutgoingMessage("orders", b"%d" % each) for each in numbers])
                    self.acknowledged.update(numbers)
                except NotAppended:
                    continue
                except (AppendUnknown, RequestFailed):
                    self.unknown.update(numbers)

    def end(self):
        self._is_over.set()
        self.join(60)
        assert not self.is_alive()


def begun_again(query, frame, folder, **trigger):
    """Begin a query again that Spark has ended: on a busy machine its Python processes start too late for it."""
    assert "connect back" in str(query.exception()), query.exception()
    writer = write_lake(frame, folder)
    return (writer.trigger(**trigger) if trigger else writer).start()


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_while_leaders_and_queries_are_ended(spark, tmp_path):
    print(f"DLEDGER_STREAM_SEED={SEED}")
    draw = random.Random(SEED)
    with LocalBrokers.create(tmp_path / "brokers", name_servers=0) as brokers:
        (cluster,) = brokers.clusters.values()
        topic = pb.Topic(name="orders", read_queues=4, write_queues=4, permission=6)
        nodes = Nodes(brokers.endpoints)
        nodes.ask(lambda stub: stub.SetTopic(pb.SetTopicRequest(topic=topic)))
        load = Load(brokers.endpoints)
        load.start()
        frame = stream(
            spark,
            endpoints=brokers.endpoints,
            subscribe="orders",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="5000",
            readMode=draw.choice(["leader", "follower"]),
        )
        query = write_lake(frame, tmp_path).start()
        for _ in range(ENDS):
            goal = len(load.acknowledged) + draw.randrange(1, 400)
            until(lambda goal=goal, query=query: len(load.acknowledged) >= goal or query.exception(), "more messages")
            if query.exception() is not None:
                query = begun_again(query, frame, tmp_path)
            elif draw.random() < 0.5:
                query.stop()
                query = write_lake(frame, tmp_path).start()
            else:
                leader = cluster.wait_for_leader()
                cluster.kill(leader)
                cluster.start_node(leader)
        load.end()
        query.stop()
        last = write_lake(frame, tmp_path).trigger(availableNow=True).start()
        until(lambda: not last.isActive, "the end of the query")
        while last.exception() is not None:
            last = begun_again(last, frame, tmp_path, availableNow=True)
            until(lambda last=last: not last.isActive, "the end of the query")
        ends = {key.queue_id: end for key, (_, end) in BrokerLog(brokers.endpoints).describe(("orders",)).spans.items()}
        nodes.close()
        for queue_id, end in ends.items():
            part = Part(Stretch(brokers.endpoints, 0, end, "orders", queue_id), EVERYTHING)
            batches = HowToRead(("queueOffset",), verify_crc=True).read(part)
            assert list(range(end)) == [offset for batch in batches for offset in batch.column(0).to_pylist()]

    rows = spark.read.format("dledger-lake").load(str(tmp_path / "out")).collect()
    assert list(verify(Lake.open(str(tmp_path / "out")))) == []
    assert sorted((queue, offset) for queue, end in ends.items() for offset in range(end)) == sorted(
        (row.queueId, row.queueOffset) for row in rows
    )
    bodies = [int(row.body) for row in rows]
    assert len(bodies) == len(set(bodies))
    assert load.acknowledged <= set(bodies) <= load.acknowledged | load.unknown

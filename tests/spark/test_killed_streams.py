"""A stream of a live cluster into a lake, whose leaders, queries and drivers are ended: nothing lost, nothing twice.

Meanwhile small files are joined, unreferenced ones are deleted, and another Delta program deletes rows: these never
come back.
"""

import os
import random
import threading

import pyarrow as pa
import pytest

from cluster import OutgoingMessage, Producer
from cluster.client.outcomes import AppendUnknown, NotAppended
from cluster.local.brokers import LocalBrokers
from cluster.protocol.errors import RequestFailed
from cluster.v1 import broker_pb2 as pb
from pipeline.lake.lake import Lake
from pipeline.lake.maintenance import delete_unreferenced, optimize, verify
from pipeline.log.selection import EVERYTHING
from pipeline.source.broker_connections import BrokerConnections
from pipeline.source.broker_range import BrokerRange
from pipeline.source.chunk_client import BrokerLog
from pipeline.source.parts import Part, ReadSettings
from pipeline.spark.lake_frame import lake_frame
from tests.spark.processes import StreamProcess, gave_up_on_python
from tests.support.lake_rows import delta_table, table_bodies
from tests.support.waiting import PATIENCE_S, wait_until

# Of leaders and queries, and as many of leaders and drivers; make test takes a few, make streams takes eleven.
ENDS = int(os.environ.get("DLEDGER_STREAM_ENDS", "3"))
SEED = int(os.environ.get("DLEDGER_STREAM_SEED", str(random.randrange(1 << 30))))
LIMIT_S = 120
# Messages for as many batches as a driver works on until it is ended; all that are sent must be read again at the end.
AHEAD = 6_000


class Load(threading.Thread):
    """Sends numbered messages continuously, a thousand a second at most, and records their outcomes.

    It pauses when it is far ahead of what the test waits for, so that a slow machine gets no more messages than a quick
    one. Whatever is ended after a wait is ended while messages are sent.
    """

    def __init__(self, endpoints):
        super().__init__(daemon=True)
        self._endpoints = endpoints
        self._is_over = threading.Event()
        self._goal = 0
        self.acknowledged = set()
        self.unknown = set()

    def run(self):
        number = 0
        with Producer(self._endpoints, deadline_s=20.0) as producer:
            while not self._is_over.wait(0.02):
                if len(self.acknowledged) >= self._goal + AHEAD:
                    continue
                numbers = range(number, number := number + 20)
                try:
                    producer.send_many([OutgoingMessage("orders", b"%d" % each) for each in numbers])
                    self.acknowledged.update(numbers)
                except NotAppended:
                    continue
                except (AppendUnknown, RequestFailed):
                    self.unknown.update(numbers)

    def wait_for_more(self, count):
        """Wait until this many more messages are acknowledged."""
        self._goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= self._goal, "more messages", LIMIT_S)

    def end(self):
        self._is_over.set()
        self.join(60)
        assert not self.is_alive()


class SessionQuery:
    """The query in the session of the tests; Spark itself may end it where its Python processes start too late."""

    def __init__(self, spark, folder, source):
        self._folder = folder
        self._frame = spark.readStream.format("dledger").options(**source).load()
        self._query = None

    def start(self, **trigger):
        writer = self._frame.writeStream.format("dledger-lake").option("path", str(self._folder / "out"))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        self._query = (writer.trigger(**trigger) if trigger else writer).start()

    def stop(self):
        self._query.stop()
        error = self._query.exception()
        assert error is None or gave_up_on_python(error), error

    def run_to_the_end(self):
        """Read all available messages; on a busy machine start again."""
        while True:
            self.start(availableNow=True)
            wait_until(lambda: not self._query.isActive, "the end of the query", LIMIT_S)
            if self._query.exception() is None:
                return
            self.stop()


def end_leader(cluster):
    leader = cluster.wait_for_leader(PATIENCE_S)
    cluster.kill(leader)
    cluster.start_node(leader, PATIENCE_S)


def check_log(endpoints):
    """Check that the log itself has each message of each queue once; return the ends of its queues."""
    ends = {key.queue_id: end for key, (_, end) in BrokerLog(endpoints).describe(("orders",)).spans.items()}
    for queue_id, end in ends.items():
        part = Part(BrokerRange(endpoints, 0, end, "orders", queue_id), EVERYTHING)
        batches = ReadSettings(("queueOffset",), verify_crc=True).read(part)
        assert list(range(end)) == [offset for batch in batches for offset in batch.column(0).to_pylist()]
    return ends


class Maintenance:
    """What others do to the lake while a stream writes to it.

    Attributes:
        begins: the first offset of each queue that has not been deleted.
        deleted: the bodies of deleted messages.
    """

    def __init__(self, root):
        self._root = str(root)
        self.begins = {}
        self.deleted = set()

    def optimize(self):
        """Join small files, also while the stream writes others."""
        optimize(Lake.open(self._root))

    def vacuum(self):
        """Delete what is in no version, whatever its age: no driver may be running."""
        delete_unreferenced(Lake.open(self._root), 0)

    def delete(self):
        """Let another program delete the older half of the rows of each queue."""
        lake = Lake.open(self._root)
        rows = pa.concat_tables(
            [lake.read(file, ["queueId", "queueOffset", "body"]) for file in lake.files()]
        ).to_pylist()
        ends = {}
        for row in rows:
            ends[row["queueId"]] = max(ends.get(row["queueId"], 0), row["queueOffset"])
        # Rows of a queue are committed in order: what is older than these is in the lake.
        begins = {queue_id: (self.begins.get(queue_id, 0) + end) // 2 for queue_id, end in ends.items()}
        self.deleted |= {int(row["body"]) for row in rows if row["queueOffset"] < begins[row["queueId"]]}
        self.begins |= begins
        wanted = " OR ".join(f"(queueId = {queue_id} AND queueOffset < {begin})" for queue_id, begin in begins.items())
        delta_table(self._root).delete(wanted)


@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_duplicated_while_leaders_queries_and_drivers_are_killed(spark, tmp_path):
    print(f"DLEDGER_STREAM_SEED={SEED}")
    draw = random.Random(SEED)
    with LocalBrokers.create(tmp_path / "brokers", name_servers=0) as brokers:
        (cluster,) = brokers.clusters.values()
        topic = pb.Topic(name="orders", read_queues=4, write_queues=4, permission=6)
        nodes = BrokerConnections(brokers.endpoints)
        nodes.ask(lambda stub: stub.SetTopic(pb.SetTopicRequest(topic=topic)))
        nodes.close()
        load = Load(brokers.endpoints)
        load.start()
        source = {
            "endpoints": brokers.endpoints,
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "2000",
            "readMode": draw.choice(["leader", "follower"]),
        }
        # Drivers: with SIGKILL, during a batch or between two.
        driver, others = StreamProcess(tmp_path, source), Maintenance(tmp_path / "out")
        driver.start()
        for number in range(ENDS):
            load.wait_for_more(draw.randrange(1, 400))
            if number % 2 == 0:
                others.optimize()
                driver.kill()
                for work in draw.sample([others.optimize, others.vacuum, others.delete], 3):
                    work()
                driver.start()
            else:
                end_leader(cluster)
        driver.kill()
        # Queries: as Spark ends them.
        query = SessionQuery(spark, tmp_path, source | {"maxOffsetsPerTrigger": "50000"})
        query.start()
        for _ in range(ENDS):
            load.wait_for_more(draw.randrange(1, 400))
            if draw.random() < 0.5:
                query.stop()
                query.start()
            else:
                end_leader(cluster)
        load.end()
        query.stop()
        query.run_to_the_end()
        ends = check_log(brokers.endpoints)

    # Their number depends on the duration of the run: no more of them than is compared.
    rows = lake_frame(spark, str(tmp_path / "out")).select("queueId", "queueOffset", "body").collect()
    lake = Lake.open(str(tmp_path / "out"))
    assert list(verify(lake)) == []
    assert sorted(
        (queue, offset) for queue, end in ends.items() for offset in range(others.begins.get(queue, 0), end)
    ) == sorted((row.queueId, row.queueOffset) for row in rows)
    bodies = [int(row.body) for row in rows]
    assert len(bodies) == len(set(bodies))
    assert others.deleted
    assert others.deleted.isdisjoint(bodies)
    assert load.acknowledged <= {*bodies, *others.deleted} <= load.acknowledged | load.unknown
    assert table_bodies(lake.root) == sorted(bodies)

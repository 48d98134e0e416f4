"""DescribeLog, PlanLog and ReadLog of a broker, through the client of the pipeline."""

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from cluster.api.log_calls import STREAMS_MAX
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceServicer, add_BrokerServiceServicer_to_server
from commitlog.record.record import decode
from commitlog.record.scan import walk
from dledger.service.limits.fair_shares import FairShares
from pipeline.common.errors import BrokerRefused, BrokerUnreachable, DataLost
from pipeline.source import broker_connections, chunk_client
from pipeline.source.broker_connections import BrokerConnections
from pipeline.source.broker_range import BrokerRange
from pipeline.source.chunk_client import BrokerLog
from store.model.message import QueueKey
from tests.support.brokers.thread import running_broker
from tests.support.waiting import PATIENCE_S

A0, A1, B0 = QueueKey("a", 0), QueueKey("a", 1), QueueKey("b", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("broker"), "a", "b", "none") as running:
        for number in range(300):
            put(running, "a", number % 2, number)
            if number % 3 == 0:
                put(running, "b", 0, number)
        yield running


def put(broker, topic, queue_id, number):
    request = pb.PutRequest(topic=topic, queue_ids=[queue_id], bodies=[b"%d " % number + b"x" * 200])
    assert not broker.call("Put", request).answer.code


def records_of(chunks):
    """Return the records in chunks, which may end within a record."""
    data = b"".join(chunk.data for chunk in chunks)
    assert {chunk.header_size for chunk in chunks} <= {0}
    found = walk(memoryview(data), 0, len(data))
    return [decode(memoryview(data), start) for start in found.starts]


def test_the_readable_ranges_are_returned(broker):
    with_all, of_b = BrokerLog(broker.endpoints).describe(), BrokerLog(broker.endpoints).describe(("b", "nowhere"))

    assert (0, 150) == with_all.spans[A0] == with_all.spans[A1]
    assert {B0: (0, 100), QueueKey("b", 1): (0, 0)} == of_b.spans
    assert ("a", "b", "none") == of_b.topics
    assert (0, broker.replica.store.log.end_offset) == (of_b.begin_offset, of_b.end_offset)


def test_a_time_is_returned_as_an_offset_of_each_queue(broker):
    messages = broker.messages("a")[0]
    middle = messages[70].store_timestamp

    found = BrokerLog(broker.endpoints).describe(("a",), middle)

    expected = next(each.queue_offset for each in messages if each.store_timestamp >= middle)
    assert expected == found.by_time[A0]


def test_a_plan_begins_with_the_first_messages_of_the_log(broker):
    log = BrokerLog(broker.endpoints)

    planned = log.plan({A0: (10, 150), A1: (0, 150), B0: (0, 100)}, 60, split_bytes=3000)

    assert 60 == planned.messages == sum(end - begin for begin, end in planned.spans.values())
    chunks = list(log.read(BrokerRange(broker.endpoints, planned.begin_offset, planned.end_offset)))
    asked = {A0: 10, A1: 0, B0: 0}
    stored = [each for key in asked for each in broker.messages(key.topic)[key.queue_id]]
    eligible = [each for each in stored if each.queue_offset >= asked[QueueKey(each.topic, each.queue_id)]]
    expected = sorted(each.physical_offset for each in eligible)[:60]
    found = [each.physical_offset for each in records_of(chunks)]
    assert expected == [each for each in found if each in expected]
    assert (expected[0], expected[-1]) == (found[0], found[-1])
    assert all(planned.begin_offset < offset < planned.end_offset for offset in planned.split_offsets)
    assert planned.split_offsets


def test_a_plan_omits_missing_queues(broker):
    planned = BrokerLog(broker.endpoints).plan({A0: (140, 9999), QueueKey("none", 0): (0, 5)})

    assert {A0: (140, 150), QueueKey("none", 0): (0, 0)} == planned.spans


def test_one_queue_is_read_alone(broker):
    chunks = list(BrokerLog(broker.endpoints).read(BrokerRange(broker.endpoints, 20, 90, "b", 0)))

    found = records_of(chunks)

    assert [("b", 0, number) for number in range(20, 90)] == [(e.topic, e.queue_id, e.queue_offset) for e in found]
    assert (20, 90) == (chunks[0].offset, chunks[-1].next_offset)


def test_chunks_are_the_bytes_of_the_log(broker):
    log = broker.replica.store.log
    chunks = list(BrokerLog(broker.endpoints).read(BrokerRange(broker.endpoints, 0, log.end_offset)))

    assert bytes(log.raw(0, log.end_offset, log.end_offset).data) == b"".join(chunk.data for chunk in chunks)
    assert [chunk.offset for chunk in chunks[1:]] == [chunk.next_offset for chunk in chunks[:-1]]


class SilentNode(BrokerServiceServicer):
    """A node that accepts a call and sends nothing."""

    def __init__(self):
        self.is_over = threading.Event()

    def ReadLog(self, request, context):  # noqa: N802
        self.is_over.wait()
        yield from ()


def test_a_silent_node_is_replaced_by_the_next_one(broker, monkeypatch):
    monkeypatch.setattr(chunk_client, "_STREAM_TIMEOUT_S", 1.0)
    node = SilentNode()
    server = grpc.server(ThreadPoolExecutor(1))
    add_BrokerServiceServicer_to_server(node, server)
    silent = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    log = BrokerLog(f"{silent},{broker.endpoints}")

    chunks = list(log.read(BrokerRange("", 0, BrokerLog(broker.endpoints).describe().end_offset)))

    node.is_over.set()
    server.stop(None)
    log.close()
    assert len(records_of(chunks)) == 400


class HurriedClock:
    """A clock that passes every limit after a few pauses, while calls have no time limit."""

    def __init__(self):
        self.pauses = 0

    def monotonic(self):
        return time.monotonic() + self.pauses * PATIENCE_S / 3

    def sleep(self, _duration_s):
        self.pauses += 1


@pytest.fixture
def clock(monkeypatch):
    clock = HurriedClock()
    monkeypatch.setattr(broker_connections, "time", clock)
    return clock


def test_the_wait_for_missing_messages_ends_at_the_time_limit(broker, clock):
    end = broker.replica.store.log.end_offset

    with pytest.raises(BrokerUnreachable, match=r"does not have .* yet, its end is"):
        list(BrokerLog(broker.endpoints, PATIENCE_S).read(BrokerRange(broker.endpoints, 0, end + 100)))
    assert clock.pauses


@pytest.mark.parametrize(
    ("spans", "match"),
    [({QueueKey("nowhere", 0): (0, 1)}, "UNKNOWN_TOPIC"), ({A0: (5, 4)}, "ILLEGAL_REQUEST")],
)
def test_an_invalid_request_is_refused_at_once(broker, spans, match):
    with pytest.raises(BrokerRefused, match=match):
        BrokerLog(broker.endpoints).plan(spans)


def test_progress_of_a_group_is_published(broker):
    log = BrokerLog(broker.endpoints)

    log.commit_offsets("etl", {A0: 7, A1: 9, B0: 3})
    log.commit_offsets("etl", {A0: 5, A1: 10})

    found = broker.call("FetchOffset", pb.FetchOffsetRequest(group="etl", topic="a"))
    assert {0: 7, 1: 10} == dict(zip(found.queue_ids, found.offsets, strict=True))


def test_no_answer_of_any_node_is_one_clear_error():
    with pytest.raises(BrokerUnreachable, match=r"broker 127.0.0.1:1: expected an answer"):
        BrokerLog("127.0.0.1:1", 0.1).describe()


def test_a_client_is_pickled_without_its_connections(broker):
    log = BrokerLog(broker.endpoints)
    log.describe()

    assert log.describe().spans == pickle.loads(pickle.dumps(log)).describe().spans


def test_another_node_is_asked_while_one_is_down(broker):
    log = BrokerLog(f"127.0.0.1:1,{broker.endpoints}")

    assert (0, 150) == log.describe(("a",)).spans[A0]
    assert 1 <= len(list(log.read(BrokerRange("", 0, 1000))))
    assert broker.endpoints == log.order(is_leader_first=True).split(",")[0]


def test_too_many_streams_are_refused(broker, monkeypatch, clock):
    take = FairShares.take
    monkeypatch.setattr(FairShares, "take", lambda shares, *asked: shares.size != STREAMS_MAX and take(shares, *asked))

    with pytest.raises(BrokerUnreachable, match="the 128 streams of the log"):
        list(BrokerLog(broker.endpoints, PATIENCE_S).read(BrokerRange("", 0, 1000)))


def test_deleted_bytes_are_lost_data_with_their_range(broker, monkeypatch):
    log = broker.replica.store.log
    monkeypatch.setattr(type(log), "begin_offset", property(lambda _: 5000))

    with pytest.raises(DataLost, match=r"lost log \[0, 9000\)"):
        list(BrokerLog(broker.endpoints).read(BrokerRange("", 0, 9000)))


def test_connections_are_not_shared_with_a_forked_process(broker, monkeypatch):
    nodes = BrokerConnections(broker.endpoints)
    before = nodes.stub(broker.endpoints)
    monkeypatch.setattr("os.getpid", lambda: -5)

    assert before is not nodes.stub(broker.endpoints)

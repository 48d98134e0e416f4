"""RocketMQ reads the queues of messages that wait, and of those that waited, on each node of our broker."""

import base64
import shutil

import pytest

from cluster import Consumer, OutgoingMessage, Producer
from cluster.client.broker_calls import BrokerCalls
from cluster.local.brokers import LocalBrokers
from cluster.v1 import broker_pb2 as pb
from store.model.topics import (
    DELAY_LEVELS_MS,
    DLEDGER_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from tests.interop.test_java_reads_our_brokers import OPTIONS, SIZES, TOPICS, assert_queues, create_topics, wait_level
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

COUNT = 40
# Level 1 is one second, the last one two hours.
LEVELS = (1, len(DELAY_LEVELS_MS))


@pytest.fixture
def brokers(tmp_path):
    """Return a broker of three nodes that was not started yet."""
    made = LocalBrokers.create(tmp_path / "run", options=OPTIONS)
    try:
        yield made
    finally:
        made.stop()


def put_delayed_and_wait(brokers):
    """Put messages of both levels, half of them before a change of leader, until all of the first are delivered."""
    cluster = brokers.clusters["broker-a"]
    brokers.start()
    cluster.wait_for_leader()
    create_topics(cluster)

    def send(producer, first):
        for number in range(first, first + COUNT // 2):
            body, level = b"%d" % number, LEVELS[number % 2]
            producer.send_many([OutgoingMessage("orders", body, tags="paid", keys=f"k-{number}", delay_level=level)])

    with Producer(cluster.endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        send(producer, 0)
        victim = cluster.wait_for_leader()
        cluster.kill(victim)
        send(producer, COUNT // 2)
        cluster.start_node(victim)
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:

        def delivered_count():
            offsets = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic="orders"))
            return sum(offsets.max_offsets)

        wait_until(lambda: delivered_count() >= COUNT // 2, lambda: f"{delivered_count()} are delivered")
    wait_level(cluster)
    brokers.stop()
    return cluster


def assert_waits(line, level):
    """A waiting message: Java's topic, queue and properties, and the time of delivery in place of the tag's hash."""
    assert (line["topic"], line["queueId"]) == (SCHEDULE_TOPIC, level - 1)
    assert line["properties"]["REAL_TOPIC"] == "orders"
    assert 0 <= int(line["properties"]["REAL_QID"]) < TOPICS["orders"]
    assert line["properties"]["DELAY"] == str(level)
    assert line["tagsCode"] == line["storeTimestamp"] + DELAY_LEVELS_MS[level - 1]
    assert (line["inConsumeQueue"], line["indexed"]) == (True, True)


def test_java_reads_delayed_messages_and_their_copies_on_each_node(java, brokers):
    cluster = put_delayed_and_wait(brokers)

    for node_id in cluster.node_ids:
        contents = java.read(cluster.directory_of(node_id).parent, SIZES, node_id=node_id)
        assert contents.summary["problems"] == [], node_id
        lines = [line for line in contents.lines if line["topic"] != DLEDGER_TOPIC]
        assert_queues(contents.queues, lines)
        for level in LEVELS:
            waiting = [line for line in lines if line["properties"].get("DELAY") == str(level)]
            originals = [line for line in waiting if line["topic"] == SCHEDULE_TOPIC]
            expected = {b"%d" % number for number in range(COUNT) if LEVELS[number % 2] == level}
            assert {base64.b64decode(line["body"]) for line in originals} == expected
            for line in originals:
                assert_waits(line, level)
            copies = [line for line in waiting if line["topic"] == "orders"]
            assert sorted(base64.b64decode(line["body"]) for line in copies) == (sorted(expected) if level == 1 else [])
            for copy in copies:
                assert (copy["tag"], copy["inConsumeQueue"], copy["indexed"]) == ("paid", True, True)


def test_java_builds_the_same_queues_from_our_log(java, brokers):
    """It computes the times of delivery from the records, as our dispatch does."""
    cluster = put_delayed_and_wait(brokers)
    root = cluster.directory_of("n1").parent
    ours = java.read(root, SIZES, node_id="n1").lines

    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    # As after a crash: else it expects queues up to the end of the log.
    (root / "abort").touch()
    javas = java.read(root, SIZES, node_id="n1").lines

    assert javas == ours


def end_transactions_return_and_time(cluster):
    """Commit three transactions, roll back two, leave one open; return one message, and send one for in an hour."""
    with Producer(cluster.endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        for number in range(3):
            with producer.transaction("bills", b"%d" % number, group="payments", tags="paid"):
                pass
        for number in (3, 4):
            with producer.transaction("bills", b"%d" % number, group="payments") as transaction:
                transaction.rollback()
        open_one = producer.transaction("bills", b"5", group="payments")
        open_one.__enter__()
        producer.send("orders", b"later", delay_s=3_600)
        producer.send("orders", b"failed", keys="k-failed")
    with Consumer(
        cluster.endpoints, group="billing", topics={"orders": "*"}, start="first", has_retries=True
    ) as consumer:
        consumer.nack(next(iter(consumer)), delay_level=1)


def of_topic(lines, topic):
    return [line for line in lines if line["topic"] == topic]


def body_of(line):
    return base64.b64decode(line["body"])


def test_java_reads_transactions_returned_messages_and_timers_on_each_node(java, brokers):
    cluster = brokers.clusters["broker-a"]
    brokers.start()
    cluster.wait_for_leader()
    create_topics(cluster)
    end_transactions_return_and_time(cluster)
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:

        def retried():
            return sum(calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic="%RETRY%billing")).max_offsets)

        wait_until(retried, lambda: "the returned message is in the retry topic")
    wait_level(cluster)
    brokers.stop()

    for node_id in cluster.node_ids:
        contents = java.read(cluster.directory_of(node_id).parent, SIZES, node_id=node_id)
        assert contents.summary["problems"] == [], node_id
        lines = [line for line in contents.lines if line["topic"] != DLEDGER_TOPIC]
        assert_queues(contents.queues, lines)
        halves = of_topic(lines, HALF_TOPIC)
        assert [body_of(line) for line in halves] == [b"%d" % number for number in range(6)]
        assert {line["properties"]["PGROUP"] for line in halves} == {"payments"}
        committed = of_topic(lines, "bills")
        assert [body_of(line) for line in committed] == [b"0", b"1", b"2"]
        for half, final in zip(halves, committed, strict=False):
            # 8: a committed message, which refers to its half message.
            assert (final["sysFlag"] & 0xC, final["preparedTransactionOffset"]) == (8, half["physicalOffset"])
            assert (final["tag"], final["inConsumeQueue"]) == ("paid", True)
        ends = b"".join(body_of(line) for line in of_topic(lines, OP_HALF_TOPIC)).decode().strip(",").split(",")
        assert sorted(map(int, ends)) == [0, 1, 2, 3, 4]
        (returned,) = of_topic(lines, "%RETRY%billing")
        assert (body_of(returned), returned["reconsumeTimes"]) == (b"failed", 1)
        assert returned["properties"]["RETRY_TOPIC"] == "orders"
        (timer,) = of_topic(lines, TIMER_TOPIC)
        assert timer["properties"]["REAL_TOPIC"] == "orders"
        assert timer["tagsCode"] == int(timer["properties"]["TIMER_DELIVER_MS"])

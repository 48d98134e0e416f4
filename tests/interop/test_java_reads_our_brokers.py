"""RocketMQ opens the files of each node of our broker: three processes, clients, a killed leader.

Our own readers are not used for the expectation: it comes from the producer's messages and their answers. Each node's
store is read, since any of them may be the one that is moved back to RocketMQ.
"""

import base64
import zlib
from collections import defaultdict
from typing import NamedTuple

import pytest

from cluster import Consumer, Producer
from cluster.broker.core import wall_clock_ms
from cluster.client.broker_calls import BrokerCalls
from cluster.client.outcomes import MessageAppended
from cluster.client.producer.outgoing import OutgoingMessage
from cluster.local.brokers import LocalBrokers
from cluster.v1 import broker_pb2 as pb
from dledger import LogClient
from store.model.topics import DLEDGER_TOPIC
from tests.interop.java_program import Sizes
from tests.interop.ours import Clock, OurStore
from tests.interop.puts import lines_of, puts_of_every_kind
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

# A file of the replicated log holds the largest request of a producer.
SIZES = Sizes(log_file=1 << 18, queue_file=1000, index_slots=100, index_items=400)
OPTIONS = {
    "mapped_file_size_for_entry_data": SIZES.log_file,
    # RocketMQ cannot set the size of DLedger's index files.
    "mapped_file_size_for_entry_index": 5 * 1024 * 1024 * 32,
    "mapped_file_size_consume_queue": SIZES.queue_file,
    "max_hash_slot_num": SIZES.index_slots,
    "max_index_num": SIZES.index_items,
}
TOPICS = {"orders": 3, "bills": 1, "trade_events-v2": 4}


class Sent(NamedTuple):
    message: OutgoingMessage
    place: MessageAppended


@pytest.fixture
def brokers(tmp_path):
    """Return a broker of three nodes that was not started yet."""
    made = LocalBrokers.create(tmp_path / "run", options=OPTIONS)
    try:
        yield made
    finally:
        made.stop()


def messages_of(topic, first, count):
    """Return messages of every kind that a producer sends: small, compressed, empty; with and without keys and tags."""
    for number in range(first, first + count):
        yield OutgoingMessage(
            topic,
            b"" if number % 17 == 0 else b"%d " % number * (4000 if number % 11 == 0 else number % 90),
            tags=("", "paid", "标签")[number % 3],
            keys=[f"k-{number}", f"o-{number // 5}"] if number % 4 else "",
            properties={"trace": f"t{number}", "p": "队列"} if number % 2 else {},
            flag=number % 7 - 3,
        )


def send(producer, first, count):
    """Send singles and batches to all topics; return what was sent with its places."""
    sent = []
    for begin in range(first, first + count, 10):
        for topic in TOPICS:
            batch = list(messages_of(topic, begin, 10))
            sent += map(Sent, batch[:7], producer.send_many(batch[:7]))
            for message in batch[7:]:
                sent.append(Sent(message, producer.send_many([message], queue_key=topic)[0]))
    return sent


def create_topics(cluster):
    with BrokerCalls(cluster.endpoints, PATIENCE_S) as calls:
        for topic, queues in TOPICS.items():
            wanted = pb.Topic(name=topic, read_queues=queues, write_queues=queues, permission=6)
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=wanted))


def live_through_a_failover(brokers):
    """Have the brokers serve, lose their leader and get it back; return what was sent. All nodes hold all of it."""
    cluster = brokers.clusters["broker-a"]
    brokers.start()
    cluster.wait_for_leader()
    create_topics(cluster)
    with Producer(cluster.endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
        sent = send(producer, 0, 100)
        victim = cluster.wait_for_leader()
        cluster.kill(victim)
        sent += send(producer, 100, 60)
        cluster.start_node(victim)
        sent += send(producer, 160, 40)
    with Consumer(cluster.endpoints, group="audit", topics={"bills": "*"}, start="first") as consumer:
        # What it commits are entries, too.
        next(iter(consumer))
    wait_level(cluster)
    brokers.stop()
    return sent


def wait_level(cluster):
    with LogClient(cluster.endpoints, group=cluster.group) as client:

        def is_level():
            known = [each for each in client.statuses().values() if not isinstance(each, str)]
            return len(known) == 3 and len({each.commit_index for each in known}) == 1

        wait_until(is_level, lambda: f"all nodes have committed the same: {client.statuses()}")


def assert_is(line, sent):
    """Compare Java's output for a message with the sent one, and with the answer to the producer."""
    message, place = sent
    stored = base64.b64decode(line["body"])
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    properties = {**message.properties, "TAGS": message.tags, "KEYS": keys, "UNIQ_KEY": place.unique_key}
    found = {name: value for name, value in line["properties"].items() if name != "WAIT"}
    assert (zlib.decompress(stored) if line["sysFlag"] & 1 else stored) == message.body
    assert line["bodyCRC"] == zlib.crc32(stored) & 0x7FFFFFFF
    assert found == {name: value for name, value in properties.items() if value}
    assert (line["tag"] or "", line["keys"] or "", line["flag"]) == (message.tags, keys, message.flag)
    assert line["msgId"] == place.message_id
    assert (line["topic"], line["queueId"], line["queueOffset"], line["physicalOffset"], line["storeTimestamp"]) == (
        place.topic,
        place.queue_id,
        place.queue_offset,
        place.physical_offset,
        place.store_timestamp,
    )
    assert (line["inConsumeQueue"], line["indexed"]) == (True, True)


def assert_java_finds(java, cluster, sent, old_lines=()):
    """Each node's store has the old messages, then those that were sent, and between them entries of leaders."""
    place_of = {each.place.physical_offset: each for each in sent}
    assert len(place_of) == len(sent)
    of_leaders = []
    for node_id in cluster.node_ids:
        contents = java.read(cluster.directory_of(node_id).parent, SIZES, node_id=node_id)
        assert contents.summary["problems"] == [], node_id
        lines = [line for line in contents.lines if line["topic"] != DLEDGER_TOPIC]
        assert lines[: len(old_lines)] == list(old_lines), node_id
        new = lines[len(old_lines) :]
        assert [line["physicalOffset"] for line in new] == sorted(place_of), node_id
        for line in new:
            assert_is(line, place_of[line["physicalOffset"]])
        assert_queues(contents.queues, lines)
        of_leaders.append([line for line in contents.lines if line["topic"] == DLEDGER_TOPIC])
    assert not any(line["inConsumeQueue"] for lines in of_leaders for line in lines)
    # Nodes that ended later may have begun one more term.
    common = min(map(len, of_leaders))
    assert common > len(TOPICS)
    assert [lines[:common] for lines in of_leaders] == [of_leaders[0][:common]] * 3


def assert_queues(queues, lines):
    ends = defaultdict(int)
    for line in lines:
        if line["inConsumeQueue"]:
            queue = line["topic"], line["queueId"]
            assert line["queueOffset"] == ends[queue], line
            ends[queue] += 1
    assert {queue: bounds for queue, bounds in queues.items() if bounds[1]} == {
        queue: (0, end) for queue, end in ends.items()
    }


def test_java_finds_all_on_each_node_of_a_broker(java, brokers):
    sent = live_through_a_failover(brokers)

    assert len(sent) == 200 * len(TOPICS)
    assert_java_finds(java, brokers.clusters["broker-a"], sent)


def test_java_finds_old_and_new_messages_on_each_node_of_a_broker_that_continued_a_plain_store(java, brokers):
    cluster = brokers.clusters["broker-a"]
    puts = puts_of_every_kind(seed=43, count=500)
    plain = OurStore(cluster.directory_of("n1").parent, SIZES, clock=Clock(wall_clock_ms()))
    plain.put(puts, step_ms=0)
    plain.close()

    sent = live_through_a_failover(brokers)

    assert len(list((cluster.directory_of("n2").parent / "commitlog").iterdir())) > 1
    assert_java_finds(java, cluster, sent, lines_of(puts, plain.places))

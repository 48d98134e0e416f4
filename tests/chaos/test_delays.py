"""Leaders are killed while thousands of delayed messages are due: each message is delivered once."""

import os
import time
from collections import Counter

import grpc
import pytest

from cluster import OutgoingMessage, Producer
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.support.brokers.group import BrokerGroup
from tests.support.stored_files import check_closed
from tests.support.waiting import PATIENCE_S, wait_until

COUNT = int(os.environ.get("DLEDGER_DELAYS", "6000"))
KILLS = 3
TOPIC = "reminders"
QUEUES = 4
BATCH = 200


@pytest.fixture
def group(tmp_path):
    """Return three running nodes, which create topics for puts."""
    with BrokerGroup(tmp_path / "group", auto_create_topic_enable=True, default_topic_queue_nums=QUEUES) as group:
        yield group


def delivered_count(group):
    """Return the number of messages in the queues of the topic, as the leader shows it."""
    leader, _ = group.leader()
    with grpc.insecure_channel(group.cluster.endpoint_of(leader)) as channel:
        request = pb.OffsetsRequest(topic=TOPIC)
        return sum(BrokerServiceStub(channel).Offsets(request, timeout=PATIENCE_S).max_offsets)


def test_each_is_delivered_once_although_leaders_are_killed(group, tmp_path):
    began_s = time.monotonic()
    with Producer(group.addresses, deadline_s=120) as producer:
        for begin in range(0, COUNT, BATCH):
            messages = [
                OutgoingMessage(TOPIC, b"%d" % number, delay_level=1 + number % 2)
                for number in range(begin, begin + BATCH)
            ]
            producer.send_many(messages)
        for _ in range(KILLS):
            leader, _ = group.leader()
            group.kill(leader)
            group.leader()
            group.cluster.start_node(leader)
        print(f"put and killed in {time.monotonic() - began_s:.1f} s")

    wait_until(lambda: delivered_count(group) >= COUNT, lambda: f"{delivered_count(group)} of {COUNT} are delivered")
    group.wait_equal()
    group.cluster.stop()
    for root in group.roots:
        stored = check_closed(root, tmp_path / "copy")
        bodies = Counter(message.body for message in stored.messages if message.topic == TOPIC)
        assert bodies == Counter(b"%d" % number for number in range(COUNT))

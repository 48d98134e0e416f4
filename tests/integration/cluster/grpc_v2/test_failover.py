"""The leader is killed: sends and receives at the ports of the other nodes continue without an error or a loss."""

import threading

import pytest

from cluster.client.broker_calls import BrokerCalls
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import broker_pb2 as pb
from tests.support.brokers.group import BrokerGroup
from tests.support.brokers.rocketmq_stub import RocketMQStub, message
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


class Sender(threading.Thread):
    """Sends to one node until it is stopped; a failed send is repeated with the same id, as clients do."""

    def __init__(self, stub, name):
        super().__init__()
        self._stub = stub
        self._name = name
        self.is_stopped = threading.Event()
        self.sent = []
        self.refused = []

    def run(self):
        while not self.is_stopped.is_set():
            message_id = f"{self._name}-{len(self.sent)}"
            response = self._stub.send(message("T", message_id, message_id.encode()))
            if response.status.code == mq.OK:
                self.sent.append(message_id)
            else:
                self.refused.append(response.status)


def test_no_send_at_another_node_fails_when_the_leader_is_killed_and_every_message_is_received(tmp_path):
    with BrokerGroup(tmp_path, has_rocketmq=True) as group:
        with BrokerCalls(",".join(group.addresses), PATIENCE_S) as calls:
            topic = pb.Topic(name="T", read_queues=2, write_queues=2, permission=6)
            calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
        leader, _ = group.leader()
        one, other = (RocketMQStub(group.cluster.rocketmq_endpoint_of(name)) for name in group.ids if name != leader)
        with one, other:
            sender = Sender(one, "s")
            sender.start()
            wait_until(lambda: len(sender.sent) >= 20, "messages are sent")
            (early,) = other.receive("T", count=1)
            group.kill(leader)
            count = len(sender.sent)
            wait_until(lambda: len(sender.sent) >= count + 20, "messages are sent at another node")
            sender.is_stopped.set()
            sender.join(PATIENCE_S)
            assert sender.refused == []
            # By the handle of the leader that is dead.
            assert other.ack(early).code == mq.OK
            received = [early.system_properties.message_id]
            while len(received) < len(sender.sent):
                for each in other.receive("T"):
                    received.append(each.system_properties.message_id)
                    assert other.ack(each).code == mq.OK
            assert sorted(received) == sorted(sender.sent)

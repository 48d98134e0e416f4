"""Three nodes of the version before feature levels become three of this one, under load; nothing is lost.

The old version is taken from the history of the repository, and runs with the packages of this one. A client of the old
version sends and consumes all the time, beside those of this one. As long as a member is of the old version, all that
needs a feature level is refused; afterwards each feature works, and the old client continues.
"""

import asyncio
import io
import os
import random
import subprocess
import sys
import tarfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from cluster import Consumer, PopConsumer, Producer, RecallOutcome
from cluster.protocol.recall_handle import RecallHandle, encode_recall_handle
from cluster.state.features import FEATURE_LEVEL
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from store.model.topics import DLQ_PREFIX
from tests.support.brokers.group import BROKER, BrokerGroup
from tests.support.brokers.process import BrokerProcess
from tests.support.message_history import check_history, everything_is_delivered
from tests.support.message_load import TOPIC, mixed_load
from tests.support.stored_files import check_closed, check_states
from tests.support.waiting import PATIENCE_S, run, wait_until

ROOT = Path(__file__).parents[2]
# The last commit whose nodes stop at commands and effects of feature level 1.
OLD_COMMIT = "9ccfb53cb13aa999167828dc7e1f18021d5198be"
WAITING, OF_OLD_CLIENT = "waiting", "of-old-client"
# Not that of the load.
GROUP = "returners"
# Sends and consumes until its standard input ends; then it prints the number of messages, all of which it has got.
OLD_CLIENT = """
import sys, threading
from cluster import Consumer, Producer
_, endpoints, topic = sys.argv
is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
count, found = 0, set()
with (
    Producer(endpoints, is_unknown_retried=True, deadline_s=120) as producer,
    Consumer(endpoints, group="old", topics={topic: "*"}, start="first") as consumer,
):
    while not is_over.is_set():
        producer.send(topic, b"%d" % count)
        count += 1
        found |= {message.body for message in consumer.poll(timeout_s=0.05)}
    while len(found) < count:
        found |= {message.body for message in consumer.poll(timeout_s=1.0)}
print(count)
"""


@pytest.fixture
def old_version(tmp_path):
    """Return the folder of the old version's packages."""
    packages = ["cluster", "commitlog", "dledger", "store"]
    packed = subprocess.run(["git", "-C", ROOT, "archive", OLD_COMMIT, *packages], capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the history of this clone lacks commit {OLD_COMMIT}")
    folder = tmp_path / "old"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def is_raised(group):
    raised = b"feature_level before=0 now=%d" % FEATURE_LEVEL
    return any(raised in group.cluster.log_of(each).read_bytes() for each in group.ids)


@contextmanager
def leader_stub(group):
    with grpc.insecure_channel(group.cluster.endpoint_of(group.leader()[0])) as channel:
        yield BrokerServiceStub(channel)


def create_topics(group):
    with leader_stub(group) as stub:
        for name in (WAITING, OF_OLD_CLIENT):
            topic = pb.Topic(name=name, read_queues=1, write_queues=1, permission=6)
            assert stub.SetTopic(pb.SetTopicRequest(topic=topic), timeout=PATIENCE_S).answer.code == 0
        request = pb.SetGroupRequest(
            group=pb.Group(name=GROUP, is_consume_enabled=True, retry_queues=1, retry_max_times=16)
        )
        assert stub.SetGroup(request, timeout=PATIENCE_S).answer.code == 0


def check_refused(group):
    """Check that a leader of this version writes nothing that a member of the old version does not know."""
    half = b"TRAN_MSG\x01true\x02PGROUP\x01returners\x02UNIQ_KEY\x01k\x02"
    put = lambda properties: pb.PutRequest(topic=WAITING, bodies=[b"x"], properties=[properties])  # noqa: E731
    handle = encode_recall_handle(RecallHandle(WAITING, BROKER, 1, "k"))
    end = pb.EndTransactionRequest(topic=WAITING, producer_group=GROUP, end=pb.TRANSACTION_END_COMMIT)
    with leader_stub(group) as stub:
        answers = [
            stub.Put(put(b"DELAY\x011\x02"), timeout=PATIENCE_S),
            stub.Put(put(b"TIMER_DELAY_MS\x011000\x02"), timeout=PATIENCE_S),
            stub.Put(put(half), timeout=PATIENCE_S),
            stub.EndTransaction(end, timeout=PATIENCE_S),
            stub.RecallMessage(pb.RecallMessageRequest(topic=WAITING, recall_handle=handle), timeout=PATIENCE_S),
            stub.ReturnMessage(pb.ReturnMessageRequest(group=GROUP, topic=WAITING), timeout=PATIENCE_S),
            stub.Receive(pb.ReceiveRequest(group=GROUP, topic=WAITING, invisible_ms=5_000), timeout=PATIENCE_S),
        ]
    assert [each.answer.reason for each in answers] == ["UNSUPPORTED"] * len(answers)


def use_all(group):
    """Use each feature of the new level once."""
    with Producer(group.addresses, deadline_s=PATIENCE_S) as producer:
        producer.send(WAITING, b"level", delay_level=1)
        producer.send(WAITING, b"time", delay_s=1.0)
        recalled = producer.send(WAITING, b"recalled", delay_s=60.0)
        assert producer.recall(recalled.recall_handle) is RecallOutcome.RECALLED
        producer.send(WAITING, b"far away", delay_level=18)
        with producer.transaction(WAITING, b"paid", group="payments"):
            pass
        with producer.transaction(WAITING, b"not paid", group="payments") as not_paid:
            not_paid.rollback()
        producer.send(WAITING, b"failed")
        producer.send(WAITING, b"dead")
    return_some(group)
    expected = {b"level", b"time", b"paid", b"failed", b"dead"}
    found = []
    with PopConsumer(group.addresses, group="poppers", topic=WAITING) as consumer:
        end_s = time.monotonic() + PATIENCE_S
        while set(found) < expected and time.monotonic() < end_s:
            for message in consumer.receive(wait_s=1.0):
                found.append(message.body)
                consumer.acknowledge(message)
    assert sorted(found) == sorted(expected)


def return_some(group):
    topics = {WAITING: "*"}
    with Consumer(group.addresses, group=GROUP, topics=topics, start="first", has_retries=True) as consumer:
        again, end_s = [], time.monotonic() + PATIENCE_S
        while not again and time.monotonic() < end_s:
            for message in consumer.poll(timeout_s=1.0):
                if message.attempts > 1:
                    again.append(message.body)
                elif message.body in (b"failed", b"dead"):
                    consumer.nack(message, 1 if message.body == b"failed" else -1)
    assert again == [b"failed"]


@contextmanager
def old_client(old_version, group):
    """Run a client of the old version."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(old_version)}
    arguments = [sys.executable, "-c", OLD_CLIENT, ",".join(group.addresses), OF_OLD_CLIENT]
    with subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        try:
            yield client
        finally:
            if client.poll() is None and not client.stdin.closed:
                client.kill()


def test_old_nodes_become_new_ones_under_load(old_version, tmp_path, monkeypatch):
    # The working directory must not precede the old packages.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", str(old_version))
    seed = random.SystemRandom().randrange(1 << 32)

    async def upgraded(group):
        async with mixed_load(BROKER, group.addresses, seed) as load:
            await load.wait(200)
            leader, _ = await asyncio.to_thread(group.leader)
            for number, node_id in enumerate(sorted(group.ids, key=lambda each: each == leader)):
                assert not is_raised(group), f"after {number} of 3 nodes"
                await asyncio.to_thread(group.cluster.stop_node, node_id)
                if node_id == leader:
                    # A new node leads, and has been greeted by the old one.
                    await asyncio.to_thread(check_refused, group)
                await asyncio.to_thread(group.cluster.start_node, node_id)
                await load.wait(200)
            await asyncio.to_thread(wait_until, lambda: is_raised(group), "the feature level is raised")
            await load.wait(200)
            await asyncio.to_thread(use_all, group)
            await load.settle()
            return load.history

    with BrokerGroup(tmp_path / "group") as group:
        assert all(b"feature_level" not in group.cluster.log_of(each).read_bytes() for each in group.ids)
        monkeypatch.delenv("PYTHONPATH")
        create_topics(group)
        with old_client(old_version, group) as client:
            history = run(upgraded(group))
            output, _ = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 0
        group.wait_equal()
        group.cluster.stop()
        stored = [check_closed(root, tmp_path / "copy") for root in group.roots]

    check_states(stored)
    for replica in stored:
        bodies = Counter((message.topic, message.body) for message in replica.messages)
        assert bodies[DLQ_PREFIX + GROUP, b"dead"] == 1
        found = {int(body): count for (topic, body), count in bodies.items() if topic == OF_OLD_CLIENT}
        assert found == dict.fromkeys(range(int(output)), 1)
        # The history has no others.
        replica.messages = [message for message in replica.messages if message.topic == TOPIC]
    check_history(history, stored)
    everything_is_delivered(history, stored[0], {TOPIC})


def test_standalone_broker_of_the_old_version_continues_with_a_journal(old_version, tmp_path, monkeypatch):
    """It is killed before the upgrade, and after it; a return to the old version is refused, and changes nothing."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    broker = BrokerProcess(tmp_path / "store")
    place = {"group": GROUP, "topic": WAITING}

    def call(method, request):
        with grpc.insecure_channel(broker.address) as channel:
            answer = getattr(BrokerServiceStub(channel), method)(request, timeout=PATIENCE_S)
        assert answer.answer.code == 0, answer
        return answer

    with monkeypatch.context() as of_old_version:
        of_old_version.setenv("PYTHONPATH", str(old_version))
        broker.start()
    call("SetTopic", pb.SetTopicRequest(topic=pb.Topic(name=WAITING, read_queues=1, write_queues=1, permission=6)))
    call("Put", pb.PutRequest(topic=WAITING, bodies=[b"0", b"1", b"2"]))
    call("CommitOffset", pb.CommitOffsetRequest(**place, queue_ids=[0], offsets=[1]))
    broker.kill()
    broker.start()
    given = call("Receive", pb.ReceiveRequest(**place, max_messages=1, invisible_ms=600_000))
    assert list(given.columns.bodies) == [b"1"]
    call("Acknowledge", pb.AcknowledgeRequest(**place, handles=given.handles))
    broker.kill()
    with monkeypatch.context() as of_old_version:
        of_old_version.setenv("PYTHONPATH", str(old_version))
        broker.launch()
        with pytest.raises(AssertionError, match="dledger:"):
            broker.wait_until_ready()
        assert broker.stop() != 0
    broker.start()
    assert list(call("Receive", pb.ReceiveRequest(**place, invisible_ms=5_000)).columns.bodies) == [b"2"]
    assert broker.stop() == 0

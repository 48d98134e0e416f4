"""Stores that Java wrote are opened by brokers, read in full through gRPC, and continued: one node, and three."""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from collections import defaultdict
from pathlib import Path

import grpc
import pytest

from cluster import OutgoingMessage, Producer
from cluster.state.features import WITH_EFFECTS
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from tests.support.brokers.group import BrokerGroup
from tests.support.message_load import records_of
from tests.support.stored_files import DERIVED, check_closed
from tests.support.waiting import PATIENCE_S, wait_until

FIXTURES = Path(__file__).parent.parent / "fixtures"
SIZES = {
    "mapped_file_size_for_entry_data": 65_536,
    "mapped_file_size_for_entry_index": 5 * 1024 * 1024 * 32,
    "mapped_file_size_consume_queue": 1_000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
OWN_TOPIC = "TopicTest"
PUTS = 40


def unpack(name, root, node_id):
    """Copy a store into the directory of a node; the folder of its entries has the node's name."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        # Python before 3.11.4 has no filters, and no argument for them.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(root.parent / f"unpacked-{node_id}")
    shutil.move(root.parent / f"unpacked-{node_id}" / name, root)
    if (root / "dledger-n0").exists() and node_id != "n0":
        (root / "dledger-n0").rename(root / f"dledger-{node_id}")


def manifest(name):
    """Return the messages that are in a queue: {(topic, queue id): {queue offset: message}}."""
    queues = defaultdict(dict)
    with lzma.open(FIXTURES / f"{name}.manifest.jsonl.xz", "rt", encoding="utf-8") as lines:
        for message in map(json.loads, lines):
            if message["inConsumeQueue"]:
                queues[message["topic"], message["queueId"]][message["queueOffset"]] = message
    return dict(queues)


class Client:
    """Calls one node."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address)
        self.stub = BrokerServiceStub(self._channel)

    def read(self, topic, queue_id, mode=0):
        """Return all of a queue: {queue offset: record}."""
        found, offset = {}, 0
        while True:
            request = pb.GetRequest(topic=topic, queue_id=queue_id, offset=offset, max_messages=50, mode=mode)
            request.form = pb.MESSAGE_FORM_RECORDS
            response = self.ask(self.stub.Get, request)
            records = records_of(response.records)
            if not records:
                return found
            found.update((record.queue_offset, record) for record in records)
            offset = response.next_offset

    def by_key(self, topic, key):
        request = pb.QueryByKeyRequest(topic=topic, key=key, max_messages=64, form=pb.MESSAGE_FORM_RECORDS)
        return records_of(self.ask(self.stub.QueryByKey, request).records)

    def by_id(self, message_id):
        request = pb.QueryByIdRequest(message_id=message_id, form=pb.MESSAGE_FORM_RECORDS)
        (record,) = records_of(self.ask(self.stub.QueryById, request).records)
        return record

    def ask(self, call, request):
        """Return the answer; a replica refuses reads while no leader confirms the commit index."""
        answers = []

        def is_answered():
            answers.append(call(request, timeout=PATIENCE_S))
            return not answers[-1].answer.reason

        wait_until(is_answered, lambda: str(answers[-1].answer))
        return answers[-1]

    def close(self):
        self._channel.close()


def pass_over_delayed_messages(group):
    """Wait until the delayed messages of Java, all of which are due, were found to have no topic.

    After `create_topics` they would be delivered, so that the queues would have more messages than Java has put.
    """
    answers = []

    def is_done():
        leader, _ = group.leader()
        client = Client(group.cluster.endpoint_of(leader))
        answers.append(client.stub.DelayLevels(pb.DelayLevelsRequest(), timeout=PATIENCE_S))
        client.close()
        found = answers[-1]
        is_delivering = not found.answer.reason and found.feature_level >= WITH_EFFECTS
        return is_delivering and all(each.delivered_offset == each.max_offset for each in found.levels)

    wait_until(is_done, lambda: str(answers[-1:]))


def create_topics(group, queues):
    """Create the topics at the current leader."""
    counts = defaultdict(int)
    for topic, queue_id in queues:
        counts[topic] = max(counts[topic], queue_id + 1)
    for name, count in counts.items():
        if is_readable(name):
            topic = pb.Topic(name=name, read_queues=count, write_queues=count, permission=6 if len(name) <= 127 else 4)
            answers = []
            wait_until(
                lambda answers=answers, topic=topic: is_made(group, topic, answers),
                lambda answers=answers: str(answers),
            )


def is_made(group, topic, answers):
    leader, _ = group.leader()
    client = Client(group.cluster.endpoint_of(leader))
    answers.append(client.stub.SetTopic(pb.SetTopicRequest(topic=topic), timeout=PATIENCE_S).answer)
    client.close()
    return not answers[-1].reason


def assert_java_is_there(client, queues):
    """Each message of Java is found by queue, by key and by id, with its own bytes."""
    for (topic, queue_id), messages in queues.items():
        if topic.startswith("SCHEDULE_TOPIC"):
            continue
        found = client.read(topic, queue_id) if is_readable(topic) else {}
        for queue_offset, message in messages.items():
            record = client.by_id(message["msgId"])
            assert described(record) == {name: message[name] for name in described(record)}
            if not is_readable(topic):
                continue
            assert described(found[queue_offset]) == described(record)
            if message["uniqKey"] and message["indexed"]:
                offsets = [each.physical_offset for each in client.by_key(topic, message["uniqKey"])]
                assert message["physicalOffset"] in offsets


def is_readable(topic):
    """Return whether clients may use a topic; Java's store has internal topics."""
    return not topic.startswith("SCHEDULE_TOPIC")


def described(record):
    return {
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "storeTimestamp": record.store_timestamp,
        "bodyCRC": record.body_crc,
        "msgId": record.message_id,
        "properties": dict(record.properties),
    }


@pytest.mark.parametrize(
    ("name", "nodes"), [("dledger", 1), ("dledger-killed", 3), ("mixed", 1), ("mixed", 3), ("plain-clean", 3)]
)
def test_store_of_java_is_read_in_full_and_continued(name, nodes, tmp_path):
    # A directory with entries of Java has no identity: the operator adopts it.
    group = BrokerGroup(tmp_path / "group", nodes, is_adopting=name != "plain-clean", **SIZES)
    queues = manifest(name)
    for node_id, root in zip(group.ids, group.roots, strict=True):
        unpack(name, root, node_id)
    with group:
        pass_over_delayed_messages(group)
        create_topics(group, queues)
        leader, _ = group.leader()
        client = Client(group.cluster.endpoint_of(leader))
        assert_java_is_there(client, queues)
        ends = {queue_id: max(queues[OWN_TOPIC, queue_id]) + 1 for topic, queue_id in queues if topic == OWN_TOPIC}
        # A stalled leader leaves the outcome unknown; a retry returns the place of the first attempt.
        with Producer(group.cluster.endpoints, is_unknown_retried=True, deadline_s=PATIENCE_S) as producer:
            for queue_id, end in ends.items():
                messages = [OutgoingMessage(OWN_TOPIC, b"ours %d" % number * 60) for number in range(PUTS)]
                sent = producer.send_many(messages, queue_id=queue_id)
                assert [each.queue_offset for each in sent] == list(range(end, end + PUTS))
        client.close()
        group.wait_equal()
        for node_id in group.ids:
            # Every replica serves old and new messages by itself.
            client = Client(group.cluster.endpoint_of(node_id))
            assert_java_is_there(client, queues)
            for queue_id, end in ends.items():
                found = client.read(OWN_TOPIC, queue_id, mode=1)
                assert [found[offset].body[:6] for offset in range(end, end + PUTS)][:2] == [b"ours 0", b"ours 1"]
            client.close()
    # Files of an intact index keep Java's names, which a rebuild does not know.
    derived = DERIVED[:1] if name == "plain-clean" else DERIVED
    stored = [check_closed(root, tmp_path / "copy", derived) for root in group.roots]
    assert all(each.messages == stored[0].messages for each in stored)
    assert len(stored[0].messages) >= len(ends) * PUTS + 150

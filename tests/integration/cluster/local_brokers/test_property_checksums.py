"""A store with property checksums (RocketMQ 5.2 and newer) that a broker of a group continues: they are checked."""

import re
import shutil

import pytest

from cluster.broker.core import wall_clock_ms
from cluster.client.broker_calls import BrokerCalls
from cluster.local.cluster import LocalCluster
from cluster.v1 import broker_pb2 as pb
from store.fs.linux.files import OsFiles
from tests.support.message_stores import SMALL, Clock, numbered, open_small, with_log

FILE_SIZE = 1 << 18
# Four in a file, so that opening a store that was closed cleanly does not read the first of them.
COUNT, BODY_SIZE = 24, 60_000
OPTIONS = {
    "broker": "broker-a",
    "mapped_file_size_for_entry_data": FILE_SIZE,
    "mapped_file_size_for_entry_index": 32 << 10,
    "mapped_file_size_consume_queue": 1000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def write_store(root, other, *, is_killed):
    """Write messages into one queue; if the writer is killed, the last of them is not durable."""
    config = with_log(SMALL, has_property_crc=True, mapped_file_size=FILE_SIZE)
    store = open_small(other, config, clock=Clock(wall_clock_ms() / 1000))
    for number in range(COUNT):
        store.messages.put_many([numbered(number, "T", queues=1, body_size=BODY_SIZE, keys=f"key-{number}")])
        if number == COUNT - 2:
            store.flush()
    if is_killed:
        shutil.copytree(other, root, dirs_exist_ok=True)
    store.close()
    if not is_killed:
        shutil.copytree(other, root, dirs_exist_ok=True)


def damage(root, key):
    """Change the key of one message: the checksum of its body is still valid."""
    for path in (root / "commitlog").iterdir():
        file = OsFiles().open(str(path))
        found = re.search(rb"\b%s\b" % key, bytes(file.view()))
        if found is not None:
            file.write(b"?", found.start())
        file.close()


@pytest.fixture(params=[True, False], ids=["checked", "not checked"])
def is_checked(request):
    return request.param


@pytest.fixture
def cluster(is_checked, tmp_path):
    return LocalCluster.create(tmp_path / "run", nodes=1, options={**OPTIONS, "has_property_crc": is_checked})


def opened(cluster):
    calls = BrokerCalls(cluster.endpoints, 20.0)
    topic = pb.Topic(name="T", read_queues=1, write_queues=1, permission=6)
    calls.ask(lambda stub: stub.SetTopic, pb.SetTopicRequest(topic=topic))
    return calls


def test_torn_record_of_an_old_log_is_cut_if_only_its_property_checksum_fails(cluster, is_checked, tmp_path):
    root = cluster.directory_of("n0").parent
    write_store(root, tmp_path / "other", is_killed=True)
    damage(root, b"key-%d" % (COUNT - 1))

    with cluster, opened(cluster) as calls:
        ends = calls.ask(lambda stub: stub.Offsets, pb.OffsetsRequest(topic="T")).max_offsets

    assert list(ends) == [COUNT - 1 if is_checked else COUNT]


def test_old_record_with_damaged_properties_is_not_delivered(cluster, is_checked, tmp_path):
    root = cluster.directory_of("n0").parent
    write_store(root, tmp_path / "other", is_killed=False)
    damage(root, b"key-3")

    with cluster, opened(cluster) as calls:
        found = calls.ask(lambda stub: stub.Get, pb.GetRequest(topic="T", offset=3))

    assert (b"key-4" if is_checked else b"?ey-3") in found.columns.properties[0]
    assert [(each.begin_offset, each.end_offset) for each in found.skipped] == [(3, 4)] * is_checked
    assert ("damaged_message_skipped topic=T queue_id=0" in cluster.log_of("n0").read_text()) == is_checked

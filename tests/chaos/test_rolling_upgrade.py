"""Three nodes of the version before feature levels become three of this one, under load; nothing is lost.

The old version is taken from the history of the repository, and runs with the packages of this one.
"""

import asyncio
import io
import random
import subprocess
import tarfile
from pathlib import Path

import grpc
import pytest

from cluster import Producer
from cluster.state.features import FEATURE_LEVEL
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from store.model.topics import SCHEDULE_TOPIC
from tests.support.brokers.group import BROKER, BrokerGroup
from tests.support.message_history import check_history, everything_is_delivered
from tests.support.message_load import TOPIC, mixed_load
from tests.support.stored_files import check_closed, check_states
from tests.support.waiting import PATIENCE_S, run, wait_until

ROOT = Path(__file__).parents[2]
# The last commit whose nodes stop at commands and effects of feature level 1.
OLD_COMMIT = "9ccfb53cb13aa999167828dc7e1f18021d5198be"


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


def send_delayed(group):
    leader, _ = group.leader()
    with grpc.insecure_channel(group.cluster.endpoint_of(leader)) as channel:
        topic = pb.Topic(name="later", read_queues=1, write_queues=1, permission=6)
        BrokerServiceStub(channel).SetTopic(pb.SetTopicRequest(topic=topic), timeout=PATIENCE_S)
    with Producer(group.addresses) as producer:
        assert producer.send("later", b"x", delay_level=18).queue_offset == 0


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
                await asyncio.to_thread(group.cluster.start_node, node_id)
                await load.wait(200)
            await asyncio.to_thread(wait_until, lambda: is_raised(group), "the feature level is raised")
            await load.wait(200)
            await load.settle()
            return load.history

    with BrokerGroup(tmp_path / "group") as group:
        assert all(b"feature_level" not in group.cluster.log_of(each).read_bytes() for each in group.ids)
        monkeypatch.delenv("PYTHONPATH")
        history = run(upgraded(group))
        send_delayed(group)
        group.wait_equal()
        group.cluster.stop()
        stored = [check_closed(root, tmp_path / "copy") for root in group.roots]

    for replica in stored:
        # Of `send_delayed`, which the history lacks.
        assert replica.messages.pop().topic == SCHEDULE_TOPIC
    check_history(history, stored)
    check_states(stored)
    everything_is_delivered(history, stored[0], {TOPIC})

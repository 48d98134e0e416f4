"""Compacted topics of a group: every node derives the same from its log, also one that joins late."""

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

from cluster.broker.core import wall_clock_ms
from cluster.delivery.compaction import CompactionSettings, TopicCompaction
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import DeleteTopic, SetTopic
from cluster.state.features import FEATURE_LEVEL
from store.compaction.compaction import NO_FLOOR
from store.errors import NotCompactedYet
from store.model.message import Message
from tests.support.brokers.compacting import read_all
from tests.support.brokers.replicated import FILE_SIZE, configs_in, running_group
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
COMPACTED = TopicConfig("C", 1, 1, attributes=(("cleanup.policy", "COMPACTION"),))
KEYS = 40


def of_keys(begin, text, topic="C"):
    return [Message(topic, b"%s%d" % (text, at), 0, {"KEYS": f"k{at}"}) for at in range(begin, KEYS)]


def fillers(number):
    return [Message("T", b"x" * 5_000, 0, {"KEYS": "k0"}) for _ in range(number)]


@asynccontextmanager
async def compacting(group, monkeypatch):
    """Compact on every node that is open, as its broker does."""
    monkeypatch.setattr("cluster.delivery.compaction._TURN_S", 0.02)
    tasks, running = {}, []

    async def follow():
        while True:
            for replica in group.open.values():
                if replica not in tasks and replica._is_started:
                    tasks[replica] = TopicCompaction(replica, wall_clock_ms, CompactionSettings(interval_s=0.05))
                    running.append(asyncio.create_task(tasks[replica].run()))
            await asyncio.sleep(0.005)

    following = asyncio.create_task(follow())
    try:
        yield tasks
    finally:
        for task in (following, *running):
            task.cancel()
        await asyncio.gather(following, *running, return_exceptions=True)


async def with_topics(group):
    await group.start()
    await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))
    for topic in (COMPACTED, TopicConfig("T", 1, 1)):
        await group.of_leader(lambda leader, topic=topic: leader.change(SetTopic(topic)))


def has_all(replica, expected):
    """Return whether a node has compacted all; until then it gives more messages, or refuses, but never fewer."""
    try:
        found = read_all(replica.store)
    except NotCompactedYet:
        return False
    assert found.items() >= expected.items()
    return found == expected


def test_node_that_joins_after_the_log_deleted_old_files_has_the_latest_message_of_each_key(tmp_path, monkeypatch):
    """The latest messages of old keys are in the log again, as copies: only so can a new node have them."""

    async def scenario():
        configs = configs_in(tmp_path, snapshot_threshold=50)
        disks = {config.node.self_id: FaultyDisk() for config in configs}
        async with running_group(configs, files=disks) as group, compacting(group, monkeypatch) as tasks:
            await with_topics(group)
            await group.put(*of_keys(0, b"a"))
            await group.put(*of_keys(20, b"b"))
            expected = {at: b"a%d" % at for at in range(20)} | {KEYS + at: b"b%d" % (20 + at) for at in range(20)}
            await until(lambda: all(read_all(each.store) == expected for each in group.open.values()))
            leader = await group.level()
            away = next(name for name in group.open if group.open[name] is not leader)
            for disk in disks.values():
                disk.used_ratio = 0.87

            async def are_old_files_gone():
                await group.put(*fillers(10))
                for each in group.open.values():
                    each.node._event_batches.soon(lambda _, node=each.node: node._retention.check())
                return all(each.parts.log.begin_offset > FILE_SIZE for each in group.open.values())

            while not await are_old_files_gone():
                assert all(read_all(each.store) == expected for each in group.open.values())
            assert sum(task.copied_count for task in tasks.values()) >= KEYS
            for disk in disks.values():
                disk.used_ratio = 0.5
            await group.stop(away)
            shutil.rmtree(tmp_path / away)
            await group.start(away)
            late = group.open[away]
            await group.level()
            assert late.parts.log.begin_offset > FILE_SIZE
            await until(lambda: has_all(late, expected))
            async with group.steady_leader(away):
                pass
            await group.put(Message("C", b"new", 0, {"KEYS": "k0"}))
            expected[2 * KEYS - 20] = b"new"
            del expected[0]
            await until(lambda: all(read_all(each.store) == expected for each in group.open.values()))
            # A deleted topic holds the log no longer.
            await group.of_leader(lambda leader: leader.change(DeleteTopic("C")))
            nodes = group.open.values()
            await until(lambda: all(each.store.compaction.needed_from == NO_FLOOR for each in nodes))

    run(scenario())

"""Delayed messages of an old store: a group continues where the store was left, with each level within its queue."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.diversion import diverted
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from cluster.state.commands import SetTopic
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig
from store.fs.linux.files import OsFiles
from store.model.message import Message
from tests.support.brokers.replicated import FILE_SIZE, STORE, configs_in, put, read_queue, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
FOREVER_MS = 1 << 60


def delayed(*numbers):
    messages = [Message("T", b"%d " % number, 0, {"DELAY": "1"}) for number in numbers]
    return diverted(messages, [1] * len(messages))


@asynccontextmanager
async def delivering(replica, clock_ms):
    delivery = DelayDelivery(replica, clock_ms, lambda _: None, lambda _: None)
    task = asyncio.create_task(delivery.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def standalone(root):
    """Yield a standalone broker; its state is not saved at the end, as after a kill."""
    plain = PlainStoreConfig(log=CommitLogConfig(mapped_file_size=FILE_SIZE), store=STORE)
    replica = StandaloneReplica.open(OsFiles(), StandaloneConfig(str(root), "b", "127.0.0.1:1", plain))
    yield replica
    replica._local._saved_offset = FOREVER_MS
    await replica.stop()


async def with_delays(root):
    """Put four delayed messages, of which three are delivered, but not noted in the last snapshot."""
    async with standalone(root) as replica:
        await replica.change(SetTopic(TopicConfig("T", 1, 1)))
        await replica.begin_put(delayed(0, 1, 2))
        async with delivering(replica, lambda: replica.store.log.last_store_timestamp + 1_000):
            await until(lambda: replica.state.delay_offsets == {1: 3})
        await replica.begin_put(delayed(3))


async def bodies_in_a_group(tmp_path, count):
    async with running_group(configs_in(tmp_path, count=1)) as group:
        await group.start()
        replica = await group.leader()
        async with delivering(replica, lambda: FOREVER_MS >> 10):
            await put(replica, *delayed(4))
            await until(lambda: replica.store.max_offset("T", 0) >= count)
        await group.level()
        return [body for _, body in read_queue(replica, "T", 0)], dict(replica.state.delay_offsets)


def test_copies_after_the_last_snapshot_of_a_killed_broker_are_not_repeated(tmp_path):
    async def scenario():
        await with_delays(tmp_path / "n0")

        assert await bodies_in_a_group(tmp_path, 5) == ([b"0", b"1", b"2", b"3", b"4"], {1: 5})

    run(scenario())


def test_offset_after_the_end_of_its_queue_does_not_stop_the_level(tmp_path):
    """RocketMQ notes it every ten seconds, and a crash of the machine may take units that it has counted."""

    async def scenario():
        root = tmp_path / "n0"
        async with standalone(root) as replica:
            await replica.begin_put(delayed(0, 1))
        for path in (root / "config").rglob("*"):
            if path.is_file():
                path.unlink()
        for path in sorted((root / "config").rglob("*"), reverse=True):
            path.rmdir()
        topics = {"topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}}
        (root / "config/topics.json").write_text(json.dumps(topics))
        (root / "config/delayOffset.json").write_text(json.dumps({"offsetTable": {"1": 1_000}}))

        assert await bodies_in_a_group(tmp_path, 1) == ([b"4"], {1: 3})

    run(scenario())

"""Delayed messages of a group: each is delivered once, although leaders change and nodes stop in between."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from cluster.delivery import delay_levels, leader_task
from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.diversion import diverted
from cluster.protocol.topic_config import TopicConfig
from cluster.replica import opening
from cluster.state.commands import SetTopic
from cluster.state.features import FEATURE_LEVEL
from cluster.state.waiting_commands import SetDelayOffsets
from store.model.message import Message
from store.model.topics import SCHEDULE_TOPIC
from tests.support.brokers.replicated import configs_in, read_queue, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
COUNT = 600


def delayed(numbers, level=1, body_size=0):
    bodies = [(b"%d " % number).ljust(body_size) for number in numbers]
    messages = [Message("T", body, 0, {"DELAY": str(level)}) for body in bodies]
    return diverted(messages, [level] * len(messages))


def copies_of(replica):
    """Return (queue offset, body) of the delivered messages on one node."""
    return read_queue(replica, "T", 0)


@asynccontextmanager
async def delivering(group, clock_ms):
    """Deliver on every node that is open, as its broker does."""
    tasks = {}

    async def follow():
        while True:
            for replica in group.open.values():
                if replica not in tasks and replica._is_started:
                    delivery = DelayDelivery(replica, clock_ms, lambda _: None, lambda _: None)
                    tasks[replica] = asyncio.create_task(delivery.run())
            await asyncio.sleep(0.002)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        for task in (following, *tasks.values()):
            task.cancel()
        await asyncio.gather(following, *tasks.values(), return_exceptions=True)


def delivered(group):
    return max(each.store.max_offset("T", 0) for each in group.open.values())


def ahead(group):
    """Return a clock by which everything is due."""
    return lambda: int(group._clocks.wall_s * 1000) + 2_000


async def with_topic(group):
    await group.start()
    await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 1, 1))))
    await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))


@pytest.mark.parametrize("seed", range(2))
def test_each_message_is_delivered_once_while_leaders_change(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(delay_levels, "BATCH_MAX", 3)
    monkeypatch.setattr(leader_task, "_PAUSE_S", 0.01)
    random = Random(seed)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            for begin in range(0, COUNT, 100):
                await group.put(*delayed(range(begin, begin + 100)))
            async with delivering(group, ahead(group)):
                progress = 0
                for _ in range(4):
                    await until(lambda before=progress: delivered(group) > before or before == COUNT)
                    leader = await group.leader()
                    name = group.name_of(leader)
                    if random.random() < 0.5:
                        await group.stop(name)
                        await group.leader()
                        await group.start(name)
                    else:
                        await leader.node.transfer_leadership(random.choice([n for n in group.open if n != name]))
                    progress = delivered(group)
                await until(lambda: all(each.state.delay_offsets == {1: COUNT} for each in group.open.values()))
            await group.level()
            for each in group.open.values():
                assert copies_of(each) == [(number, b"%d" % number) for number in range(COUNT)]
                assert each.state.unfit_effects_count == 0

    run(scenario())


def test_followers_deliver_nothing_and_a_new_leader_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            await group.put(*delayed(range(5)), *delayed(range(5, 8), level=5))
            async with delivering(group, ahead(group)):
                await until(lambda: all(each.state.delay_offsets == {1: 5} for each in group.open.values()))
                await group.stop(group.name_of(await group.leader()))
                await group.put(*delayed(range(8, 10)))
                await until(lambda: all(each.state.delay_offsets == {1: 7} for each in group.open.values()))
            await group.level()
            expected = [b"0", b"1", b"2", b"3", b"4", b"8", b"9"]
            assert [[body for _, body in copies_of(each)] for each in group.open.values()] == [expected] * 2
            assert {each.store.max_offset(SCHEDULE_TOPIC, 4) for each in group.open.values()} == {3}

    run(scenario())


@pytest.mark.parametrize("limits", [{"max_pending_requests_num": 3}, {"max_pending_size_bytes": 4096}])
def test_no_put_of_copies_is_larger_than_the_node_accepts(tmp_path, limits):
    async def scenario():
        (config,) = configs_in(tmp_path, count=1)
        config = replace(config, node=replace(config.node, **limits))
        async with running_group([config]) as group:
            await with_topic(group)
            for number in range(10):
                await group.put(*delayed([number], body_size=1_500))
            async with delivering(group, ahead(group)):
                await until(lambda: group.open["n0"].state.delay_offsets == {1: 10})
            await until(lambda: delivered(group) == 10)

    run(scenario())


def test_progress_is_in_snapshots_from_which_a_node_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            await group.put(*delayed(range(4)))
            async with delivering(group, ahead(group)):
                await until(lambda: group.open["n0"].state.delay_offsets == {1: 4})
                group.open["n0"].node.request_snapshot(is_forced=True)
                await until(lambda: group.open["n0"].node.snapshot is not None)
            await group.stop()
            await group.start()
            assert group.open["n0"].state.delay_offsets == {1: 4}
            await group.put(*delayed([4]))
            async with delivering(group, ahead(group)):
                await until(lambda: group.open["n0"].state.delay_offsets == {1: 5})
            await group.level()
            assert [body for _, body in copies_of(group.open["n0"])] == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario())


def test_level_is_raised_only_when_the_last_member_knows_it(tmp_path, monkeypatch):
    """As in a rolling upgrade: an older program would stop at the entry that raises it."""

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            monkeypatch.setattr(opening, "FEATURE_LEVEL", 0)
            await group.start("n0", "n1", "n2")
            await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 1, 1))))
            monkeypatch.setattr(opening, "FEATURE_LEVEL", FEATURE_LEVEL)
            for name in ("n0", "n1"):
                await group.stop(name)
                await group.start(name)
                await group.level()
                assert {each.state.feature_level for each in group.open.values()} == {0}
            await group.stop("n2")
            leader = await group.leader()
            for _ in range(3):
                await leader.change(SetDelayOffsets(((1, 0),)))
            assert leader.state.feature_level == 0, "n2 was old when it was last seen"
            await group.start("n2")
            await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))

    run(scenario())

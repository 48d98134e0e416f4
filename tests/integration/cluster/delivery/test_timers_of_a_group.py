"""Messages at any time, of a group: each is delivered or recalled once, although leaders change and nodes stop."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from cluster.broker.core import wall_clock_ms
from cluster.delivery import leader_task, timers
from cluster.delivery.diversion import DeliverAt, diverted
from cluster.delivery.timer_records import Recalled
from cluster.delivery.timers import TimerDelivery
from cluster.protocol.errors import RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.state.commands import SetTopic
from cluster.state.features import FEATURE_LEVEL
from dledger.errors import DLedgerError
from store.errors import StoreError
from store.model.message import Message
from store.model.topics import TIMER_TOPIC
from tests.integration.cluster.delivery.test_old_delays import standalone
from tests.support.brokers.replicated import configs_in, put, read_queue, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
COUNT = 600
HOUR_MS = 3_600_000
FAR_MS = 1 << 50


def timed(numbers, begin_ms):
    messages = [Message("T", b"%d " % number, 0, {"UNIQ_KEY": str(number)}) for number in numbers]
    return diverted(messages, [DeliverAt(begin_ms + (number * 7) % 50) for number in numbers])


def now_ms(group):
    return int(group._clocks.wall_s * 1000)


@asynccontextmanager
async def delivering(group, clock_ms, tasks):
    """Deliver on every node that is open, as its broker does; `tasks` gets the deliveries."""
    running = []

    async def follow():
        while True:
            for replica in group.open.values():
                if replica not in tasks and replica._is_started:
                    tasks[replica] = TimerDelivery(replica, clock_ms, lambda _: None, lambda *_: None)
                    running.append(asyncio.create_task(tasks[replica].run()))
            await asyncio.sleep(0.002)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        for task in (following, *running):
            task.cancel()
        await asyncio.gather(following, *running, return_exceptions=True)


async def with_topic(group):
    await group.start()
    await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 1, 1))))
    await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))


def is_all_done(group, count):
    return all(
        each.store.max_offset(TIMER_TOPIC, 0) >= count
        and each.state.timers.waiting_count(each.store.max_offset(TIMER_TOPIC, 0)) == 0
        for each in group.open.values()
    )


async def recalled(group, tasks, number):
    """Recall a message by its number, which is its unit, at whichever node leads; return whether it took effect."""
    while True:
        leader = await group.leader()
        if leader in tasks:
            try:
                return await tasks[leader].recall(Recalled("T", str(number), 0), [number])
            except (RequestFailed, StoreError, DLedgerError):
                if leader.state.timers.is_done(number):
                    return None
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", range(2))
def test_each_message_is_delivered_or_recalled_once_while_leaders_change(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(timers, "BATCH_MAX", 3)
    monkeypatch.setattr(timers, "ROWS_MAX", 40)
    monkeypatch.setattr(leader_task, "_PAUSE_S", 0.01)
    random = Random(seed)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            for begin in range(0, COUNT, 100):
                await group.put(*timed(range(begin, begin + 100), now_ms(group) + 1_000))
            tasks, taken_back = {}, {}

            async def take_back():
                for number in random.sample(range(COUNT), 60):
                    taken_back[number] = await recalled(group, tasks, number)

            async with delivering(group, lambda: now_ms(group) + 2_000, tasks):
                recalling = asyncio.create_task(take_back())
                for _ in range(4):
                    await asyncio.sleep(0.05)
                    leader = await group.leader()
                    name = group.name_of(leader)
                    if random.random() < 0.5:
                        await group.stop(name)
                        await group.leader()
                        await group.start(name)
                    else:
                        await leader.node.transfer_leadership(random.choice([n for n in group.open if n != name]))
                await recalling
                await until(lambda: is_all_done(group, COUNT))
            await group.level()
            certainly = {number for number, took_effect in taken_back.items() if took_effect}
            perhaps = certainly | {number for number, took_effect in taken_back.items() if took_effect is None}
            for each in group.open.values():
                found = [int(body) for _, body in read_queue(each, "T", 0)]
                assert len(found) == len(set(found))
                assert set(range(COUNT)) - perhaps <= set(found) <= set(range(COUNT)) - certainly
                assert each.state.unfit_effects_count == 0

    run(scenario())


def test_followers_deliver_nothing_and_a_new_leader_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_topic(group)
            begin_ms = now_ms(group)
            await group.put(*timed(range(5), begin_ms), *timed(range(5, 8), begin_ms + HOUR_MS))
            async with delivering(group, lambda: now_ms(group) + 1_000, {}):
                await until(lambda: all(each.state.timers.floor == 5 for each in group.open.values()))
                await group.stop(group.name_of(await group.leader()))
                await group.put(*timed(range(8, 10), begin_ms))
                await until(lambda: all(each.state.timers.above_count == 2 for each in group.open.values()))
            await group.level()
            expected = [b"0", b"1", b"2", b"3", b"4", b"8", b"9"]
            assert [sorted(body for _, body in read_queue(each, "T", 0)) for each in group.open.values()] == [
                expected
            ] * 2

    run(scenario())


def test_progress_is_in_snapshots_from_which_a_node_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_topic(group)
            begin_ms = now_ms(group)
            await group.put(*timed(range(1), begin_ms + HOUR_MS), *timed(range(1, 4), begin_ms))
            async with delivering(group, lambda: now_ms(group) + 1_000, {}):
                await until(lambda: group.open["n0"].state.timers.above_count == 3)
                group.open["n0"].node.request_snapshot(is_forced=True)
                await until(lambda: group.open["n0"].node.snapshot is not None)
            await group.stop()
            await group.start()
            state = group.open["n0"].state
            assert (state.timers.floor, state.timers.above_count) == (0, 3)
            async with delivering(group, lambda: now_ms(group) + 2 * HOUR_MS, {}):
                await until(lambda: group.open["n0"].state.timers.floor == 4)
            await group.level()
            assert sorted(body for _, body in read_queue(group.open["n0"], "T", 0)) == [b"0", b"1", b"2", b"3"]

    run(scenario())


@asynccontextmanager
async def delivering_alone(replica, clock_ms):
    task = asyncio.create_task(TimerDelivery(replica, clock_ms, lambda _: None, lambda *_: None).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def numbers_in_a_group(tmp_path, count):
    async with running_group(configs_in(tmp_path, count=1)) as group:
        await group.start()
        replica = await group.leader()
        await until(lambda: replica.state.feature_level == FEATURE_LEVEL)
        async with delivering_alone(replica, lambda: FAR_MS):
            await put(replica, *timed([9], now_ms(group)))
            await until(lambda: replica.store.max_offset("T", 0) >= count)
        await group.level()
        return sorted(int(body) for _, body in read_queue(replica, "T", 0))


def test_group_continues_where_a_killed_standalone_broker_was(tmp_path):
    async def scenario():
        async with standalone(tmp_path / "n0") as replica:
            await replica.change(SetTopic(TopicConfig("T", 1, 1)))
            begin_ms = wall_clock_ms()
            await replica.begin_put([*timed([0], begin_ms + HOUR_MS), *timed([1, 2], 1)])
            async with delivering_alone(replica, lambda: replica.store.log.last_store_timestamp):
                await until(lambda: replica.state.timers.above_count == 2)

        assert await numbers_in_a_group(tmp_path, 4) == [0, 1, 2, 9]

    run(scenario())

"""Dead letters, moves and leases of a group's pop consumers, while its leaders change."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from cluster.pop import moving
from cluster.protocol.topic_config import GroupConfig
from cluster.state.commands import SetGroup
from dledger.errors import DLedgerError
from store.errors import StoreError
from tests.integration.cluster.delivery.test_pop_of_a_group import (
    COUNT,
    INVISIBLE_MS,
    change_leader,
    floors,
    ready,
    until_given,
)
from tests.integration.cluster.delivery.test_returns_of_a_group import records_of, same_states
from tests.support.brokers.replicated import configs_in, numbered, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
DEAD, RETRY = "%DLQ%G", "%RETRY%G_T"


async def put_all(group, **settings):
    await group.of_leader(lambda leader: leader.change(SetGroup(GroupConfig("G", **settings))))
    for queue_id in (0, 1):
        await group.put(*numbered(range(COUNT // 2), queue_id=queue_id))


async def consume(receivers, is_over):
    """Take messages, and acknowledge none."""
    while not is_over():
        with suppress(DLedgerError, StoreError):
            await receivers.receive(wait_s=0.2, count_max=32)


@pytest.mark.parametrize("seed", range(2))
def test_each_message_that_fails_is_one_dead_letter_while_leaders_change(tmp_path, seed):
    random = Random(seed)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            await put_all(group, retry_max_times=0)
            is_over = lambda: any(floors(each) == COUNT for each in group.open.values())  # noqa: E731
            consumers = [asyncio.create_task(consume(receivers, is_over)) for _ in range(4)]
            dead = lambda: max(each.store.max_offset(DEAD, 0) for each in group.open.values())  # noqa: E731
            for _ in range(4):
                before = dead()
                await until(lambda before=before: dead() > before or is_over())
                await change_leader(group, random)
            await until(is_over)
            await asyncio.gather(*consumers)
            await same_states(group)
            assert [floors(each) for each in group.open.values()] == [COUNT] * 3
            records = records_of(group, DEAD)
            assert len(records) == COUNT
            origins = {(each.properties["ORIGIN_MESSAGE_ID"], bytes(each.body)) for each in records}
            assert len(origins) == COUNT, "each once"
            assert all(each.reconsume_times >= 1 for each in records)

    run(scenario())


def test_messages_in_the_retry_topic_are_received_while_leaders_change(tmp_path, monkeypatch):
    monkeypatch.setattr(moving, "DISTANCE_MAX", 0)
    random = Random(0)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            await put_all(group, retry_max_times=-1)
            first = []
            await until_given(receivers, first, COUNT)
            retried = lambda: max(each.store.max_offset(RETRY, 0) for each in group.open.values())  # noqa: E731
            done = set()

            async def acknowledge_retries():
                while len(done) < COUNT:
                    with suppress(DLedgerError, StoreError):
                        given = await receivers.receive(wait_s=0.2, count_max=32)
                        given = [each for each in given if each.message.topic == RETRY]
                        if given:
                            await receivers.acknowledge(*given)
                            done.update(each.message.properties["ORIGIN_MESSAGE_ID"] for each in given)

            consumers = [asyncio.create_task(acknowledge_retries()) for _ in range(3)]
            for _ in range(3):
                before = len(done)
                # A quick machine may be done before the last change.
                await until(lambda before=before: len(done) > before or len(done) == COUNT)
                await change_leader(group, random)
            await asyncio.gather(*consumers)
            assert retried() >= COUNT
            await until(lambda: all(floors(each) == COUNT for each in group.open.values()))
            await same_states(group)

    run(scenario())


def test_messages_whose_lease_ends_before_its_take_is_applied_are_moved_once(tmp_path, monkeypatch):
    """A consumer asks in the iteration of the event loop in which the take of another one is applied."""
    monkeypatch.setattr(moving, "DISTANCE_MAX", 0)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            await group.put(*numbered(range(9)))
            await until_given(receivers, [], 9)
            leader, others = await group.leader(), []
            change = leader.change

            async def slow_change(command):
                applied = await change(command)
                if not others:
                    receivers.behind_ms[group.name_of(leader)] = -10 * INVISIBLE_MS
                    others.append(asyncio.create_task(receivers.receive()))
                return applied

            receivers.behind_ms[group.name_of(leader)] = -2 * INVISIBLE_MS
            monkeypatch.setattr(leader, "change", slow_change)
            await receivers.receive()
            await others[0]
            await until(lambda: records_of(group, RETRY))
            await same_states(group)
            places = [each.properties["ORIGIN_MESSAGE_ID"] for each in records_of(group, RETRY)]
            assert len(places) == len(set(places))

    run(scenario())


def test_time_without_a_leader_is_given_to_leases(tmp_path):
    """All nodes stop, and the clock of the next leader shows that a lease of 20 s has ended."""

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            await group.put(*numbered(range(3)))
            given = []
            while len(given) < 3:
                with suppress(DLedgerError, StoreError):
                    given += await receivers.receive(wait_s=1.0, invisible_ms=20_000)
            await group.stop()
            receivers.behind_ms = dict.fromkeys(group.configs, -25_000)
            await group.start()
            await group.leader()
            assert await insist(receivers) == [], "the consumer could not acknowledge meanwhile"
            assert {outcome.name for outcome in await receivers.acknowledge(given[0])} == {"ACKNOWLEDGED"}
            receivers.behind_ms = dict.fromkeys(group.configs, -80_000)
            assert len(await insist(receivers)) == 2

    run(scenario())


async def insist(receivers):
    """Receive once, from a leader that is not deposed meanwhile."""
    while True:
        with suppress(DLedgerError, StoreError):
            return await receivers.receive(invisible_ms=20_000)

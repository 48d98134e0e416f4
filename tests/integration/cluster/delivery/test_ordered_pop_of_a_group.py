"""Pop consumption in order of a group: each message group in its order, one message at a time, while leaders change."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

from cluster.pop.handles import decode_handle
from cluster.pop.ordered_choosing import key_of
from cluster.pop.receiving import Wanted
from cluster.protocol.topic_config import GroupConfig
from cluster.state.commands import SetGroup
from dledger.errors import DLedgerError
from store.errors import StoreError
from store.model.message import Message
from tests.integration.cluster.delivery.test_pop_of_a_group import (
    INVISIBLE_MS,
    Receivers,
    change_leader,
    floors,
    ready,
)
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import run, until

pytestmark = pytest.mark.slow
COUNT = 96
MESSAGE_GROUPS = 6


def messages_of(queue_id):
    """Message groups 0, 2, 4 are in queue 0, the others in queue 1."""
    numbers = range(queue_id, COUNT, 2)
    return [
        Message("T", b"%d" % each, queue_id=queue_id, properties={"__SHARDINGKEY": f"group-{each % MESSAGE_GROUPS}"})
        for each in numbers
    ]


async def ready_in_order(group) -> Receivers:
    receivers = await ready(group)
    await group.of_leader(lambda leader: leader.change(SetGroup(GroupConfig("G", is_orderly=True))))
    return receivers


async def receive(receivers, attempt, wait_s=0.2):
    receiver = await receivers.leader()
    wanted = Wanted("G", "T", (0, 1), "*", 4, INVISIBLE_MS, wait_s, attempt)
    return (await receiver.receive(wanted, lambda: None)).given


@pytest.mark.parametrize("seed", range(2))
def test_message_groups_keep_their_order_while_consumers_fail_answers_are_lost_and_leaders_change(tmp_path, seed):
    random = Random(seed)
    takes = defaultdict(list)

    async def consume(receivers, is_over, name):
        attempt = 0
        while not is_over():
            attempt += 1
            given = None
            while given is None and not is_over():
                with suppress(DLedgerError, StoreError):
                    given = await receive(receivers, key_of(f"{name}-{attempt}"))
                    if given and random.random() < 0.2:
                        # The answer is lost: the next one, of any leader, has the same messages of the same lease.
                        given = None
            for each in given or ():
                handle = decode_handle(each.handle)
                number = int(each.message.body)
                takes[number % MESSAGE_GROUPS].append((handle.serial, number, each.attempt))
            kept = [each for each in given or () if random.random() < 0.8]
            if kept:
                with suppress(DLedgerError, StoreError):
                    await receivers.acknowledge(*kept)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready_in_order(group)
            for queue_id in (0, 1):
                await group.put(*messages_of(queue_id))
            is_over = lambda: any(floors(each) == COUNT for each in group.open.values())  # noqa: E731
            consumers = [asyncio.create_task(consume(receivers, is_over, name)) for name in "abcd"]
            for _ in range(3):
                before = sum(map(len, takes.values()))
                await until(lambda before=before: sum(map(len, takes.values())) > before or is_over())
                await change_leader(group, random)
            await until(is_over)
            await asyncio.gather(*consumers)
            await group.level()
            assert [each.state.pop.ordered_count for each in group.open.values()] == [0] * 3
            assert len({b"".join(each.state.snapshot_save()) for each in group.open.values()}) == 1

    run(scenario())
    assert sorted({number for found in takes.values() for _, number, _ in found}) == list(range(COUNT))
    for found in takes.values():
        # In the order of the takes; a serial is the time of a take, or little more.
        in_time = sorted(set(found))
        assert [number for _, number, _ in in_time] == sorted(number for _, number, _ in in_time), "in order"
        for (earlier, first, _), (later, second, _) in pairwise(in_time):
            assert second > first or later - earlier >= INVISIBLE_MS - 50, "one at a time"


def test_repeated_attempt_gets_its_messages_from_the_next_leader(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready_in_order(group)
            await group.put(*messages_of(0))
            receiver = await receivers.leader()
            wanted = Wanted("G", "T", (0, 1), "*", 4, 60_000, 5.0, key_of("one"))
            first = (await receiver.receive(wanted, lambda: None)).given
            assert [each.message.body for each in first] == [b"0", b"2", b"4"]
            await group.stop(group.name_of(await group.leader()))
            again = None
            while again is None:
                with suppress(DLedgerError, StoreError):
                    again = (await (await receivers.leader()).receive(wanted, lambda: None)).given
            assert [(each.message.body, each.handle, each.attempt) for each in again] == [
                (each.message.body, each.handle, 1) for each in first
            ]
            other = wanted._replace(attempt=key_of("two"), wait_s=0.0)
            assert not (await (await receivers.leader()).receive(other, lambda: None)).given

    run(scenario())

"""Messages that consumers of a Raft group's broker return: one copy of each, although leaders change in between."""

import asyncio
from collections import Counter
from random import Random

import pytest

from cluster.api.waiting.return_calls import ReturnCalls
from cluster.broker.core import BrokerCore, BrokerOptions
from cluster.broker.metrics import BrokerMetrics
from cluster.protocol.errors import RequestFailed, failure_of
from cluster.protocol.topic_config import GroupConfig
from cluster.replica import opening
from cluster.state.commands import SetGroup
from cluster.state.features import FEATURE_LEVEL
from cluster.v1 import broker_pb2 as pb
from dledger.errors import DLedgerError
from store.errors import StoreError
from store.model.message import Message
from store.model.topics import SCHEDULE_TOPIC
from tests.integration.cluster.delivery.test_delays_of_a_group import delivering, with_topic
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import PATIENCE_S, run, until

pytestmark = pytest.mark.slow
RETRY, DEAD = "%RETRY%g", "%DLQ%g"
HOURS_AHEAD_MS = 3 * 3_600_000


class Returns:
    """The calls of consumers, by which messages are returned at the leader of the moment."""

    def __init__(self, group):
        self._group = group
        self._calls = {}

    def _of(self, replica):
        if replica not in self._calls:
            core = BrokerCore(replica, BrokerOptions("broker-a"), BrokerMetrics(None, "broker-a", "n"))
            self._calls[replica] = ReturnCalls(core)
        return self._calls[replica]

    async def once(self, record, **fields):
        place = {"queue_id": record.queue_id, "queue_offset": record.queue_offset}
        request = pb.ReturnMessageRequest(
            group="g", topic=record.topic, physical_offset=record.physical_offset, **place, **fields
        )
        return await self._of(await self._group.leader()).return_message(request)

    async def insist(self, record, **fields):
        """Return a message as a client does: repeat the request while its outcome is unknown, or no node leads."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await self.once(record, **fields)
            except (DLedgerError, StoreError) as error:
                is_late = asyncio.get_running_loop().time() >= deadline
                if is_late or not (failure_of(error).is_worth_repeating or is_unknown(error)):
                    raise
            await asyncio.sleep(0.005)


def is_unknown(error):
    return failure_of(error).certainty.name == "UNKNOWN"


def records_of(group, topic):
    """Return the records of a topic on the node that has most of them."""
    stores = [each.store for each in group.open.values()]
    store = max(stores, key=lambda each: each.max_offset(topic, 0))
    return [store.get(topic, 0, offset).messages[0] for offset in range(store.max_offset(topic, 0))]


async def change_leader(group, random):
    leader = await group.leader()
    name = group.name_of(leader)
    if random.random() < 0.5:
        await group.stop(name)
        await group.leader()
        await group.start(name)
    else:
        await leader.node.transfer_leadership(random.choice([each for each in group.open if each != name]))


async def same_states(group):
    await group.level()
    states = {b"".join(each.state.snapshot_save()) for each in group.open.values()}
    assert len(states) == 1
    assert {each.state.unfit_effects_count for each in group.open.values()} == {0}


async def with_group(group):
    await with_topic(group)
    await group.of_leader(lambda leader: leader.change(SetGroup(GroupConfig("g"))))


def ahead(group):
    return lambda: int(group._clocks.wall_s * 1000) + HOURS_AHEAD_MS


@pytest.mark.parametrize("seed", range(2))
def test_message_fails_17_times_while_leaders_change_and_is_one_dead_letter(tmp_path, seed):
    random = Random(seed)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_group(group)
            returns = Returns(group)
            await group.put(Message("T", b"poison", 0, {"KEYS": "k"}))
            await until(lambda: records_of(group, "T"))
            record, deliveries, levels = records_of(group, "T")[0], 1, []
            async with delivering(group, ahead(group)):
                while True:
                    changing = asyncio.create_task(change_leader(group, random)) if deliveries % 4 == 0 else None
                    answers = await asyncio.gather(*(returns.insist(record) for _ in range(3)))
                    if changing is not None:
                        await changing
                    answers.append(await returns.insist(record))
                    assert {each.topic for each in answers} == {DEAD if deliveries == 17 else RETRY}
                    assert answers[-1].is_repeated
                    levels.append(max(each.delay_level for each in answers))
                    if answers[0].is_dead_letter:
                        break
                    await until(lambda count=deliveries: len(records_of(group, RETRY)) >= count)
                    record = records_of(group, RETRY)[deliveries - 1]
                    assert (record.reconsume_times, record.body) == (deliveries, b"poison")
                    deliveries += 1
            await same_states(group)
            # Where only repeated requests were answered, no answer has the level.
            assert all(level in (0, 3 + number) for number, level in enumerate(levels[:16])), levels
            assert deliveries == 17
            assert [each.reconsume_times for each in records_of(group, RETRY)] == list(range(1, 17))
            (dead,) = records_of(group, DEAD)
            assert (dead.reconsume_times, dead.properties["DLQ_ORIGIN_TOPIC"]) == (17, "T")
            for each in group.open.values():
                assert (each.store.max_offset(RETRY, 0), each.store.max_offset(DEAD, 0)) == (16, 1)

    run(scenario())


@pytest.mark.parametrize("seed", range(2))
def test_many_messages_are_copied_once_while_leaders_change(tmp_path, seed):
    random = Random(seed)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_group(group)
            returns, count = Returns(group), 60
            await group.put(*(Message("T", b"%d" % number) for number in range(count)))
            await until(lambda: len(records_of(group, "T")) == count)
            records = records_of(group, "T")

            async def consume(record):
                await asyncio.sleep(random.random())
                await asyncio.gather(*(returns.insist(record, delay_level=-1) for _ in range(2)))

            consuming = [asyncio.create_task(consume(each)) for each in records]
            for _ in range(3):
                await change_leader(group, random)
            await asyncio.gather(*consuming)
            await same_states(group)
            assert Counter(int(each.body) for each in records_of(group, DEAD)) == Counter(range(count))

    run(scenario())


def test_lost_answer_is_answered_by_the_next_leader_without_a_second_copy(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await with_group(group)
            returns = Returns(group)
            await group.put(Message("T", b"x"))
            await until(lambda: records_of(group, "T"))
            (record,) = records_of(group, "T")
            first = await returns.insist(record)
            await group.stop(group.name_of(await group.leader()))
            again = await returns.insist(record)
            assert ((first.topic, first.is_repeated), (again.topic, again.is_repeated)) == (
                (RETRY, False),
                (RETRY, True),
            )
            await same_states(group)
            assert {each.store.max_offset(SCHEDULE_TOPIC, 2) for each in group.open.values()} == {1}

    run(scenario())


def test_window_is_in_snapshots_from_which_a_node_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await with_group(group)
            returns = Returns(group)
            await group.put(Message("T", b"x"))
            await until(lambda: records_of(group, "T"))
            (record,) = records_of(group, "T")
            await returns.insist(record)
            group.open["n0"].node.request_snapshot(is_forced=True)
            await until(lambda: group.open["n0"].node.snapshot is not None)
            await group.stop()
            await group.start()
            assert (await Returns(group).insist(records_of(group, "T")[0])).is_repeated

    run(scenario())


def test_message_is_returned_only_when_the_last_member_knows_the_level(tmp_path, monkeypatch):
    """As in a rolling upgrade from the version with delay levels."""

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            monkeypatch.setattr(opening, "FEATURE_LEVEL", 1)
            await group.start("n0")
            monkeypatch.setattr(opening, "FEATURE_LEVEL", FEATURE_LEVEL)
            await group.start("n1", "n2")
            await group.of_leader(lambda leader: leader.change(SetGroup(GroupConfig("g"))))
            await group.put(Message("T", b"x"))
            await until(lambda: all(each.state.feature_level == 1 for each in group.open.values()))
            returns = Returns(group)
            await until(lambda: records_of(group, "T"))
            with pytest.raises(RequestFailed, match="all members of the group") as refusal:
                await returns.insist(records_of(group, "T")[0])
            assert refusal.value.name == "UNSUPPORTED"
            await group.stop("n0")
            await group.start("n0")
            await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))

    run(scenario())

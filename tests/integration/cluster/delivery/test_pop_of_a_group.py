"""Pop consumption of a group: acknowledgements and leases hold when leaders change, nodes stop and clocks differ."""

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from random import Random

import grpc
import pytest

from cluster.broker.core import wall_clock_ms
from cluster.broker.metrics import BrokerMetrics
from cluster.pop.handles import decode_handle
from cluster.pop.receiving import PopReceiver, Wanted
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.commands import SetGroup, SetTopic
from cluster.state.features import FEATURE_LEVEL
from cluster.state.pop.ops import AckOutcome
from cluster.v1 import broker_pb2 as pb
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from dledger.errors import DLedgerError
from store.errors import StoreError
from tests.support.brokers.group import BrokerGroup
from tests.support.brokers.replicated import configs_in, numbered, running_group
from tests.support.waiting import PATIENCE_S, run, until, wait_until

pytestmark = pytest.mark.slow
COUNT = 200
INVISIBLE_MS = 1_000


class Receivers:
    """The receiver of each open node, as its broker has one; `behind_ms`: of the clock of each node."""

    def __init__(self, group):
        self.group = group
        self.behind_ms = {}
        self._of = {}

    async def leader(self):
        replica = await self.group.leader()
        name = self.group.name_of(replica)
        if replica not in self._of:
            counts = BrokerMetrics(None, "broker-a", name).counts
            clock = lambda: wall_clock_ms() - self.behind_ms.get(name, 0)  # noqa: E731
            self._of[replica] = PopReceiver(replica, "broker-a", clock, counts)
        return self._of[replica]

    async def receive(self, wait_s=0.0, count_max=8, invisible_ms=INVISIBLE_MS, expression="*"):
        receiver = await self.leader()
        wanted = Wanted("G", "T", (0, 1), expression, count_max, invisible_ms, wait_s)
        return (await receiver.receive(wanted, lambda: None)).given

    async def acknowledge(self, *given):
        receiver = await self.leader()
        return await receiver.acknowledge("G", "T", [decode_handle(each.handle) for each in given])


async def ready(group):
    await group.start()
    await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("T", 2, 2))))
    await group.of_leader(lambda leader: leader.change(SetGroup(GroupConfig("G"))))
    await until(lambda: all(each.state.feature_level == FEATURE_LEVEL for each in group.open.values()))
    return Receivers(group)


async def change_leader(group, random):
    leader = await group.leader()
    name = group.name_of(leader)
    if random.random() < 0.5:
        await group.stop(name)
        await group.leader()
        await group.start(name)
    else:
        await leader.node.transfer_leadership(random.choice([n for n in group.open if n != name]))


def floors(replica):
    kept = [replica.state.offset("G", "T", queue_id) for queue_id in range(2)]
    return sum(each.offset for each in kept if each is not None)


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_messages_never_come_again_and_others_come_after_their_time_while_leaders_change(tmp_path, seed):
    """Consumers that lose some of their messages, and four changes of the leader; every take is recorded."""
    random = Random(seed)
    takes, acknowledged = defaultdict(list), {}

    async def consume(receivers, is_over):
        while not is_over():
            with suppress(DLedgerError, StoreError):
                given = await receivers.receive(wait_s=0.2)
                for each in given:
                    handle = decode_handle(each.handle)
                    takes[handle.queue_id, handle.offset].append((handle.serial, each.attempt))
                kept = [each for each in given if random.random() < 0.7]
                if kept:
                    for each, outcome in zip(kept, await receivers.acknowledge(*kept), strict=True):
                        handle = decode_handle(each.handle)
                        if outcome is AckOutcome.ACKNOWLEDGED:
                            acknowledged[handle.queue_id, handle.offset] = handle.serial

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            for queue_id in (0, 1):
                await group.put(*numbered(range(COUNT // 2), queue_id=queue_id))
            is_over = lambda: any(floors(each) == COUNT for each in group.open.values())  # noqa: E731
            consumers = [asyncio.create_task(consume(receivers, is_over)) for _ in range(4)]
            for _ in range(4):
                before = len(takes)
                await until(lambda before=before: len(takes) > before or is_over())
                await change_leader(group, random)
            await until(is_over)
            await asyncio.gather(*consumers)
            await group.level()
            assert [floors(each) for each in group.open.values()] == [COUNT] * 3
            assert [each.state.pop.count for each in group.open.values()] == [0] * 3
            # P7: equal state on all replicas.
            assert len({b"".join(each.state.snapshot_save()) for each in group.open.values()}) == 1

    run(scenario())
    for place, serial in acknowledged.items():
        assert serial == max(each for each, _ in takes[place]), "P1: given after its acknowledgement"
    for found in takes.values():
        serials = sorted(found)
        # A serial is the time of the take, or little more: takes of one millisecond differ.
        assert all(later - earlier >= INVISIBLE_MS - 50 for (earlier, _), (later, _) in pairwise(serials)), "P2"
        assert [attempt for _, attempt in serials] == sorted(attempt for _, attempt in found), "P6"


def test_new_leader_whose_clock_is_an_hour_slow_gives_messages_in_time(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            await group.put(*numbered(range(3)))
            given = []
            await until_given(receivers, given, 3)
            name = group.name_of(await group.leader())
            receivers.behind_ms = {each: 3_600_000 for each in group.open if each != name}
            await group.stop(name)
            assert set(await receivers.acknowledge(given[0])) == {AckOutcome.ACKNOWLEDGED}
            again = []
            await until_given(receivers, again, 2)
            assert [each.attempt for each in again] == [2, 2]

    run(scenario())


async def until_given(receivers, given, count):
    deadline = time.monotonic() + PATIENCE_S
    while len(given) < count:
        assert time.monotonic() < deadline
        with suppress(DLedgerError, StoreError):
            given += await receivers.receive(wait_s=1.0)


def test_take_of_a_deposed_leader_gives_nothing_that_the_new_one_gave(tmp_path):
    """Both have chosen the same messages; the old leader's entry is refused or comes second."""

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            receivers = await ready(group)
            await group.put(*numbered(range(4)))
            await group.level()
            old = await receivers.leader()
            wanted = Wanted("G", "T", (0,), "*", 4, 60_000, 0.0)
            chosen = await old._choose(wanted)
            assert list(chosen[0].messages) == [0, 1, 2, 3]
            name = group.name_of(await group.leader())
            other = next(each for each in group.open if each != name)
            await group.lead(other)
            first = []
            await until_given(receivers, first, 4)
            with pytest.raises(DLedgerError):
                await old._taken(wanted, chosen)
            await group.lead(name)
            chosen = await old._choose(wanted)
            assert not any(each.messages for each in chosen), "the old leader knows the leases of the new one"
            assert not old._chooser._reserved

    run(scenario())


def test_snapshot_has_leases_with_which_a_node_continues(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path, count=1)) as group:
            receivers = await ready(group)
            await group.put(*numbered(range(3)))
            await group.level()
            given = await receivers.receive(invisible_ms=60_000)
            group.open["n0"].node.request_snapshot(is_forced=True)
            await until(lambda: group.open["n0"].node.snapshot is not None)
            await group.stop()
            await group.start()
            assert group.open["n0"].state.pop.count == 3, "from the snapshot, before anything else is applied"
            await group.leader()
            assert not await receivers.receive()
            assert await receivers.acknowledge(*given) == [AckOutcome.ACKNOWLEDGED] * 3

    run(scenario())


def test_kill_of_the_leader_keeps_acknowledgements_and_leases(tmp_path):
    """Three processes; SIGKILL of the leader while messages are invisible."""
    with BrokerGroup(tmp_path) as group:
        channels = {each: grpc.insecure_channel(group.cluster.endpoint_of(each)) for each in group.ids}

        def call(method, request):
            """Call the leader until it answers without a refusal that names a change of leaders."""

            def answer():
                stub = BrokerServiceStub(channels[group.leader()[0]])
                try:
                    found = getattr(stub, method)(request, timeout=PATIENCE_S)
                except grpc.RpcError:
                    return None
                return found if found.answer.code != 14 else None

            found = wait_until(answer, method)
            assert found.answer.code == 0, found.answer
            return found

        def receive(**fields):
            return call("Receive", pb.ReceiveRequest(group="G", topic="T", **fields))

        call("SetTopic", pb.SetTopicRequest(topic=pb.Topic(name="T", read_queues=1, write_queues=1, permission=6)))
        call("Put", pb.PutRequest(topic="T", bodies=[b"%d" % number for number in range(20)]))
        wait_until(lambda: b"feature_level" in b"".join(group.cluster.log_of(e).read_bytes() for e in group.ids))
        first = receive(max_messages=15, invisible_ms=3_000)
        assert len(first.handles) == 15
        done = call("Acknowledge", pb.AcknowledgeRequest(group="G", topic="T", handles=first.handles[:5]))
        assert set(done.outcomes) == {pb.ACK_OUTCOME_ACKNOWLEDGED}
        group.kill(group.leader()[0])
        rest = receive(max_messages=32, invisible_ms=60_000, wait_ms=10_000)
        bodies, attempts = list(rest.columns.bodies), list(rest.attempts)
        while len(bodies) < 15:
            more = receive(max_messages=32, invisible_ms=60_000, wait_ms=10_000)
            bodies += more.columns.bodies
            attempts += more.attempts
        assert sorted(map(int, bodies)) == list(range(5, 20)), "each once, and nothing that was acknowledged"
        assert {body: attempt for body, attempt in zip(bodies, attempts, strict=True) if attempt > 1} == {
            b"%d" % number: 2 for number in range(5, 15)
        }
        stale = call("Acknowledge", pb.AcknowledgeRequest(group="G", topic="T", handles=first.handles))
        assert list(stale.outcomes) == [pb.ACK_OUTCOME_ALREADY_DONE] * 5 + [pb.ACK_OUTCOME_STALE] * 10
        for channel in channels.values():
            channel.close()

"""Three nodes of a broker in one process, over loopback: puts, reads, state changes, across a failover."""

import asyncio
import time

import pytest

from cluster.api.put_calls import PutCalls
from cluster.broker.core import BrokerCore, BrokerOptions
from cluster.broker.leader_contact import LeaderContact
from cluster.broker.metrics import BrokerMetrics
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.port import ReadMode
from cluster.state.commands import SetTopic
from cluster.state.verdicts import CommandVerdict
from cluster.v1.broker_pb2 import PutRequest
from store.maintenance import background
from store.model.message import Host
from tests.support.brokers.replicated import configs_in, numbered, put, read_queue, running_group, units_of
from tests.support.waiting import PATIENCE_S, run, until

LINEARIZABLE, LOCAL, LEASE = (
    ReadMode.LINEARIZABLE,
    ReadMode.LOCAL,
    ReadMode.LEASE,
)


@pytest.mark.slow
def test_messages_and_state_survive_a_failover_on_all_nodes_alike(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                applied = await leader.change(SetTopic(TopicConfig("T", 4, 4)))
                assert applied.verdict is CommandVerdict.CHANGED
            leader, places = await group.put(*numbered(range(100)))
            assert [place.queue_offset for place in places] == list(range(100))
            first = group.name_of(leader)
            await group.stop(first)
            _, (place,) = await group.put(*numbered([100]))
            assert place.queue_offset == 100
            await group.start(first)
            await group.level()
            units = [units_of(each) for each in group.open.values()]
            assert units[0] == units[1] == units[2]
            for each in group.open.values():
                assert read_queue(each) == [(number, b"%d" % number) for number in range(101)]
                assert each.state.topics["T"] == TopicConfig("T", 4, 4)
                found = each.store.query_by_key("T", "key-100")
                assert [message.physical_offset for message in found.messages] == [place.physical_offset]
                assert each.store.log.find(places[7].physical_offset).body.startswith(b"7 ")

    run(scenario())


@pytest.mark.slow
def test_acknowledged_messages_are_read_on_every_node_after_a_confirmation(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                for number in range(20):
                    await put(leader, *numbered([number]))
                    await leader.change(SetTopic(TopicConfig("T", number + 1, number + 1)))
                    for each in group.open.values():
                        await each.confirm(LEASE if number % 2 else LINEARIZABLE)
                        assert each.store.max_offset("T", 0) == number + 1
                        assert each.state.topics["T"].write_queues == number + 1
                await leader.confirm(LOCAL)

    run(scenario())


@pytest.mark.slow
def test_dispatch_is_not_delayed_for_waiting_readers(tmp_path, monkeypatch):
    """Only waiting callers trigger dispatch here: readers, confirmed reads, and a new leader."""
    monkeypatch.setattr(background, "_DISPATCH_PACE_S", 3600.0)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                await put(leader, *numbered(range(10)))
                assert leader.store.max_offset("T", 0) == 0
                for each in group.open.values():
                    assert await each.wait("T", 0, 9, PATIENCE_S, "*")
                await put(leader, *numbered(range(10, 20)))
                for each in group.open.values():
                    await each.confirm(LINEARIZABLE)
                    assert each.store.max_offset("T", 0) == 20
                (last,) = await put(leader, *numbered([20]))
            await group.stop(group.name_of(leader))
            _, (place,) = await group.put(*numbered([21]))
            assert (last.queue_offset, place.queue_offset) == (20, 21)

    run(scenario())


@pytest.mark.slow
def test_puts_are_dispatched_on_all_nodes_without_a_waiting_reader(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                for number in range(3):
                    await put(leader, *numbered([number]))
                    at_all = lambda end=number + 1: all(  # noqa: E731
                        each.store.max_offset("T", 0) == end for each in group.open.values()
                    )
                    await until(at_all)

    run(scenario())


@pytest.mark.slow
def test_follower_refuses_puts_and_changes_and_names_the_leader(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                for follower in await group.followers():
                    await until(lambda follower=follower: follower.status().leader_address)
                    status = follower.status()
                    assert (status.role, status.is_serving_puts) == ("FOLLOWER", False)
                    assert status.leader_address == str(leader.node.config.client_address)
                    with pytest.raises(RequestFailed) as refused:
                        follower.serving_puts().begin_put(numbered([1]))
                    assert refused.value.reason is Reason.NOT_LEADER
                    with pytest.raises(RequestFailed) as refused:
                        await follower.change(SetTopic(TopicConfig("T", 1, 1)))
                    assert refused.value.reason is Reason.NOT_LEADER
                assert leader.readiness().is_ready

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("is_created", [False, True], ids=["refused", "created by a put"])
def test_put_to_a_topic_that_a_node_does_not_know_is_sent_to_the_leader_that_may_know_it(tmp_path, is_created):
    def putting(replica):
        options = BrokerOptions("broker-a", auto_create_topic_enable=is_created)
        calls = PutCalls(BrokerCore(replica, options, BrokerMetrics(None, "broker-a", "n0")))
        request = PutRequest(topic="new", queue_ids=[0], bodies=[b"x"])
        return calls.put(request, Host(bytes(4), 1))

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                for follower in await group.followers():
                    await until(lambda follower=follower: follower.status().leader_address)
                    answer = (await putting(follower)).answer
                    assert (answer.reason, answer.leader.address) == ("NOT_LEADER", leader.status().leader_address)
                leader._leadership.invalidate_offsets()
                answer = (await putting(leader)).answer
                assert (answer.reason, "new" in leader.state.topics) == ("LEADER_NOT_READY", False)
                await group.leader()
                answer = (await putting(leader)).answer
                assert answer.reason == ("" if is_created else "UNKNOWN_TOPIC")

    run(scenario())


@pytest.mark.slow
def test_contact_with_the_leader_is_reported_by_all_nodes_and_lost_without_a_majority(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            contacts = {name: LeaderContact(each, time.monotonic) for name, each in group.open.items()}
            await group.leader()
            await until(lambda: all(contact.has_caught_up for contact in contacts.values()))
            await until(lambda: not any(contact.silent_s for contact in contacts.values()))
            last, *others = group.open
            await group.stop(*others)
            await until(lambda: contacts[last].silent_s > 0)
            assert not group.open[last].has_applied_term

    run(scenario())


@pytest.mark.slow
def test_waiting_readers_are_woken_by_messages_and_by_lost_leadership(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as leader:
                waiting = [asyncio.create_task(each.wait("T", 0, 0, PATIENCE_S, None)) for each in group.open.values()]
                await asyncio.sleep(0)
                await put(leader, *numbered([0]))
                assert await asyncio.gather(*waiting) == [True] * 3
                changes = []
                leader.when_status_changes(lambda: changes.append(leader.status().is_serving_puts))
                waiting = asyncio.create_task(leader.wait("T", 0, 1, PATIENCE_S, None))
                await asyncio.sleep(0)
            names = [name for name in group.open if group.open[name] is not leader]
            await group.stop(*names)
            assert await waiting
            assert not leader.status().is_leading
            assert changes[-1] is False

    run(scenario())

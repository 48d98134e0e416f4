"""Held pulls: at the leader only some of each address, so that its places are left for others."""

import asyncio
from types import SimpleNamespace

import pytest

from cluster.remoting.clients import ClientTable
from cluster.remoting.command import RemotingCode, Request
from cluster.remoting.consumers import pulls
from cluster.remoting.consumers.pulls import Pulls
from cluster.v1 import broker_pb2 as pb
from store.errors import TooManyWaiters
from tests.support.waiting import in_a_loop, until

FIELDS = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "subscription": "*",
    "suspendTimeoutMillis": "20000",
}
NO_RESETS = SimpleNamespace(next_offset=lambda *_: None, is_behind=lambda *_: False)
FIRST = SimpleNamespace(next_id=lambda *, is_stopping: 7 if is_stopping else 0)
NONE = pb.GetResponse(status=pb.GET_STATUS_NO_MESSAGE_IN_QUEUE)
FOUND = pb.GetResponse(status=pb.GET_STATUS_FOUND, next_offset=1)


class Leader:
    """Holds the gets that wait; `reads` has the others."""

    def __init__(self):
        self.held, self.reads, self.end = 0, 0, 0

    async def call(self, _method, _request, _limit_s, wait_s=0.0):
        if wait_s:
            self.held += 1
            await asyncio.Event().wait()
        self.reads += 1
        return FOUND if self.end else NONE


class Store:
    """A node's queue without messages; `waiters` has those that wait, `looks` the number of looks at its end."""

    def __init__(self, leader):
        self.leader, self.waiters, self.looks, self.failure = leader, {}, 0, None

    def max_offset(self, *_queue):
        self.looks += 1
        return self.leader.end

    def wait(self, _topic, _queue_id, _offset, notify, expression):
        if self.failure is not None:
            raise self.failure
        waiter = SimpleNamespace(expression=expression)
        waiter.cancel = lambda: self.waiters.pop(id(waiter))
        self.waiters[id(waiter)] = notify
        return waiter

    def dispatch(self):
        self.leader.end = 1
        for notify in list(self.waiters.values()):
            notify()


def pulls_of(leader, store):
    core = SimpleNamespace(replica=SimpleNamespace(store=store))
    return Pulls(core, leader, ClientTable(), None, NO_RESETS, nodes=FIRST)


def client(host):
    return SimpleNamespace(address=f"{host}:4000")


@in_a_loop
async def test_one_address_holds_its_share_at_the_leader_and_what_it_has_beyond_is_held_at_its_node(monkeypatch):
    monkeypatch.setattr(pulls, "HELD_MAX", 8)
    monkeypatch.setattr(pulls, "LOOK_S", 0.001)
    monkeypatch.setattr(pulls, "WAITERS_MAX", 0)
    leader = Leader()
    store = Store(leader)
    held = pulls_of(leader, store)

    def pull(host):
        return asyncio.create_task(held.pull(Request(11, FIELDS), client(host)))

    greedy = [pull("10.0.0.1") for _ in range(20)]
    await until(lambda: leader.held == 4 and store.looks > 100)
    # A look costs the leader nothing.
    assert leader.reads == 16
    other = pull("10.0.0.2")
    await until(lambda: leader.held == 5)
    leader.end = 1
    answers = await asyncio.gather(*greedy[4:])
    assert {answer.code for answer in answers} == {RemotingCode.SUCCESS}
    held.stop()
    await asyncio.gather(other, *greedy[:4])
    assert held._held.used == 0


@in_a_loop
async def test_a_flood_of_pulls_of_one_address_has_few_reads_at_the_leader_and_another_one_is_read_at_once(monkeypatch):
    monkeypatch.setattr(pulls, "READS_MAX", 3)
    reading, gate = [], asyncio.Event()

    class Slow:
        async def call(self, _method, request, _limit_s, _wait_s=0.0):
            reading.append(request.queue_id)
            await gate.wait()
            return FOUND

    held = Pulls(None, Slow(), ClientTable(), None, NO_RESETS, nodes=FIRST)
    fields = {**FIELDS, "sysFlag": "4"}
    flood = [asyncio.create_task(held.pull(Request(11, fields), client("10.0.0.1"))) for _ in range(50)]
    other = asyncio.create_task(held.pull(Request(11, {**fields, "queueId": "7"}), client("10.0.0.2")))
    await until(lambda: 7 in reading)
    assert reading == [0, 0, 0, 7]
    gate.set()
    await asyncio.gather(other, *flood)
    assert len(reading) == 51


@pytest.mark.parametrize("is_stopped", [False, True], ids=["message", "stop"])
@in_a_loop
async def test_pulls_held_at_a_node_are_answered_when_it_has_a_message_or_stops_and_do_not_look_before(
    monkeypatch, is_stopped
):
    monkeypatch.setattr(pulls, "HELD_MAX", 1)
    monkeypatch.setattr(pulls, "LOOK_S", 3_600.0)
    leader = Leader()
    store = Store(leader)
    held = pulls_of(leader, store)
    waiting = [asyncio.create_task(held.pull(Request(11, FIELDS), client("10.0.0.1"))) for _ in range(6)]
    await until(lambda: len(store.waiters) == 5)
    if is_stopped:
        held.stop()
    else:
        store.dispatch()
    answers = await asyncio.gather(*waiting[1:])
    expected = RemotingCode.PULL_NOT_FOUND if is_stopped else RemotingCode.SUCCESS
    assert {answer.code for answer in answers} == {expected}
    # One that stops names another node.
    assert {answer.fields["suggestWhichBrokerId"] for answer in answers} == {"7" if is_stopped else "0"}
    # Each has looked once before it waited, and at most once after that.
    assert store.looks <= 10
    assert not store.waiters
    held.stop()
    await asyncio.gather(*waiting)
    assert (held._waiters.used, held._holds._alarms) == (0, set())


@in_a_loop
async def test_one_address_leaves_places_of_a_node_to_others_and_pulls_without_a_place_look(monkeypatch):
    for name, value in (("HELD_MAX", 0), ("WAITERS_MAX", 8), ("LOOK_S", 0.001)):
        monkeypatch.setattr(pulls, name, value)
    leader = Leader()
    store = Store(leader)
    held = pulls_of(leader, store)

    def pull(host):
        return asyncio.create_task(held.pull(Request(11, FIELDS), client(host)))

    greedy = [pull("10.0.0.1") for _ in range(20)]
    await until(lambda: len(store.waiters) == 4 and leader.reads == 20)
    others = [pull("10.0.0.2")]
    await until(lambda: len(store.waiters) == 5)
    store.failure = TooManyWaiters(0)
    others.append(pull("10.0.0.3"))
    await until(lambda: held._waiters.used == 6)
    assert len(store.waiters) == 5
    store.dispatch()
    answers = await asyncio.gather(*greedy, *others)
    assert {answer.code for answer in answers} == {RemotingCode.SUCCESS}
    assert (held._waiters.used, store.waiters) == (0, {})

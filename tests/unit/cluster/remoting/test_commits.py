"""Commits on their way: what reads an offset, and the end of a consumer, wait for them."""

import asyncio
from types import SimpleNamespace

from cluster.remoting.clients import ClientTable
from cluster.remoting.command import Request
from cluster.remoting.consumers import commits
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.offsets import Offsets
from cluster.remoting.consumers.registrations import Registrations
from cluster.v1 import broker_pb2 as pb
from tests.support.waiting import in_a_loop, until

PLACE = {"consumerGroup": "g", "topic": "t", "queueId": "0"}


class Client:
    """A connection that signs nothing."""

    address, caller = "10.0.0.1:4000", None


CLIENT = Client()


class Leader:
    """Stores an offset when `gate` is open, and answers at once what it has."""

    def __init__(self):
        self.gate, self.offset, self.waiting = asyncio.Event(), -1, 0

    async def call(self, _method, request, _limit_s):
        if isinstance(request, pb.CommitOffsetRequest):
            self.waiting += 1
            await self.gate.wait()
            self.offset = request.offsets[0]
            return pb.CommitOffsetResponse()
        assert isinstance(request, pb.FetchOffsetRequest)
        return pb.FetchOffsetResponse(offsets=[self.offset])


def parts():
    leader = Leader()
    pending = PendingCommits(leader)
    core = SimpleNamespace(replica=SimpleNamespace(state=SimpleNamespace(offset=lambda *_: None)))
    resets = SimpleNamespace(is_behind=lambda *_: False)
    return leader, pending, Offsets(core, leader, resets, pending), core


def commit(offsets, offset=7):
    return asyncio.create_task(
        offsets.update(Request(15, PLACE | {"commitOffset": str(offset)}, is_oneway=True), CLIENT)
    )


@in_a_loop
async def test_a_question_for_an_offset_does_not_overtake_a_commit_even_if_its_connection_has_ended():
    leader, _, offsets, _ = parts()
    committing = commit(offsets)
    await until(lambda: leader.waiting == 1)
    committing.cancel()
    await asyncio.wait([committing])
    asked = asyncio.create_task(offsets.query(Request(14, PLACE), CLIENT))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    leader.gate.set()
    assert (await asked).fields == {"offset": "7"}


@in_a_loop
async def test_a_consumer_leaves_after_its_commits():
    leader, pending, offsets, core = parts()
    callers = SimpleNamespace(user_of=lambda _: "")
    registrations = Registrations(core, leader, ClientTable(), callers, pending, lambda: 0)
    committing = commit(offsets)
    await until(lambda: leader.waiting == 1)
    fields = {"clientID": "c", "consumerGroup": "g"}
    left = asyncio.create_task(registrations.unregister(Request(35, fields), CLIENT))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not left.done()
    leader.gate.set()
    await asyncio.gather(left, committing)


@in_a_loop
async def test_only_commits_of_the_same_group_and_queue_are_waited_for_and_not_for_longer_than_a_client_waits(
    monkeypatch,
):
    leader, pending, offsets, _ = parts()
    committing = commit(offsets)
    await until(lambda: leader.waiting == 1)
    for other in (PLACE | {"consumerGroup": "other"}, PLACE | {"queueId": "1"}, PLACE | {"topic": "other"}):
        leader.offset = 3
        assert (await offsets.query(Request(14, other), CLIENT)).fields == {"offset": "3"}
    monkeypatch.setattr(commits, "SETTLE_S", 0.001)
    assert (await offsets.query(Request(14, PLACE), CLIENT)).fields == {"offset": "3"}
    await pending.stop()
    await asyncio.wait([committing])


@in_a_loop
async def test_commits_on_their_way_are_bounded(monkeypatch):
    monkeypatch.setattr(commits, "PENDING_MAX", 3)
    leader, pending, offsets, _ = parts()
    committing = [commit(offsets) for _ in range(10)]
    await until(lambda: sum(each.done() for each in committing) == 7)
    assert leader.waiting == 3
    await pending.stop()
    await asyncio.wait(committing)

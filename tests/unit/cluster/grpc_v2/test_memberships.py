"""Consumers as members of their groups: from the first heartbeat until they end or are silent, at each next leader."""

import asyncio

import pytest

from cluster.grpc_v2 import memberships as module
from cluster.grpc_v2.memberships import FrontMembers, MemberKey
from cluster.grpc_v2.renewal_table import SILENCE_MS_MAX, FrontConsumer
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.filters import TAGS_OF_SQL
from store.model.read_filter import Sql92
from tests.support.waiting import in_a_loop, until

ONE = MemberKey(FrontConsumer("client-1"), "G")
OTHER = MemberKey(FrontConsumer("client-2"), "G")


class Leaders:
    """Leaders that a consumer stays at until the test ends it.

    Attributes:
        here: those that stay now: their last requests.
        stays: number of them, those that have ended included.
        beats: what returns their requests, those that have ended included.
    """

    def __init__(self):
        self.here = {}
        self.stays = 0
        self.beats = {}
        self._ends = []

    async def stay(self, beat):
        end = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        self.stays += 1
        while (request := beat()) is not None and not end.done():
            self.beats[request.client_id] = beat
            self.here[request.client_id] = request
            try:
                await asyncio.wait([end], timeout=0.01)
            finally:
                self.here.pop(request.client_id)
        if end.done():
            raise end.result()

    def fail(self, error):
        """End all stays."""
        for end in self._ends:
            if not end.done():
                end.set_result(error)
        self._ends.clear()


@pytest.fixture
def time_ms(monkeypatch):
    """Return the time, in a list."""
    monkeypatch.setattr(module, "_PAUSE_S", 0)
    return [0]


@in_a_loop
async def test_a_consumer_is_a_member_with_its_subscriptions_until_it_ends(time_ms):
    leaders = Leaders()
    members = FrontMembers(leaders, lambda: time_ms[0])
    members.subscribed(ONE, {"T": "A || B", "S": Sql92("a > 1")})
    members.seen(ONE)
    members.seen(OTHER)
    members.seen(ONE)
    await until(lambda: sorted(leaders.here) == ["client-1", "client-2"])
    found = {each.topic: (each.tags, each.sql) for each in leaders.here["client-1"].subscriptions}
    assert found == {"T": ("A || B", ""), "S": (TAGS_OF_SQL, "a > 1")}
    members.ended(ONE.consumer)
    assert len(members) == 1
    await until(lambda: sorted(leaders.here) == ["client-2"])
    await members.stop()
    assert leaders.here == {}


@in_a_loop
async def test_a_consumer_that_is_silent_leaves_and_one_with_heartbeats_stays(time_ms):
    leaders = Leaders()
    members = FrontMembers(leaders, lambda: time_ms[0])
    members.seen(ONE)
    members.seen(OTHER)
    await until(lambda: sorted(leaders.beats) == ["client-1", "client-2"])
    time_ms[0] = SILENCE_MS_MAX - 1
    members.seen(OTHER)
    time_ms[0] = SILENCE_MS_MAX
    assert [leaders.beats[name]() is None for name in sorted(leaders.beats)] == [True, False]
    await until(lambda: len(members) == 1)
    assert set(leaders.here) <= {"client-2"}
    await members.stop()


@in_a_loop
async def test_a_member_joins_again_at_the_next_leader_but_not_after_a_refusal_until_its_next_heartbeat(time_ms):
    leaders = Leaders()
    members = FrontMembers(leaders, lambda: time_ms[0])
    members.seen(ONE)
    await until(lambda: leaders.stays == 1)
    leaders.fail(RequestFailed(Reason.NOT_LEADER, "another one leads"))
    await until(lambda: leaders.stays == 2)
    leaders.fail(RequestFailed(Reason.ACCESS_DENIED, "no right"))
    await until(lambda: not len(members))
    assert leaders.stays == 2
    members.seen(ONE)
    await until(lambda: leaders.stays == 3)
    await members.stop()


@in_a_loop
async def test_further_consumers_than_there_are_places_are_no_members(time_ms, monkeypatch):
    monkeypatch.setattr(module, "MEMBERS_MAX", 1)
    members = FrontMembers(Leaders(), lambda: time_ms[0])
    members.seen(ONE)
    members.seen(OTHER)
    assert len(members) == 1
    await members.stop()

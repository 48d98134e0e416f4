"""Held pulls: at the leader only some of each address, so that its places are left for others."""

import asyncio
from types import SimpleNamespace

from cluster.remoting.clients import ClientTable
from cluster.remoting.command import RemotingCode, Request
from cluster.remoting.consumers import pulls
from cluster.remoting.consumers.pulls import Pulls
from cluster.v1 import broker_pb2 as pb
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


def client(host):
    return SimpleNamespace(address=f"{host}:4000")


@in_a_loop
async def test_one_address_holds_its_share_at_the_leader_and_what_it_has_beyond_is_held_at_its_node(monkeypatch):
    monkeypatch.setattr(pulls, "HELD_MAX", 8)
    monkeypatch.setattr(pulls, "LOOK_S", 0.001)
    leader, looks = Leader(), []
    store = SimpleNamespace(max_offset=lambda *_: looks.append(1) or leader.end)
    core = SimpleNamespace(replica=SimpleNamespace(store=store))
    held = Pulls(core, leader, ClientTable(), None, NO_RESETS)

    def pull(host):
        return asyncio.create_task(held.pull(Request(11, FIELDS), client(host)))

    greedy = [pull("10.0.0.1") for _ in range(20)]
    await until(lambda: leader.held == 4 and len(looks) > 100)
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

    held = Pulls(None, Slow(), ClientTable(), None, NO_RESETS)
    fields = {**FIELDS, "sysFlag": "4"}
    flood = [asyncio.create_task(held.pull(Request(11, fields), client("10.0.0.1"))) for _ in range(50)]
    other = asyncio.create_task(held.pull(Request(11, {**fields, "queueId": "7"}), client("10.0.0.2")))
    await until(lambda: 7 in reading)
    assert reading == [0, 0, 0, 7]
    gate.set()
    await asyncio.gather(other, *flood)
    assert len(reading) == 51

"""The time without a leader, as a new one knows it; and that it gives leases that time once, before anything else."""

import asyncio

import pytest

from cluster.pop.clock import LogClock
from cluster.pop.outage import Outage
from cluster.pop.writing import PopWriter
from cluster.protocol.errors import Reason, RequestFailed
from cluster.replica.port import ReplicaStatus
from cluster.state.broker_state import BrokerState
from cluster.state.pop.grace import GRACE_MS_MAX, LeaseGrace
from cluster.state.pop.ops import Done, PopOps, Taken
from cluster.state.verdicts import CHANGED, Applied, CommandVerdict


class Replica:
    """A replica whose status the test sets; it notes commands, and answers each operation."""

    def __init__(self):
        self.state = BrokerState()
        self.state.pop.count = 1
        self.listeners = []
        self.commands = []
        self.failures = []
        self.set("n1")

    def set(self, leader, term=1, *, is_serving=False):
        role = "LEADER" if leader == "n0" else "FOLLOWER"
        self._status = ReplicaStatus(role, term, leader, "", is_serving)
        for each in self.listeners:
            each()

    def status(self):
        return self._status

    def when_status_changes(self, listener):
        self.listeners.append(listener)

    async def change(self, command):
        if self.failures:
            raise self.failures.pop()
        self.commands.append(command)
        if isinstance(command, LeaseGrace):
            return CHANGED
        return Applied(CommandVerdict.CHANGED, pops=(Taken(),) * len(command.ops))


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_time_without_a_leader_is_from_the_last_one_until_this_node_serves():
    replica, clock = Replica(), Clock()
    outage = Outage(replica, clock)
    clock.now_s = 200.0
    replica.set("", 2)
    clock.now_s = 204.0
    replica.set("n0", 2)
    assert outage.grace_ms(2) is None, "it leads, but does not serve yet"
    clock.now_s = 205.0
    replica.set("n0", 2, is_serving=True)
    clock.now_s = 400.0
    replica.set("n0", 2)
    replica.set("n0", 2, is_serving=True)
    assert outage.grace_ms(2) == 5_000 + 3_000, "and the time in which nothing was noticed"
    assert outage.grace_ms(1) is None


def test_transfer_from_leader_to_leader_is_short_and_a_long_outage_is_bounded():
    replica, clock = Replica(), Clock()
    outage = Outage(replica, clock)
    replica.set("n0", 2, is_serving=True)
    assert outage.grace_ms(2) == 3_000
    replica.set("", 3)
    clock.now_s += 3_600
    replica.set("n0", 4, is_serving=True)
    assert outage.grace_ms(4) == GRACE_MS_MAX


def test_process_that_knew_no_leader_gives_the_most():
    replica, clock = Replica(), Clock()
    replica.set("n0", 7, is_serving=True)
    assert Outage(replica, clock).grace_ms(7) == GRACE_MS_MAX


OP = Done("g", "t", 0, 0, 1, (1,))


def writer_of(replica, clock):
    log_clock = LogClock(lambda: 5_000, clock, lambda: replica.state.pop.time_ms)
    return PopWriter(replica, log_clock, Outage(replica, clock))


def test_first_entry_of_a_leader_is_the_grace_and_there_is_one_in_a_term():
    async def scenario():
        replica, clock = Replica(), Clock()
        writer = writer_of(replica, clock)
        for term in (2, 3):
            replica.set("n0", term, is_serving=True)
            for _ in range(2):
                await writer.submit([OP], lambda _: None)
            replica.set("", term)
        expected = [LeaseGrace(5_000, 3_000), PopOps(5_000, (OP,)), PopOps(5_000, (OP,))]
        assert replica.commands == expected * 2

    asyncio.run(scenario())


def test_nothing_is_proposed_before_the_grace_that_failed():
    async def scenario():
        replica, clock = Replica(), Clock()
        writer = writer_of(replica, clock)
        replica.set("n0", 2, is_serving=True)
        replica.failures = [RequestFailed(Reason.LEADER_NOT_READY, "not yet")]
        with pytest.raises(RequestFailed):
            await writer.submit([OP], lambda _: None)
        assert not replica.commands
        await writer.submit([OP], lambda _: None)
        assert [type(each) for each in replica.commands] == [LeaseGrace, PopOps]

    asyncio.run(scenario())


def test_leader_without_messages_in_flight_proposes_no_grace():
    async def scenario():
        replica, clock = Replica(), Clock()
        replica.state.pop.count = 0
        writer = writer_of(replica, clock)
        replica.set("n0", 2, is_serving=True)
        await writer.submit([OP], lambda _: None)
        assert [type(each) for each in replica.commands] == [PopOps]

    asyncio.run(scenario())

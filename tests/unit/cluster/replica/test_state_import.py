"""The import of old state continues from the group's state, in pieces that the log accepts; it pauses on failure."""

import asyncio

import pytest

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.replica import state_import
from cluster.replica.state_import import OldState, StateImport
from cluster.state.broker_state import BrokerState
from cluster.state.commands import (
    CommitOffsets,
    FinishImport,
    QueueOffset,
    ResetOffsets,
    SetGroup,
    SetTopic,
)
from tests.support.waiting import PATIENCE_S

GROUP = SetGroup(GroupConfig("g"), is_new=True)


def topic(name):
    return SetTopic(TopicConfig(name, 4, 4), is_new=True)


def offsets(**by_topic):
    return tuple(QueueOffset(name, 0, offset) for name, offset in by_topic.items())


class Group:
    """A group whose leader applies commands in the next iteration, and refuses those beyond its bound."""

    def __init__(self, pending_max=10_000):
        self.state = BrokerState()
        self.pending_max = pending_max
        self.is_full = False
        self.pending = self.tries = self.ends = 0

    async def change(self, command):
        self.tries += 1
        if self.is_full:
            raise RequestFailed(Reason.SERVICE_NOT_AVAILABLE, "the disk is full")
        if self.pending >= self.pending_max:
            raise RequestFailed(Reason.LEADER_PENDING_FULL, "too much")
        self.pending += 1
        await asyncio.sleep(0)
        self.pending -= 1
        return self.state.apply_command(command)

    def ended(self, failure):
        assert failure is None
        self.ends += 1

    def take_over(self, *commands):
        one = StateImport(OldState(commands), self.state, self.change, self.ended, self.pending_max)
        one.begin()
        return one

    async def until_imported(self):
        async with asyncio.timeout(PATIENCE_S):
            while not self.state.is_imported:  # noqa: ASYNC110  (an iteration of the loop each)
                await asyncio.sleep(0)

    def offset(self, name):
        return self.state.offset("g", name, 0).offset


def test_offsets_that_the_group_committed_meanwhile_are_kept():
    async def scenario():
        group = Group()
        for command in (GROUP, topic("T"), CommitOffsets("g", offsets(T=100))):
            group.state.apply_command(command)
        group.take_over(topic("T"), topic("U"), GROUP, ResetOffsets("g", offsets(T=17, U=18)))
        await group.until_imported()
        assert (group.offset("T"), group.offset("U")) == (100, 18)

    asyncio.run(scenario())


def test_offsets_in_the_log_but_not_applied_count_as_committed():
    async def scenario():
        group = Group()
        before = [group.change(command) for command in (GROUP, topic("T"), CommitOffsets("g", offsets(T=100)))]
        applying = asyncio.gather(*before)
        group.take_over(GROUP, ResetOffsets("g", offsets(T=17)))
        await group.until_imported()
        await applying
        assert group.offset("T") == 100

    asyncio.run(scenario())


@pytest.mark.parametrize("pending_max", [1, 3, 10_000])
def test_proposals_in_flight_stay_within_the_bound_of_the_log(pending_max):
    async def scenario():
        group = Group(pending_max)
        group.take_over(*(topic(f"T{number}") for number in range(20)), GROUP, ResetOffsets("g", offsets(T1=1)))
        await group.until_imported()
        assert len(group.state.topics) == 20
        assert group.tries == 20 + 3

    asyncio.run(scenario())


def test_import_that_cannot_continue_pauses_before_it_is_retried(monkeypatch):
    # However slow the iterations below are, the pause is longer.
    monkeypatch.setattr(state_import, "_PAUSE_S", 3600.0)

    async def scenario():
        group = Group()
        group.is_full = True
        one = group.take_over(topic("T"))
        for _ in range(100):
            one.begin()
            await asyncio.sleep(0)
        assert group.tries == 1
        one.stop()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert group.ends == 1
        group.is_full = False
        one.begin()
        await group.until_imported()
        assert set(group.state.topics) == {"T"}
        assert group.state.apply_command(FinishImport()).is_done

    asyncio.run(scenario())

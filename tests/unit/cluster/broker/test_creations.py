"""Creations of topics and groups: a rate for each caller, a total for the broker, and no limit of changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest

from cluster.broker.core import BrokerCore, BrokerOptions
from cluster.broker.creations import Creations
from cluster.broker.metrics import BrokerMetrics
from cluster.config.quotas import BrokerLimits
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import GROUPS_MAX, TOPICS_MAX, BrokerState
from cluster.state.commands import DeleteTopic, SetGroup, SetTopic
from dledger.errors import OverQuota
from store.model.topics import SCHEDULE_TOPIC
from tests.unit.cluster.broker.test_core import BusyReplica

if TYPE_CHECKING:
    from cluster.replica.port import Replica
    from cluster.state.commands import Command


class Made:
    """Creations that are applied to a state."""

    def __init__(self, **limits: int) -> None:
        self.now_s = 1_000.0
        self.limited: Counter[str] = Counter()
        self.state = BrokerState()
        count = lambda limit: self.limited.update([limit])  # noqa: E731
        self.creations = Creations(BrokerLimits(**limits), lambda: self.now_s, count)

    def change(self, command: Command, caller: str = "user 'alice'") -> None:
        with self.creations.admitted(command, self.state, caller):
            assert self.state.apply_command(command).is_done

    def create(self, count: int, prefix: str = "t", caller: str = "user 'alice'") -> int:
        """Create topics until one is refused; return how many were created."""
        for number in range(count):
            try:
                self.change(SetTopic(TopicConfig(f"{prefix}{number}")), caller)
            except (OverQuota, RequestFailed):
                return number
        return count


def test_caller_creates_a_minute_of_its_rate_at_once_and_then_as_fast_as_the_rate() -> None:
    made = Made(quota_creations_per_min=10)
    assert made.create(100, "a") == 11
    with pytest.raises(OverQuota, match="user 'alice'") as caught:
        made.change(SetGroup(GroupConfig("g")))
    assert caught.value.wait_s == pytest.approx(6)
    made.now_s += caught.value.wait_s
    made.change(SetGroup(GroupConfig("g")))
    assert made.create(100, "b") == 0
    assert made.limited == {"creations": 3}


def test_callers_do_not_pay_for_each_other_and_the_broker_itself_has_no_rate() -> None:
    made = Made(quota_creations_per_min=10)
    assert [made.create(100, name, name) for name in ("alice", "bob")] == [11, 11]
    assert made.create(100, "own", "") == 100


def test_changes_and_deletions_have_no_limit() -> None:
    made = Made(quota_creations_per_min=1, topics_max=2)
    assert made.create(5) == 2
    for queues in range(1, 50):
        made.change(SetTopic(TopicConfig("t0", queues, queues)))
    made.change(DeleteTopic("t0"))
    made.now_s += 60
    assert made.create(1, "new") == 1


def test_total_of_topics_and_of_groups_is_bounded_and_a_deletion_makes_space() -> None:
    made = Made(topics_max=3, groups_max=2)
    assert made.create(10) == 3
    for name in ("g0", "g1"):
        made.change(SetGroup(GroupConfig(name)))
    for command in (SetGroup(GroupConfig("g2")), SetTopic(TopicConfig("t9"))):
        with pytest.raises(RequestFailed, match="which is the limit") as caught:
            made.change(command)
        assert caught.value.reason is Reason.TOO_MUCH_STATE
        assert not caught.value.is_worth_trying
    made.change(DeleteTopic("t0"))
    made.change(SetTopic(TopicConfig("t9")))
    made.change(SetTopic(TopicConfig(SCHEDULE_TOPIC)))
    assert made.limited == {"topics": 2, "groups": 1}


def test_topics_that_are_being_created_count_in_the_total() -> None:
    replica = BusyReplica()
    limits = BrokerLimits(topics_max=4)
    core = BrokerCore(cast("Replica", replica), BrokerOptions("b", limits=limits), BrokerMetrics(None, "b", "n0"))

    async def create() -> list[BaseException | None]:
        created = (core.create_topic(TopicConfig(f"t{number}")) for number in range(20))
        return await asyncio.gather(*created, return_exceptions=True)

    outcomes = asyncio.run(create())
    assert sum(each is None for each in outcomes) == len(replica.state.topics) == 4
    asyncio.run(core.change(DeleteTopic("t0")))
    asyncio.run(core.create_topic(TopicConfig("t9")))


def test_group_that_many_consumers_need_at_once_is_created_once_and_counts_once() -> None:
    replica = BusyReplica()
    limits = BrokerLimits(groups_max=1, quota_creations_per_min=1)
    core = BrokerCore(cast("Replica", replica), BrokerOptions("b", limits=limits), BrokerMetrics(None, "b", "n0"))
    core.caller = lambda: "user 'alice'"

    async def join() -> None:
        await asyncio.gather(*(core.ensure_group("billing") for _ in range(50)))

    asyncio.run(join())
    assert list(replica.state.groups) == ["billing"]


def test_defaults_are_the_limits_of_the_state() -> None:
    limits = BrokerLimits()
    assert (limits.topics_max, limits.groups_max, limits.quota_creations_per_min) == (TOPICS_MAX, GROUPS_MAX, 0)

"""The rules of a broker: automatic creation never overwrites settings of an operator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from cluster.broker.core import BrokerCore, BrokerOptions
from cluster.broker.metrics import BrokerMetrics
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.replica.port import Replica, ReplicaStatus
from cluster.state.broker_state import BrokerState
from cluster.state.commands import Command, SetGroup, SetTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.state.verdicts import Applied


class BusyReplica:
    """A leader whose log has changes of other callers before the next one."""

    def __init__(self, before: Sequence[Command] = ()) -> None:
        self.state = BrokerState()
        self._before = before

    def status(self) -> ReplicaStatus:
        return ReplicaStatus("LEADER", 1, "n0", "n0:1", is_serving_puts=True)

    async def change(self, command: Command) -> Applied:
        await asyncio.sleep(0)
        for earlier in self._before:
            self.state.apply_command(earlier)
        return self.state.apply_command(command)


def core_on(replica: BusyReplica, *, is_auto: bool = True) -> BrokerCore:
    options = BrokerOptions("broker-a", auto_create_subscription_group=is_auto)
    return BrokerCore(cast("Replica", replica), options, BrokerMetrics(None, "broker-a", "n0"))


def test_group_that_an_operator_created_meanwhile_keeps_its_settings() -> None:
    as_set = GroupConfig("orders", is_consume_enabled=False, is_orderly=True)
    replica = BusyReplica([SetGroup(as_set)])
    asyncio.run(core_on(replica).ensure_group("orders"))
    assert replica.state.groups["orders"] == as_set


def test_topic_that_an_operator_created_meanwhile_keeps_its_settings() -> None:
    as_set = TopicConfig("orders", 16, 16)
    replica = BusyReplica([SetTopic(as_set)])
    asyncio.run(core_on(replica).create_topic(TopicConfig("orders", 4, 4)))
    assert replica.state.topics["orders"] == as_set


def test_group_is_created_once_and_only_if_that_is_enabled() -> None:
    replica = BusyReplica()
    asyncio.run(core_on(replica).ensure_group("orders"))
    assert replica.state.groups["orders"] == GroupConfig("orders")
    asyncio.run(core_on(replica, is_auto=False).ensure_group("orders"))
    with pytest.raises(RequestFailed, match="group create bills") as failed:
        asyncio.run(core_on(replica, is_auto=False).ensure_group("bills"))
    assert failed.value.reason is Reason.UNKNOWN_GROUP

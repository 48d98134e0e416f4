"""The lists of docs/flows.md agree with the code: a put, a get and a recovery on a real group."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from cluster import Producer
from cluster.broker.core import BrokerOptions
from cluster.protocol.topic_config import TopicConfig
from cluster.server.broker import Broker
from cluster.state.commands import SetTopic
from cluster.v1 import broker_pb2, broker_pb2_grpc
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.call_order import CallOrder, faults_of
from tests.support.waiting import PATIENCE_S, run

if TYPE_CHECKING:
    from pathlib import Path

# An election in the middle of an operation changes the order; it is performed again then.
TRIES = 5


@pytest.mark.slow
def test_put_get_and_recovery_follow_the_documented_flows(tmp_path: Path) -> None:
    order = CallOrder()

    async def scenario() -> None:
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            await group.of_leader(lambda leader: leader.change(SetTopic(TopicConfig("orders", 1, 1))))
            async with AsyncExitStack() as served:
                for replica in group.open.values():
                    address = group.configs[group.name_of(replica)].node.client_address
                    await served.enter_async_context(Broker(replica, BrokerOptions("broker-a"), address))
                endpoints = [str(config.node.client_address) for config in group.configs.values()]
                await asyncio.to_thread(check_put, order, endpoints)
                await check_get(order, group)
            await group.stop()
            order.forget()
            group.open_node("n0")
            assert not (faults := faults_of("A recovery", order)), "\n".join(faults)

    with order.watch():
        run(scenario())


def check_put(order: CallOrder, endpoints: list[str]) -> None:
    with Producer(endpoints, deadline_s=PATIENCE_S, answer_timeout_s=PATIENCE_S) as producer:
        producer.send("orders", b"finds the route")
        for _ in range(TRIES):
            order.forget()
            producer.send("orders", b"hello")
            if not (faults := faults_of("A put", order)):
                return
    assert not faults, "\n".join(faults)


async def check_get(order: CallOrder, group) -> None:
    for _ in range(TRIES):
        leader = group.configs[group.name_of(await group.leader())].node.client_address
        async with grpc.aio.insecure_channel(str(leader)) as channel:
            order.forget()
            await broker_pb2_grpc.BrokerServiceStub(channel).Get(broker_pb2.GetRequest(topic="orders"))
        if not (faults := faults_of("A get", order)):
            return
    assert not faults, "\n".join(faults)

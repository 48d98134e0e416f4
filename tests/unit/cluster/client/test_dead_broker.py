"""A silent broker delays neither the queues of other brokers nor every rebalance of a consumer."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cluster.client.consumer.group_offsets import ConsumerLocks
from cluster.client.consumer.options import ConsumerOptions
from cluster.client.consumer.rebalance import Rebalancer
from cluster.client.routing.broker_nodes import BrokerNodes
from cluster.client.routing.queue_choice import BrokerQueue
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.route_table import BrokerNode, BrokerRoute, Registration, TopicQueues
from cluster.v1 import broker_pb2 as pb
from tests.support.waiting import run, until

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES = 2


class Nodes:
    """Answers for each broker but `dead`, which is silent until `end`."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.asked: list[tuple[str, str]] = []

    def leader(self, broker: str) -> str:
        return broker

    def observe(self, *_: object) -> bool:
        return False

    async def reach(self, _address: str) -> None:
        await asyncio.Event().wait()

    async def call(self, broker: str, _method: object, request: Any, _limit_s: float, **_: float) -> Any:
        self.asked.append((broker, type(request).__name__))
        if broker == "dead":
            await self.end.wait()
            raise RequestFailed(Reason.NOT_REACHED, "the broker is dead")
        if isinstance(request, pb.LockQueuesRequest):
            return pb.LockQueuesResponse(locked=request.queues, lock_ms=60_000)
        if isinstance(request, pb.FetchOffsetRequest):
            return pb.FetchOffsetResponse(queue_ids=request.queue_ids, offsets=[7] * len(request.queue_ids))
        ids = request.queue_ids
        if isinstance(request, pb.OffsetsRequest):
            return pb.OffsetsResponse(queue_ids=ids, min_offsets=[7] * len(ids), max_offsets=[7] * len(ids))
        return pb.CommitOffsetResponse(outcomes=[pb.COMMIT_OUTCOME_COMMITTED] * len(ids))


def registration(broker: str, address: str = "") -> Registration:
    return Registration(broker, "c", 1, 1, "n0", (BrokerNode("n0", address),), ())


def rebalancer_of(nodes: Any, mode: str) -> Rebalancer:
    queues = TopicQueues("orders", QUEUES, QUEUES, 6, is_ordered=False)

    async def find(_topic: str) -> list[BrokerRoute]:
        return [BrokerRoute(registration(broker), queues) for broker in ("alive", "dead", "other")]

    def ignore(*_: object) -> None:
        """Do nothing."""

    options = ConsumerOptions(mode=mode)  # type: ignore[arg-type]
    connection: Any = SimpleNamespace(nodes=nodes, find=find)
    rebalancer = Rebalancer("g", "me", {"orders": "*"}, options, connection, ignore, ignore, ignore)
    member: Any = SimpleNamespace(client_ids=("me",), failure=None)
    rebalancer._members.update(dict.fromkeys(("alive", "dead", "other"), member))
    return rebalancer


@pytest.mark.parametrize("mode", ["cluster", "broadcast"])
def test_queues_of_other_brokers_are_read_while_one_broker_does_not_answer(mode: str) -> None:
    async def main() -> None:
        nodes = Nodes()
        rebalancer = rebalancer_of(nodes, mode)
        balancing = asyncio.ensure_future(rebalancer.balance())
        await until(lambda: len(rebalancer.readers) == 2 * QUEUES)
        assert not balancing.done()
        assert {queue.broker for queue in rebalancer.readers} == {"alive", "other"}
        nodes.end.set()
        await balancing
        for reader in rebalancer.readers.values():
            await reader.stop()

    run(main())


def test_offsets_are_committed_and_locks_released_at_other_brokers_meanwhile() -> None:
    async def main() -> None:
        nodes: Any = Nodes()
        brokers = ("alive", "dead", "other")
        readers: Any = [
            SimpleNamespace(
                queue=BrokerQueue(broker, "orders", 0),
                reset_count=0,
                progress=SimpleNamespace(position=9, committed=0, is_refused=False),
            )
            for broker in brokers
        ]
        offsets = rebalancer_of(nodes, "cluster").offsets
        committing = asyncio.ensure_future(offsets.commit(readers))
        await until(lambda: [reader.progress.committed for reader in readers] == [9, 0, 9])
        unlocking = asyncio.ensure_future(
            ConsumerLocks("g", "me", nodes, is_kept=True).unlock([reader.queue for reader in readers])
        )
        await until(lambda: all((broker, "LockQueuesRequest") in nodes.asked for broker in brokers))
        nodes.end.set()
        assert await committing == []
        await unlocking

    run(main())


@pytest.fixture
def dead_address() -> Iterator[str]:
    """Return an address on which no process listens, or will listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_an_unreachable_broker_gets_the_shorter_timeout_from_then_on(dead_address: str) -> None:
    async def main() -> None:
        nodes = BrokerNodes()
        nodes.learn([BrokerRoute(registration("b", dead_address), TopicQueues("orders", 1, 1, 6, is_ordered=False))])
        loop = asyncio.get_running_loop()

        async def ask(timeout_s: float) -> None:
            with pytest.raises(RequestFailed) as raised:
                await nodes.call("b", lambda stub: stub.Offsets, pb.OffsetsRequest(), timeout_s, silent_timeout_s=0.01)
            assert raised.value.reason is Reason.NOT_REACHED

        began_s = loop.time()
        await ask(0.3)
        assert loop.time() - began_s >= 0.15, "the first call takes its time"
        async with asyncio.timeout(30):
            await ask(3600.0)
        await nodes.close()

    run(main())

"""A consumer closes cleanly in every state of its background tasks, also after they failed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc.aio

from cluster.client.consumer.async_consumer import AsyncConsumer
from cluster.client.consumer.group_member import GroupMember
from cluster.client.consumer.options import ConsumerOptions
from cluster.client.routing.queue_choice import BrokerQueue
from cluster.v1.broker_pb2 import JoinGroupRequest
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable

QUEUE = BrokerQueue("broker-a", "orders", 0)


class Offsets:
    """Brokers that answer no commit before they are released."""

    def __init__(self) -> None:
        self.committed: list[Any] = []
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def commit(self, readers: Iterable[Any]) -> list[Any]:
        asked = list(readers)
        self.was_asked.set()
        await self.may_answer.wait()
        self.committed += asked
        return []


class Locks:
    async def lock(self, queues: Iterable[BrokerQueue]) -> dict[BrokerQueue, float]:
        return dict.fromkeys(queues, 30.0)

    async def unlock(self, queues: Iterable[BrokerQueue]) -> None:
        pass


class Reader:
    """The reader of a revoked queue."""

    def __init__(self) -> None:
        self.queue = QUEUE
        self.failure = None
        self.locked_until = 1.0
        self.is_active = False
        self.progress = SimpleNamespace(is_settled=True)
        self.is_stopping = asyncio.Event()
        self.may_stop = asyncio.Event()

    async def stop(self) -> None:
        self.is_stopping.set()
        await self.may_stop.wait()


def consumer_of_nothing() -> AsyncConsumer:
    consumer = AsyncConsumer("127.0.0.1:1", "", "billing", {"orders": "*"}, "c1", ConsumerOptions())
    consumer._rebalancer._locks = Locks()  # type: ignore[assignment]
    consumer._rebalancer._queues_of = nothing  # type: ignore[assignment,method-assign]
    return consumer


async def nothing(_topic: str) -> tuple[()]:
    return ()


def test_consumer_whose_background_task_failed_still_leaves_its_group() -> None:
    async def main() -> None:
        consumer, closed = consumer_of_nothing(), []

        async def balance() -> None:
            raise RuntimeError("a fault")

        async def close() -> None:
            closed.append(True)

        consumer._rebalancer.balance = balance  # type: ignore[method-assign]
        consumer._rebalancer.close = close  # type: ignore[method-assign]
        async with asyncio.timeout(PATIENCE_S), consumer:
            await asyncio.wait(consumer._tasks, return_when=asyncio.FIRST_COMPLETED)
        assert closed

    asyncio.run(main())


def test_close_commits_a_revoked_queue_whose_commit_it_interrupts() -> None:
    async def main() -> None:
        consumer, offsets, reader = consumer_of_nothing(), Offsets(), Reader()
        consumer._rebalancer.offsets = offsets  # type: ignore[assignment]
        consumer._rebalancer.readers[QUEUE] = reader  # type: ignore[assignment]
        reader.may_stop.set()
        async with asyncio.timeout(PATIENCE_S), consumer:
            await offsets.was_asked.wait()
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            offsets.may_answer.set()
            await closing
        assert offsets.committed == [reader]

    asyncio.run(main())


def test_close_commits_a_queue_whose_reader_is_just_being_stopped() -> None:
    async def main() -> None:
        consumer, offsets, reader = consumer_of_nothing(), Offsets(), Reader()
        consumer._rebalancer.offsets = offsets  # type: ignore[assignment]
        consumer._rebalancer.readers[QUEUE] = reader  # type: ignore[assignment]
        offsets.may_answer.set()
        async with asyncio.timeout(PATIENCE_S), consumer:
            await reader.is_stopping.wait()
            await consumer.close()
        assert offsets.committed == [reader]

    asyncio.run(main())


class EndedCall:
    """A JoinGroup stream that the broker has ended, with a slow last write."""

    def __init__(self) -> None:
        self.is_ending = asyncio.Event()
        self.may_end = asyncio.Event()
        self.writes = asyncio.Event()

    async def read(self) -> Any:
        await self.writes.wait()
        return grpc.aio.EOF

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return "the broker ends"

    async def write(self, _request: Any) -> None:
        self.writes.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ending.set()
            await self.may_end.wait()

    def cancel(self) -> None:
        pass


def test_member_stopped_while_its_stream_ends_does_not_rejoin() -> None:
    async def main() -> None:
        call = EndedCall()

        async def reach(_address: str) -> None:
            pass

        nodes = SimpleNamespace(
            leader=lambda _broker: "127.0.0.1:1",
            reach=reach,
            stub=lambda _address: SimpleNamespace(JoinGroup=lambda: call),
            observe=lambda *_: False,
        )
        request = JoinGroupRequest()
        member = GroupMember("broker-a", nodes, request, lambda: None, lambda _: None, lambda _: None)  # type: ignore[arg-type]
        await call.is_ending.wait()
        stopping = asyncio.create_task(member.stop())
        await asyncio.sleep(0)
        call.may_end.set()
        async with asyncio.timeout(PATIENCE_S):
            await stopping

    asyncio.run(main())

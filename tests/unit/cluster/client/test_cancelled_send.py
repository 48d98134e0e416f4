"""A send that is cancelled while no route is known leaves nothing that delays a flush."""

from __future__ import annotations

import asyncio

import pytest

from cluster.client.producer.async_producer import AsyncProducer
from cluster.client.producer.options import ProducerOptions
from cluster.protocol.errors import Reason, RequestFailed
from tests.support.waiting import PATIENCE_S


class NoRoutes:
    """A connection without an answering name server."""

    def __init__(self) -> None:
        self.was_asked = asyncio.Event()

    def known(self, topic: str) -> None:
        raise RequestFailed(Reason.NOT_REACHED, f"no route to {topic} is known")

    async def find(self, topic: str) -> None:
        self.was_asked.set()
        raise RequestFailed(Reason.NOT_REACHED, f"no node that knows the route to {topic} answers")

    async def __aexit__(self, *_error: object) -> None:
        pass


def test_send_that_is_cancelled_while_it_waits_for_a_route_delays_no_flush() -> None:
    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", "", ProducerOptions(deadline_s=1000.0))
        connection = NoRoutes()
        producer._connection = connection  # type: ignore[assignment]
        sending = asyncio.create_task(producer.send("orders", b"body"))
        await connection.was_asked.wait()
        await asyncio.sleep(0)  # It pauses before the next question now.
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not producer._pending
        assert producer._pending_messages == producer._pending_bytes == 0
        async with asyncio.timeout(PATIENCE_S):
            await producer.close()

    asyncio.run(main())

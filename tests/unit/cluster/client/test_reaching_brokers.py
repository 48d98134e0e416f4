"""A task that waits for a connection to a broker can be cancelled at any moment: `close` waits for such tasks."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from cluster.client.routing.broker_nodes import BrokerNodes


class Connecting:
    """A channel that connects when the test permits it."""

    def __init__(self) -> None:
        self.state = grpc.ChannelConnectivity.CONNECTING
        self._is_ready = asyncio.Event()

    def get_state(self, *, try_to_connect: bool) -> grpc.ChannelConnectivity:
        assert try_to_connect
        return self.state

    async def wait_for_state_change(self, _state: grpc.ChannelConnectivity) -> None:
        await self._is_ready.wait()

    def connect(self) -> None:
        self.state = grpc.ChannelConnectivity.READY
        self._is_ready.set()


@pytest.mark.parametrize("turns", range(5))
def test_cancellation_at_the_moment_of_the_connection_is_not_lost(turns: int) -> None:
    async def main() -> None:
        nodes, channel = BrokerNodes(), Connecting()
        nodes._connections._channels["h:1", 0] = channel  # type: ignore[assignment]
        nodes._connections._stubs["h:1", 0] = None  # type: ignore[assignment]
        reaching = asyncio.create_task(nodes.reach("h:1", 1000.0))
        for _ in range(5):
            await asyncio.sleep(0)
        channel.connect()
        for _ in range(turns):
            await asyncio.sleep(0)
        had_ended = reaching.done()
        reaching.cancel()
        await asyncio.wait([reaching])
        assert had_ended or reaching.cancelled()

    asyncio.run(main())

"""The calls between brokers and name servers over gRPC: implements the ports of `cluster.nameserver.ports`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from cluster.nameserver.ports import LeaderReport
from cluster.process.tasks import end_tasks
from cluster.protocol.route_table import BrokerNode
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.protocol.wire.routes import register_request
from cluster.v1 import nameserver_pb2
from cluster.v1.broker_pb2 import BrokerStatusRequest
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from cluster.v1.nameserver_pb2_grpc import NameServerStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cluster.protocol.route_table import Extent, Registration, TopicQueues
    from cluster.v1.broker_pb2_grpc import BrokerServiceAsyncStub
    from cluster.v1.nameserver_pb2_grpc import NameServerAsyncStub
    from dledger.security.settings import Security

_CALL_TIMEOUT_S: Final = 3.0
_LEADING: Final = ("LEADER", "STANDALONE")


class GrpcNameServer:
    """One name server: a `cluster.nameserver.ports.NameServerLink`.

    Args:
        address: `host:port`.
        on_lost: called whenever a connection has ended.
        security: returns that of the next connection. When it returns another value, the connection is opened again: a
            channel of gRPC keeps the certificates that it began with.
    """

    def __init__(
        self, address: str, on_lost: Callable[[], None], *, security: Callable[[], Security] = lambda: PLAIN
    ) -> None:
        self._security = security
        self._used: Security = PLAIN
        self._address = address
        self._on_lost = on_lost
        self._channel: grpc.aio.Channel | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def register(self, registration: Registration, topics: Sequence[TopicQueues], extent: Extent) -> bool:
        """Send a registration with these topics.

        Returns False if it has only differences from a registration that the name server lacks: send all topics then.
        """
        request = register_request(registration, topics, extent)
        response = await self._answer((await self._stub()).Register(request, timeout=_CALL_TIMEOUT_S))
        return not response.wants_all

    async def heartbeat(self, registration: Registration) -> bool:
        """Send a heartbeat; return whether the name server has the registration."""
        request = nameserver_pb2.HeartbeatRequest(
            broker=registration.broker,
            term=registration.term,
            sequence=registration.sequence,
            life=registration.life,
        )
        response = await self._answer((await self._stub()).Heartbeat(request, timeout=_CALL_TIMEOUT_S))
        return bool(response.is_registered)

    async def unregister(self, registration: Registration) -> None:
        """Remove the broker."""
        request = nameserver_pb2.UnregisterRequest(
            broker=registration.broker, term=registration.term, life=registration.life
        )
        await self._answer((await self._stub()).Unregister(request, timeout=_CALL_TIMEOUT_S))

    async def close(self) -> None:
        """End the connection."""
        # Another request may open the next connection while this one is closed.
        channel, watcher, self._channel, self._watcher = self._channel, self._watcher, None, None
        if watcher is not None:
            await end_tasks([watcher])
        if channel is not None:
            await channel.close()

    async def _answer(self, call: Awaitable[Any]) -> Any:
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            raise failure_of_call(self._address, error.code(), error.details() or "", "NameServer") from error
        check_answer(response.answer, self._address)
        return response

    async def _stub(self) -> NameServerAsyncStub:
        security = self._security()
        if self._channel is not None and security != self._used:
            await self.close()
        # Created in the loop that uses it.
        if self._channel is None:
            self._used = security
            self._channel = open_aio_channel(self._address, security, CHANNEL_OPTIONS)
            self._watcher = asyncio.create_task(self._watch(self._channel))
        return NameServerStub(self._channel)

    async def _watch(self, channel: grpc.aio.Channel) -> None:
        """Report each end of a connection."""
        before = grpc.ChannelConnectivity.IDLE
        while True:
            state = channel.get_state()
            if before is grpc.ChannelConnectivity.READY and state is not before:
                self._on_lost()
            before = state
            await channel.wait_for_state_change(state)


async def ask_leader(address: str, security: Callable[[], Security] = lambda: PLAIN) -> LeaderReport | None:
    """Request the report of the node at an address about its broker; None if it does not answer.

    The caller sets the timeout: cancelling the call closes its connection.
    """
    with suppress(grpc.aio.AioRpcError):
        # With an explicit scheme, so that gRPC does not parse the address as another scheme.
        async with open_aio_channel(f"dns:///{address}", security(), CHANNEL_OPTIONS) as channel:
            stub: BrokerServiceAsyncStub = BrokerServiceStub(channel)
            status = await stub.Status(BrokerStatusRequest())
            return LeaderReport(
                broker=status.broker,
                term=status.term,
                leader=BrokerNode(status.leader.id, status.leader.address),
                is_leading=status.role in _LEADING,
                life_digests=tuple(status.life_digests),
            )
    return None

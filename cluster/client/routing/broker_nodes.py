"""The nodes of a client's brokers: one connection to each node, and the presumed leader of each broker.

The presumed leader may be outdated at the cost of one round trip: a follower refuses and names the leader; after an
unreachable node the next node of its broker is tried.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc
import grpc.aio

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from cluster.v1.nameserver_pb2 import RouteRequest
from dledger.client.aio.frame_link import FrameLinks
from dledger.client.connections import Connections
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.client.retry import Repetition
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cluster.protocol.route_table import BrokerRoute
    from cluster.v1.answer_pb2 import Answer
    from cluster.v1.broker_pb2_grpc import BrokerServiceAsyncStub
    from dledger.client.aio.framed_stream import FramedCalls
    from dledger.security.settings import Security

CALL_TIMEOUT_S = 3.0
_REACH_TIMEOUT_S = 1.0
# Refusals after which another node of the broker is tried.
_LEADS_NO_LONGER = frozenset(
    {
        Reason.NOT_LEADER,
        Reason.NOT_REACHED,
        Reason.ANSWER_LOST,
        Reason.ANSWER_LATE,
        Reason.STORE_STOPPED,
        Reason.UNKNOWN_BROKER,
        Reason.UNSUPPORTED,
    }
)


class _Response(Protocol):
    @property
    def answer(self) -> Answer: ...


ResponseT = TypeVar("ResponseT", bound=_Response)
Method = Callable[["BrokerServiceAsyncStub"], grpc.aio.UnaryUnaryMultiCallable[Any, ResponseT]]


class _Broker:
    __slots__ = ("addresses", "is_silent", "leader", "term")

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        # Whether no node of the broker accepted a connection in the last call.
        self.is_silent = False
        self.leader = ""
        self.term = -1


class BrokerNodes:
    """Connections to the nodes of all brokers, opened at first use. For use by one event loop.

    Args:
        on_lost: called with a broker each time all of its known nodes were tried and none took the request.
        security: of the connections.
        may_use_frames: puts are sent by frames to nodes that have a port for them.
    """

    def __init__(
        self,
        on_lost: Callable[[str], None] = lambda _: None,
        security: Security = PLAIN,
        *,
        may_use_frames: bool = False,
    ) -> None:
        self._security = security
        self._frames = FrameLinks(security, time.monotonic) if may_use_frames else None
        # Nodes that have said whether they have a frame port, since they were reached last.
        self._asked: set[str] = set()
        self._on_lost = on_lost
        self._brokers: dict[str, _Broker] = {}
        self._connections = _connections(security)

    def learn(self, routes: Iterable[BrokerRoute]) -> None:
        """Record the nodes and leaders in routes; a leader is ignored unless its term is newer than the known one."""
        for route in routes:
            registration = route.registration
            broker = self._brokers.setdefault(registration.broker, _Broker())
            broker.addresses = tuple(node.address for node in registration.nodes)
            if registration.term > broker.term or not broker.leader:
                broker.term = registration.term
                broker.leader = registration.leader_address or broker.addresses[0]

    def leader(self, name: str) -> str:
        """Return the address of the presumed leader of a broker.

        Raises:
            RequestFailed: UNKNOWN_BROKER.
        """
        broker = self._brokers.get(name)
        if broker is None:
            raise RequestFailed(Reason.UNKNOWN_BROKER, f"no route names a broker {name!r}")
        return broker.leader

    def addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses of all known nodes of a broker."""
        broker = self._brokers.get(name)
        return () if broker is None else broker.addresses

    def observe(self, name: str, address: str, failure: RequestFailed) -> bool:
        """Record a failure; return whether to retry at once, because the failure names another node as the leader."""
        broker = self._brokers.get(name)
        if failure.reason in _LEADS_NO_LONGER:
            # It may have been restarted with other settings.
            self._asked.discard(address)
        if broker is None or failure.reason not in _LEADS_NO_LONGER:
            return False
        if broker.leader != address:
            return True  # a concurrent call has switched already
        if failure.leader not in ("", address):
            broker.leader = failure.leader
            return True
        places = broker.addresses
        place = places.index(address) if address in places else -1
        broker.leader = places[(place + 1) % len(places)]
        if place + 1 >= len(places):
            self._on_lost(name)
        return False

    def stub(self, address: str) -> BrokerServiceAsyncStub:
        """Return the stub of the node at `address`; it connects at the first call."""
        return self._connections.stub(address)

    def stream_stub(self, address: str) -> AbstractContextManager[BrokerServiceAsyncStub]:
        """Lend a stub of the node at `address` for one stream that may stay open."""
        return self._connections.stream_stub(address)

    async def framed(self, address: str, topic: str, path: str, response: Callable[[bytes], Any]) -> FramedCalls | None:
        """Return how to call a method of a node by frames; None: it must be called by gRPC.

        Args:
            address: of the node; it was reached.
            topic: that this client may use: its route has the address of the port, too.
            path: of the method.
            response: returns the response in the bytes of an answer.
        """
        if self._frames is None:
            return None
        if address not in self._asked:
            try:
                route = await self.stub(address).Route(RouteRequest(topics=[topic]), timeout=_REACH_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return None
            self._asked.add(address)
            self._frames.ports.learn(address, route.frame_address)
        return await self._frames.calls(address, path, response)

    async def reach(self, address: str, timeout_s: float = _REACH_TIMEOUT_S) -> None:
        """Wait until `address` is connected, so that the next request can be lost only in transit.

        Raises:
            RequestFailed: NOT_REACHED.
        """
        channel = self._connections.channel(address)
        deadline = time.monotonic() + timeout_s
        while True:
            state = channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY:
                return
            remaining_s = deadline - time.monotonic()
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE or remaining_s <= 0:
                raise RequestFailed(Reason.NOT_REACHED, f"{address} is not reachable")
            try:
                async with asyncio.timeout(remaining_s):
                    await channel.wait_for_state_change(state)
            except TimeoutError:
                raise RequestFailed(Reason.NOT_REACHED, f"{address} accepts no connection") from None

    async def call(
        self,
        name: str,
        method: Method[ResponseT],
        request: Any,
        timeout_s: float,
        *,
        silent_timeout_s: float = math.inf,
    ) -> ResponseT:
        """Call the leader of a broker; retry and try other nodes until it answers or the timeout passes.

        Args:
            name: name of the broker.
            method: selects the method of the stub.
            request: an idempotent request.
            timeout_s: limit of all attempts together.
            silent_timeout_s: a lower limit, for a broker that accepted no connection in the call before.

        Raises:
            RequestFailed: the refusal of the leader, or why there was no answer.
        """
        broker = self._brokers.get(name, _Broker())
        deadline = time.monotonic() + (min(timeout_s, silent_timeout_s) if broker.is_silent else timeout_s)
        repetition = Repetition()
        while True:
            address = self.leader(name)
            try:
                await self.reach(address, min(_REACH_TIMEOUT_S, deadline - time.monotonic()))
                limit_s = min(CALL_TIMEOUT_S, deadline - time.monotonic())
                response = await self.call_node(address, method, request, limit_s)
            except RequestFailed as failure:
                is_named = self.observe(name, address, failure)
                if not failure.is_worth_repeating:
                    broker.is_silent = False
                    raise
                pause_s = repetition.next_s(failure.repeat_after_s, is_named=is_named)
                if time.monotonic() + pause_s >= deadline:
                    broker.is_silent = failure.reason is Reason.NOT_REACHED
                    raise
            else:
                broker.is_silent = False
                return response
            await asyncio.sleep(pause_s)

    async def call_node(self, address: str, method: Method[ResponseT], request: Any, timeout_s: float) -> ResponseT:
        """Call one node, once.

        Raises:
            RequestFailed: its refusal, or why there was no answer.
        """
        try:
            response = await method(self.stub(address))(request, timeout=max(timeout_s, 0.0))
        except grpc.aio.AioRpcError as error:
            raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from None
        check_answer(response.answer, address)
        return response

    async def close(self) -> None:
        """Close all connections; pending calls end with CANCELLED."""
        if self._frames is not None:
            await self._frames.close()
            self._frames = FrameLinks(self._security, time.monotonic)
            self._asked.clear()
        for channel in self._connections.channels():
            await channel.close()
        self._connections = _connections(self._security)


def _connections(security: Security) -> Connections[grpc.aio.Channel, BrokerServiceAsyncStub]:
    return Connections(partial(open_aio_channel, security=security, options=CHANNEL_OPTIONS), BrokerServiceStub)

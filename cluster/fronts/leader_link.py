"""Calls of a front to the leader of its group, whatever node that is: this one, too.

The node itself knows its leader, so a call goes there at once; after a refusal, or if the leader cannot be reached, it
is repeated until its deadline, so that a change of the leader costs a client some time, but no error. Every call must
therefore be idempotent: puts have the client's id of the message, by which the broker recognises repetitions.

Calls go over the connection that any client would use, also to this node itself: checks of rights, bounds, quotas and
the audit log are those of each of our own clients.

A channel of gRPC keeps the certificates that it began with. So after a change of certificates new calls use new
connections; the old ones are closed after their last call.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from cluster.client.routing.broker_nodes import BrokerNodes, Method, ResponseT
from cluster.fronts.callers import current_client
from cluster.fronts.front_security import with_token
from cluster.fronts.joined_puts import JoinedPuts
from cluster.process.tasks import end_tasks
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.v1 import broker_pb2 as pb
from dledger.client.aio.stream_end import StreamEnded, next_response
from dledger.client.retry import Repetition
from dledger.security.settings import Plain, Tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dledger.security.settings import Security, Token

# A member that sends nothing for four times as long leaves its group.
BEAT_S: Final = 30.0
_REACH_S: Final = 0.5
# The limit of one attempt without its wait: a leader that has stopped is left in time for another one.
_ATTEMPT_S: Final = 1.5


class _Connections:
    """Connections with the same certificates, and the number of calls that use them."""

    def __init__(self, security: Security) -> None:
        self.nodes = BrokerNodes(security=security)
        self.calls = 0


class LeaderLink:
    """Calls the leader of the group.

    Args:
        leader_address: returns `host:port` of the leader's service, as this node knows it; empty: it knows none.
        security: of the connections; or returns that of the next one, another object after a change of certificates.
        token: returns the token of a call, for the client of the current task; None: calls carry that of `security`.
    """

    def __init__(
        self,
        leader_address: Callable[[], str],
        security: Security | Callable[[], Security],
        token: Token | None = None,
    ) -> None:
        self._leader_address = leader_address
        self._security = security
        self._token = token
        self._used = self._next_security()
        self._current = self._opened()
        # Those with earlier certificates, which calls still use.
        self._earlier: set[_Connections] = set()
        self._puts = JoinedPuts(lambda request, limit_s: self.call(lambda stub: stub.Put, request, limit_s))

    async def close(self) -> None:
        """Close all connections; pending calls fail."""
        await self._puts.close()
        for connections in (self._current, *self._earlier):
            await connections.nodes.close()

    def _next_security(self) -> Security:
        return self._security if isinstance(self._security, Plain | Tls) else self._security()

    def _opened(self) -> _Connections:
        return _Connections(self._used if self._token is None else with_token(self._used, self._token))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[BrokerNodes]:
        """Lend connections for one call."""
        security = self._next_security()
        if security is not self._used:
            # Without a pause in between: two calls must not both do this.
            self._used, replaced = security, self._current
            self._current = self._opened()
            self._earlier.add(replaced)
            await self._close_unused(replaced)
        connections = self._current
        connections.calls += 1
        try:
            yield connections.nodes
        finally:
            connections.calls -= 1
            await self._close_unused(connections)

    async def _close_unused(self, connections: _Connections) -> None:
        if connections in self._earlier and not connections.calls:
            self._earlier.discard(connections)
            await connections.nodes.close()

    async def call(self, method: Method[ResponseT], request: Any, limit_s: float, wait_s: float = 0.0) -> ResponseT:
        """Return the response of the leader.

        Args:
            method: selects the method of the stub.
            request: an idempotent request.
            limit_s: of all attempts together, in seconds.
            wait_s: for which the leader itself may wait before it answers.

        Raises:
            RequestFailed: the refusal of the leader, or why there was no answer.
        """
        deadline, repetition, hint = time.monotonic() + limit_s, Repetition(), ""
        while True:
            address = hint or self._leader_address()
            try:
                return await self._attempt(address, method, request, deadline, wait_s)
            except RequestFailed as failure:
                if not failure.is_worth_repeating:
                    raise _known_here(failure) from None
                is_named = failure.leader not in ("", address)
                pause_s = repetition.next_s(failure.repeat_after_s, is_named=is_named)
                hint = "" if pause_s else failure.leader
                if time.monotonic() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)

    async def put(self, request: pb.PutRequest, limit_s: float) -> pb.PutResponse:
        """Put messages, single ones in calls with others of the same client; see `JoinedPuts.put`."""
        return await self._puts.put(request, limit_s)

    async def _attempt(
        self, address: str, method: Method[ResponseT], request: Any, deadline: float, wait_s: float
    ) -> ResponseT:
        if not address:
            raise RequestFailed(Reason.NOT_LEADER, "no leader is known")
        async with self._connected() as nodes:
            await nodes.reach(address, min(_REACH_S, deadline - time.monotonic()))
            limit_s = max(min(wait_s + _ATTEMPT_S, deadline - time.monotonic()), 0.0)
            if not wait_s:
                return await nodes.call_node(address, method, request, limit_s)
            with nodes.stream_stub(address) as stub:
                try:
                    response = await method(stub)(request, timeout=limit_s)
                except grpc.aio.AioRpcError as error:
                    raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from None
            check_answer(response.answer, address)
            return response

    async def stay(self, beat: Callable[[], pb.JoinGroupRequest | None]) -> None:
        """Keep a consumer in its group at the leader.

        Args:
            beat: returns the request, at once and then each `BEAT_S`; None: the consumer leaves.

        Raises:
            RequestFailed: why it could not join, or is in the group no longer.
        """
        address = self._leader_address()
        if not address:
            raise RequestFailed(Reason.NOT_LEADER, "no leader is known")
        async with self._connected() as nodes:
            await nodes.reach(address, _REACH_S)
            with nodes.stream_stub(address) as stub:
                await _stay(stub.JoinGroup(), beat, address)

    async def checks(self, producer_group: str, topic: str) -> AsyncIterator[pb.TransactionChecksResponse]:
        """Yield the leader's questions about transactions of one topic, until it leads no longer.

        Raises:
            RequestFailed: why the stream ended, or could not begin.
        """
        address = self._leader_address()
        if not address:
            raise RequestFailed(Reason.NOT_LEADER, "no leader is known")
        request = pb.TransactionChecksRequest(producer_group=producer_group, topics=[topic])
        async with self._connected() as nodes:
            await nodes.reach(address, _REACH_S)
            with nodes.stream_stub(address) as stub:
                stream = stub.TransactionChecks(request)
                try:
                    async for response in stream:
                        check_answer(response.answer, address)
                        yield response
                except grpc.aio.AioRpcError as error:
                    raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from None
                finally:
                    stream.cancel()


def _known_here(failure: RequestFailed) -> RequestFailed:
    """Return a failure of the leader as the client should see it: is it final, or does this node lack the users?"""
    if failure.reason is Reason.NOT_AUTHENTICATED and current_client() is None:
        # The client was admitted unseen, so this node knows no users, but the leader does.
        text = "this node does not know the users yet that the leader knows. Nothing was done, repeat the request"
        return RequestFailed(Reason.LEADER_NOT_READY, text)
    return failure


async def _stay(
    call: grpc.aio.StreamStreamCall[pb.JoinGroupRequest, pb.JoinGroupResponse],
    beat: Callable[[], pb.JoinGroupRequest | None],
    address: str,
) -> None:
    beats = asyncio.create_task(_send_beats(call, beat))
    try:
        while True:
            check_answer((await next_response(call, "the consumer has left")).answer, address)
    except StreamEnded as end:
        if end.code is not grpc.StatusCode.OK or not beats.done():
            raise failure_of_call(address, end.code, end.details, "BrokerService") from None
    finally:
        call.cancel()
        # Last, because the caller may be cancelled here.
        await end_tasks([beats])


async def _send_beats(
    call: grpc.aio.StreamStreamCall[pb.JoinGroupRequest, pb.JoinGroupResponse],
    beat: Callable[[], pb.JoinGroupRequest | None],
) -> None:
    # The reader of the call handles its end.
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while (request := beat()) is not None:
            await call.write(request)
            await asyncio.sleep(BEAT_S)
        await call.done_writing()

"""The gRPC service `apache.rocketmq.v2.MessagingService` of one node: it passes each call to its handler.

A refusal is an ordinary response with a status, except on Telemetry, whose clients expect INVALID_ARGUMENT of gRPC.
PullMessage and the calls about offsets and lite topics are UNIMPLEMENTED in gRPC, as in RocketMQ: no official client
uses them.
"""

# ruff: noqa: ARG002, N802  (gRPC prescribes names and arguments of the methods)
from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio

from cluster.fronts.callers import callers_of_node, current_client
from cluster.fronts.leader_link import LeaderLink
from cluster.grpc_v2.bounds import BOUNDS
from cluster.grpc_v2.memberships import FrontMembers, MemberKey
from cluster.grpc_v2.names import check_client_id, client_id, consumer_needs, group_name, group_needs, route_needs
from cluster.grpc_v2.orphan_checks import OrphanChecks
from cluster.grpc_v2.receives import Receives
from cluster.grpc_v2.renewal_table import FrontConsumer
from cluster.grpc_v2.renewing import Renewing
from cluster.grpc_v2.routes import Routes
from cluster.grpc_v2.sends import Sends
from cluster.grpc_v2.signatures import signed_call
from cluster.grpc_v2.status_codes import FAILURES, ok, status_of
from cluster.grpc_v2.telemetry import Telemetry
from cluster.grpc_v2.topics import KnownTopics
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.rocketmq_v2 import messaging_pb2_grpc
from dledger.networks import client_of_address
from dledger.service.grpc_server import Served
from dledger.service.guarded_method import Guard
from dledger.service.limits.client_addresses import address_of_peer
from store.maintenance.background import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from google.protobuf.message import Message

    from cluster.api.rights import Need
    from cluster.broker.core import BrokerCore
    from cluster.fronts.callers import FrontAudit
    from dledger.config import Address
    from dledger.security.settings import Security
    from store.errors import IllegalRequest

Context = grpc.aio.ServicerContext[Any, Any]
ResponseT = TypeVar("ResponseT")

# RocketMQ's clients have 3 s for a call; the answer must arrive before.
_LIMIT_S: Final = 3.0
_LIMIT_S_MAX: Final = 60.0
_ANSWER_S: Final = 0.1
_STREAM_CODES: Final = {
    mq.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    mq.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    mq.HA_NOT_AVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


class MessagingService(messaging_pb2_grpc.MessagingServiceServicer):
    """The servicer.

    Args:
        core: of the broker's node.
        address: where the service listens.
        own_address: `host:port` of this node's own service.
        audit: takes refusals.
        leader_security: returns that of the next connection to the leader.
    """

    def __init__(
        self,
        core: BrokerCore,
        address: Address,
        own_address: str,
        audit: FrontAudit,
        leader_security: Callable[[], Security],
    ) -> None:
        self._core = core
        replica = core.replica

        def leader_address() -> str:
            status = replica.status()
            return own_address if status.is_leading else status.leader_address

        self._callers = callers_of_node(core, audit)
        self._link = LeaderLink(leader_address, leader_security, self._callers.token)
        topics = KnownTopics(replica.state, self._link)
        clock_ms, options = core.clock_ms, core.options
        self._routes = Routes(topics, options.broker, address)
        self._sends = Sends(self._link, topics, clock_ms, options.timer_max_delay_sec, zlib.crc32(own_address.encode()))
        self._renewing = Renewing(self._link, monotonic_ms)
        self._receives = Receives(self._link, self._renewing, clock_ms)
        self._checks = OrphanChecks(self._link, topics, self._callers)
        self._memberships = FrontMembers(self._link, monotonic_ms)
        self._telemetry = Telemetry(topics, self._checks, self._callers, self._memberships)

    def served(self) -> Served:
        """Return the service as a server of gRPC adds it."""
        service = mq.DESCRIPTOR.services_by_name["MessagingService"]
        return Served(messaging_pb2_grpc.add_MessagingServiceServicer_to_server, self, service, Guard(BOUNDS, _refuse))

    async def stop(self) -> None:
        """End what runs beside calls, and close the connections to other nodes."""
        await self._renewing.stop()
        await self._checks.stop()
        await self._memberships.stop()
        await self._link.close()

    async def _admit(self, context: Context) -> None:
        """Raise unless a client may call.

        Raises:
            CodedRefusal: it has no id.
            CallerRefused: the broker has users, and the call is not signed by an access key.
        """
        metadata = [(str(name), value) for name, value in context.invocation_metadata() or ()]
        now_s = self._core.clock_ms() // 1_000
        await self._callers.admit(context.peer(), lambda: signed_call(metadata, now_s))
        check_client_id(context)

    async def _answered(
        self,
        response: ResponseT,
        context: Context,
        work: Awaitable[ResponseT],
        needs: Callable[[], Iterable[Need]] = tuple,
    ) -> ResponseT:
        """Return the result of `work`, or `response` with the status of its failure.

        Args:
            response: empty.
            context: of the call.
            work: done for a client that may call, with its rights at the leader.
            needs: returns the rights for what this node answers itself.
        """
        try:
            try:
                await self._admit(context)
                called = type(response).__name__.removesuffix("Response")
                self._callers.require(needs(), f"MessagingService/{called}")
            except BaseException:
                # Never awaited otherwise.
                work.close()  # type: ignore[attr-defined]
                raise
            return await work
        except FAILURES as error:
            response.status.CopyFrom(status_of(error))  # type: ignore[attr-defined]
            return response

    async def QueryRoute(self, request: mq.QueryRouteRequest, context: Context) -> mq.QueryRouteResponse:
        """Return the queues of a topic."""
        work = self._routes.route(request, _limit_s(context))
        return await self._answered(mq.QueryRouteResponse(), context, work, lambda: route_needs(request))

    async def QueryAssignment(self, request: mq.QueryAssignmentRequest, context: Context) -> mq.QueryAssignmentResponse:
        """Return the queues that a push consumer asks."""
        work = self._routes.assignment(request, _limit_s(context))
        needs = partial(consumer_needs, request.group, [request.topic])
        return await self._answered(mq.QueryAssignmentResponse(), context, work, needs)

    async def Heartbeat(self, request: mq.HeartbeatRequest, context: Context) -> mq.HeartbeatResponse:
        """Answer that this node lives, and keep a consumer in its group."""
        groups = [request.group] if request.HasField("group") else []
        needs = partial(group_needs, groups)
        return await self._answered(mq.HeartbeatResponse(), context, self._alive(request, context), needs)

    async def NotifyClientTermination(
        self, request: mq.NotifyClientTerminationRequest, context: Context
    ) -> mq.NotifyClientTerminationResponse:
        """Note that a client ends: its messages are given again soon, and it leaves its groups."""
        return await self._answered(mq.NotifyClientTerminationResponse(), context, self._terminated(context))

    async def _alive(self, request: mq.HeartbeatRequest, context: Context) -> mq.HeartbeatResponse:
        consumer = _consumer(context)
        if request.HasField("group"):
            self._memberships.seen(MemberKey(consumer, group_name(request.group)))
        self._renewing.table.seen(consumer)
        return mq.HeartbeatResponse(status=ok())

    async def _terminated(self, context: Context) -> mq.NotifyClientTerminationResponse:
        consumer = _consumer(context)
        self._renewing.table.ended(consumer)
        self._memberships.ended(consumer)
        return mq.NotifyClientTerminationResponse(status=ok())

    async def SendMessage(self, request: mq.SendMessageRequest, context: Context) -> mq.SendMessageResponse:
        """Store messages."""
        work = self._sends.send(request, _limit_s(context))
        return await self._answered(mq.SendMessageResponse(), context, work)

    async def RecallMessage(self, request: mq.RecallMessageRequest, context: Context) -> mq.RecallMessageResponse:
        """Take back a message that waits for its time."""
        work = self._sends.recall(request, _limit_s(context))
        return await self._answered(mq.RecallMessageResponse(), context, work)

    async def EndTransaction(self, request: mq.EndTransactionRequest, context: Context) -> mq.EndTransactionResponse:
        """End a transaction."""
        work = self._sends.end_transaction(request, _limit_s(context))
        return await self._answered(mq.EndTransactionResponse(), context, work)

    async def ReceiveMessage(
        self, request: mq.ReceiveMessageRequest, context: Context
    ) -> AsyncIterator[mq.ReceiveMessageResponse]:
        """Stream messages of a topic."""
        try:
            await self._admit(context)
            holder = client_of_address(address_of_peer(context.peer()))
            async for response in self._receives.receive(request, _consumer(context), holder, _limit_s(context)):
                yield response
        except FAILURES as error:
            yield mq.ReceiveMessageResponse(status=status_of(error))

    async def AckMessage(self, request: mq.AckMessageRequest, context: Context) -> mq.AckMessageResponse:
        """Acknowledge messages."""
        work = self._receives.acknowledge(request, _limit_s(context))
        return await self._answered(mq.AckMessageResponse(), context, work)

    async def ChangeInvisibleDuration(
        self, request: mq.ChangeInvisibleDurationRequest, context: Context
    ) -> mq.ChangeInvisibleDurationResponse:
        """Change the time for which a message is invisible."""
        refused = mq.ChangeInvisibleDurationResponse(receipt_handle=request.receipt_handle)
        return await self._answered(refused, context, self._receives.change_invisible(request, _limit_s(context)))

    async def ForwardMessageToDeadLetterQueue(
        self, request: mq.ForwardMessageToDeadLetterQueueRequest, context: Context
    ) -> mq.ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter."""
        work = self._receives.forward_to_dead_letters(request, _limit_s(context))
        return await self._answered(mq.ForwardMessageToDeadLetterQueueResponse(), context, work)

    async def Telemetry(
        self, request_iterator: AsyncIterator[mq.TelemetryCommand], context: Context
    ) -> AsyncIterator[mq.TelemetryCommand]:
        """Answer settings, and ask the client."""
        try:
            await self._admit(context)
            async for command in self._telemetry.serve(client_id(context), request_iterator):
                yield command
        except FAILURES as error:
            status = status_of(error)
            # A Node client raises this one, and waits without end if the stream only ends.
            yield mq.TelemetryCommand(status=status)
            await context.abort(_STREAM_CODES.get(status.code, grpc.StatusCode.INVALID_ARGUMENT), status.message)

    async def PullMessage(
        self, request: mq.PullMessageRequest, context: Context
    ) -> AsyncIterator[mq.PullMessageResponse]:
        """Refuse the call."""
        await _unimplemented(context)
        yield mq.PullMessageResponse()  # an asynchronous generator, though it is never reached

    async def UpdateOffset(self, request: mq.UpdateOffsetRequest, context: Context) -> mq.UpdateOffsetResponse:
        """Refuse the call."""
        await _unimplemented(context)

    async def GetOffset(self, request: mq.GetOffsetRequest, context: Context) -> mq.GetOffsetResponse:
        """Refuse the call."""
        await _unimplemented(context)

    async def QueryOffset(self, request: mq.QueryOffsetRequest, context: Context) -> mq.QueryOffsetResponse:
        """Refuse the call."""
        await _unimplemented(context)

    async def SyncLiteSubscription(
        self, request: mq.SyncLiteSubscriptionRequest, context: Context
    ) -> mq.SyncLiteSubscriptionResponse:
        """Refuse the call."""
        await _unimplemented(context)


async def _unimplemented(context: Context) -> NoReturn:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not implemented: no official client uses it")


def _consumer(context: Context) -> FrontConsumer:
    """Return the consumer that calls, after it was admitted."""
    return FrontConsumer(client_id(context), current_client())


def _limit_s(context: Context) -> float:
    """Return how long a call may take, so that its answer arrives before the deadline of the client."""
    left_s: float | None = context.time_remaining()
    return _LIMIT_S if left_s is None else max(min(left_s, _LIMIT_S_MAX) - _ANSWER_S, 0.0)


def _refuse(error: IllegalRequest, response: Any, _request: object) -> Message:
    """Return the response to a request that exceeds a bound: see `dledger.service.guarded_method.Refuse`."""
    is_send = isinstance(response, mq.SendMessageResponse)
    code = mq.MESSAGE_BODY_TOO_LARGE if is_send and "body" in str(error) else mq.BAD_REQUEST
    response.status.CopyFrom(mq.Status(code=code, message=str(error)))
    refused: Message = response
    return refused

"""The gRPC service `cluster.v1.BrokerService` of one replica: it passes each call to its handler.

A refusal is an ordinary response with an `Answer`; gRPC errors come only from gRPC itself. `put_calls`, `read_calls`
and `cluster.broker.core` list the answers to invalid input; `cluster.protocol.errors` has the code and the certainty of
each cause.
"""

# ruff: noqa: ARG002, N802  (gRPC prescribes names and arguments of the methods)
from __future__ import annotations

import socket
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import grpc.aio

from cluster.api.answers import answered, refusal
from cluster.api.group_calls import GroupCalls
from cluster.api.log_calls import LogCalls
from cluster.api.put_calls import PutCalls
from cluster.api.query_calls import QueryCalls
from cluster.api.read_calls import ReadCalls
from cluster.api.topic_calls import TopicCalls
from cluster.api.waiting.delay_calls import DelayCalls
from cluster.api.waiting.pop_calls import PopCalls
from cluster.api.waiting.recall_calls import RecallCalls
from cluster.api.waiting.return_calls import ReturnCalls
from cluster.api.waiting.transaction_calls import TransactionCalls
from cluster.broker.core import wall_clock_ms
from cluster.protocol.request_bounds import BROKER_BOUNDS
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc, nameserver_pb2
from dledger.service.grpc_server import Served
from dledger.service.guarded_method import Guard
from store.model.message import LOOPBACK, Host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from google.protobuf.message import Message

    from cluster.broker.core import BrokerCore
    from cluster.delivery.timers import TimerDelivery
    from cluster.delivery.transactions.checks import TransactionChecks
    from cluster.delivery.transactions.ends import TransactionEnds
    from store.errors import IllegalRequest

Context = grpc.aio.ServicerContext[Any, Any]

# Responses of methods that change something.
_OF_CHANGES: Final = (
    pb.ChangeResponse,
    pb.CommitOffsetResponse,
    pb.LockQueuesResponse,
    pb.AcknowledgeResponse,
    pb.ChangeInvisibleResponse,
    pb.EndTransactionResponse,
    pb.EndTransactionsResponse,
    pb.RecallMessageResponse,
    pb.ReceiveResponse,
    pb.ReturnMessageResponse,
)
# Methods that the frame port serves, too (ADR 65).
_FRAMED: Final = frozenset({"Put", "Get"})
# Methods that wait for messages; rights may end meanwhile. Messages that are taken and not given are given again.
_HELD: Final = frozenset({"Get", "Receive"})
# A consumer is a member with the group and topics of its last request.
_LASTING: Final = frozenset({"JoinGroup"})
_FAMILIES: Final = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


class BrokerService(broker_pb2_grpc.BrokerServiceServicer):
    """The servicer.

    Args:
        core: rules of the broker.
        ends: ends transactions.
        checks: asks producers about transactions.
        timers: the delivery of messages at any time on this node.
        frame_address: of the frame port, which answers about routes contain; empty: there is none.
        clock_ms: the wall clock, by which messages of pop consumers become visible; milliseconds since 1970.
    """

    def __init__(
        self,
        core: BrokerCore,
        ends: TransactionEnds,
        checks: TransactionChecks,
        timers: TimerDelivery,
        *,
        frame_address: str = "",
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._core = core
        self._frame_address = frame_address
        self._puts = PutCalls(core)
        self._reads = ReadCalls(core)
        self._queries = QueryCalls(core)
        self._log = LogCalls(core)
        self._delays = DelayCalls(core, timers)
        self._recalls = RecallCalls(core, timers)
        self._returns = ReturnCalls(core)
        self._transactions = TransactionCalls(core, ends, checks)
        self.groups = GroupCalls(core)
        self.pops = PopCalls(core, clock_ms)
        self.topics = TopicCalls(core, self.groups.members)

    def served(self) -> Served:
        """Return the service as a server of gRPC adds it."""
        service = pb.DESCRIPTOR.services_by_name["BrokerService"]
        guard = Guard(BROKER_BOUNDS, self._refuse, is_stream_checked=True, framed=_FRAMED, held=_HELD, lasting=_LASTING)
        return Served(broker_pb2_grpc.add_BrokerServiceServicer_to_server, self, service, guard)

    def _refuse(self, error: IllegalRequest, response: Any, request: Any) -> Message:
        """Return the response to a request that exceeds a bound: see `dledger.service.guarded_method.Refuse`."""
        if isinstance(response, pb.PutResponse):
            refused = self._puts.refused(error, request)
        else:
            is_read = not isinstance(response, _OF_CHANGES)
            response.answer.CopyFrom(refusal(self._core, error, is_read=is_read))
            refused = response
        return refused

    async def Put(self, request: pb.PutRequest, context: Context) -> pb.PutResponse:
        """Put all messages of the request."""
        metadata = () if self._core.put_spans is None else context.invocation_metadata() or ()
        return await self._puts.put(request, host_of(context.peer()), metadata)

    async def PutStream(
        self, request_iterator: AsyncIterator[pb.PutRequest], context: Context
    ) -> AsyncIterator[pb.PutResponse]:
        """Put the messages of each request."""
        async for response in self._puts.put_stream(request_iterator, host_of(context.peer())):
            yield response

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetResponse:
        """Read one queue."""
        return await answered(self._core, pb.GetResponse, self._reads.get(request), is_read=True)

    async def Subscribe(self, request: pb.SubscribeRequest, context: Context) -> AsyncIterator[pb.SubscribeResponse]:
        """Stream the messages of queues, endlessly."""
        async for response in self._reads.subscribe(request):
            yield response

    async def QueryByKey(self, request: pb.QueryByKeyRequest, context: Context) -> pb.QueryResponse:
        """Find messages by a key."""
        return await answered(self._core, pb.QueryResponse, self._queries.by_key(request), is_read=True)

    async def QueryById(self, request: pb.QueryByIdRequest, context: Context) -> pb.QueryResponse:
        """Find the message with an id."""
        return await answered(self._core, pb.QueryResponse, self._queries.by_id(request), is_read=True)

    async def QueryByTime(self, request: pb.QueryByTimeRequest, context: Context) -> pb.QueryByTimeResponse:
        """Find messages by store timestamp."""
        return await answered(self._core, pb.QueryByTimeResponse, self._queries.by_time(request), is_read=True)

    async def Offsets(self, request: pb.OffsetsRequest, context: Context) -> pb.OffsetsResponse:
        """Return the first and the end offset of queues."""
        return await answered(self._core, pb.OffsetsResponse, self._queries.offsets(request), is_read=True)

    async def DescribeLog(self, request: pb.DescribeLogRequest, context: Context) -> pb.DescribeLogResponse:
        """Return the readable ranges of topics."""
        return await answered(self._core, pb.DescribeLogResponse, self._log.describe(request), is_read=True)

    async def PlanLog(self, request: pb.PlanLogRequest, context: Context) -> pb.PlanLogResponse:
        """Return the next range for a reader of many queues."""
        return await answered(self._core, pb.PlanLogResponse, self._log.plan(request), is_read=True)

    async def ReadLog(self, request: pb.ReadLogRequest, context: Context) -> AsyncIterator[pb.ReadLogResponse]:
        """Stream the log in large chunks."""
        async for response in self._log.read(request):
            yield response

    async def CommitOffset(self, request: pb.CommitOffsetRequest, context: Context) -> pb.CommitOffsetResponse:
        """Commit the consumed offsets of a group."""
        return await answered(self._core, pb.CommitOffsetResponse, self.groups.commit(request))

    async def FetchOffset(self, request: pb.FetchOffsetRequest, context: Context) -> pb.FetchOffsetResponse:
        """Return the consumed offsets of a group."""
        return await answered(self._core, pb.FetchOffsetResponse, self.groups.fetch(request), is_read=True)

    async def ResetOffset(self, request: pb.ResetOffsetRequest, context: Context) -> pb.ChangeResponse:
        """Set offsets of a group."""
        return await answered(self._core, pb.ChangeResponse, self.groups.reset(request))

    async def JoinGroup(
        self, request_iterator: AsyncIterator[pb.JoinGroupRequest], context: Context
    ) -> AsyncIterator[pb.JoinGroupResponse]:
        """Keep a consumer in its group."""
        async for response in self.groups.join(request_iterator):
            yield response

    async def LockQueues(self, request: pb.LockQueuesRequest, context: Context) -> pb.LockQueuesResponse:
        """Lock queues for one consumer."""
        return await answered(self._core, pb.LockQueuesResponse, self.groups.lock(request))

    async def UnlockQueues(self, request: pb.LockQueuesRequest, context: Context) -> pb.ChangeResponse:
        """Release a consumer's queue locks."""
        return await answered(self._core, pb.ChangeResponse, self.groups.unlock(request))

    async def ReturnMessage(self, request: pb.ReturnMessageRequest, context: Context) -> pb.ReturnMessageResponse:
        """Return a message that a consumer failed to process."""
        return await answered(self._core, pb.ReturnMessageResponse, self._returns.return_message(request))

    async def Receive(self, request: pb.ReceiveRequest, context: Context) -> pb.ReceiveResponse:
        """Take messages for a group."""
        return await answered(self._core, pb.ReceiveResponse, self.pops.receive(request))

    async def Acknowledge(self, request: pb.AcknowledgeRequest, context: Context) -> pb.AcknowledgeResponse:
        """Acknowledge received messages."""
        return await answered(self._core, pb.AcknowledgeResponse, self.pops.acknowledge(request))

    async def ChangeInvisible(self, request: pb.ChangeInvisibleRequest, context: Context) -> pb.ChangeInvisibleResponse:
        """Change the time for which a received message is invisible."""
        return await answered(self._core, pb.ChangeInvisibleResponse, self.pops.change_invisible(request))

    async def SetTopic(self, request: pb.SetTopicRequest, context: Context) -> pb.ChangeResponse:
        """Create or change a topic."""
        return await answered(self._core, pb.ChangeResponse, self.topics.set_topic(request))

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, context: Context) -> pb.ChangeResponse:
        """Delete a topic."""
        return await answered(self._core, pb.ChangeResponse, self.topics.delete_topic(request))

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        """Return topics."""
        return await answered(self._core, pb.ListTopicsResponse, self.topics.list_topics(request), is_read=True)

    async def SetGroup(self, request: pb.SetGroupRequest, context: Context) -> pb.ChangeResponse:
        """Create or change a group."""
        return await answered(self._core, pb.ChangeResponse, self.topics.set_group(request))

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Context) -> pb.ChangeResponse:
        """Delete a group."""
        return await answered(self._core, pb.ChangeResponse, self.topics.delete_group(request))

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        """Return groups."""
        return await answered(self._core, pb.ListGroupsResponse, self.topics.list_groups(request), is_read=True)

    async def Route(self, request: nameserver_pb2.RouteRequest, context: Context) -> nameserver_pb2.RouteResponse:
        """Return the routes of topics."""
        kind = nameserver_pb2.RouteResponse
        response: nameserver_pb2.RouteResponse = await answered(
            self._core, kind, self.topics.route(request), is_read=True
        )
        response.frame_address = self._frame_address
        return response

    async def DelayLevels(self, request: pb.DelayLevelsRequest, context: Context) -> pb.DelayLevelsResponse:
        """Return the state of the queues of the delay levels."""
        return await answered(self._core, pb.DelayLevelsResponse, self._delays.levels(request), is_read=True)

    async def SetDelayLevels(self, request: pb.SetDelayLevelsRequest, context: Context) -> pb.ChangeResponse:
        """Set the delays of the delay levels."""
        return await answered(self._core, pb.ChangeResponse, self._delays.set_levels(request))

    async def RecallMessage(self, request: pb.RecallMessageRequest, context: Context) -> pb.RecallMessageResponse:
        """Recall a message that waits for its time."""
        return await answered(self._core, pb.RecallMessageResponse, self._recalls.recall(request))

    async def EndTransaction(self, request: pb.EndTransactionRequest, context: Context) -> pb.EndTransactionResponse:
        """End a transaction."""
        return await answered(self._core, pb.EndTransactionResponse, self._transactions.end(request))

    async def EndTransactions(self, request: pb.EndTransactionsRequest, context: Context) -> pb.EndTransactionsResponse:
        """End many transactions."""
        return await answered(self._core, pb.EndTransactionsResponse, self._transactions.end_many(request))

    async def TransactionChecks(
        self, request: pb.TransactionChecksRequest, context: Context
    ) -> AsyncIterator[pb.TransactionChecksResponse]:
        """Ask a producer about transactions, endlessly."""
        async for response in self._transactions.checks(request):
            yield response

    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        """Return open transactions."""
        return await answered(
            self._core, pb.ListTransactionsResponse, self._transactions.list_open(request), is_read=True
        )

    async def Status(self, request: pb.BrokerStatusRequest, context: Context) -> pb.BrokerStatusResponse:
        """Return the state of this node's message store."""
        return await answered(self._core, pb.BrokerStatusResponse, self.topics.status(request), is_read=True)


@lru_cache(maxsize=4096)
def host_of(peer: str) -> Host:
    """Parse gRPC's name of a client, `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`; loopback for other forms."""
    family, _, rest = peer.partition(":")
    address, _, port = unquote(rest).rpartition(":")
    try:
        return Host(socket.inet_pton(_FAMILIES[family], address.strip("[]").partition("%")[0]), int(port))
    except (KeyError, OSError, ValueError):
        return LOOPBACK

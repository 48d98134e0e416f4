"""The gRPC service `cluster.v1.BrokerService` in front of one replica: passes each call to its handler.

A refusal is an ordinary response with an `Answer`; a gRPC error only ever comes from gRPC itself. The answer to bad
input is described in `put_calls`,`read_calls` and `cluster.broker.core`; code and certainty of each cause in
`cluster.protocol.errors`.
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
from cluster.protocol.request_bounds import BROKER_BOUNDS
from cluster.v1 import broker_pb2 as pb
from cluster.v1 import broker_pb2_grpc, nameserver_pb2
from dledger.service.grpc_server import Served
from dledger.service.request_guard import Guard
from store.model.message import LOOPBACK, Host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message

    from cluster.broker.core import BrokerCore
    from store.errors import IllegalRequest

Context = grpc.aio.ServicerContext[Any, Any]

# Responses of methods that change something.
_OF_CHANGES: Final = (pb.ChangeResponse, pb.CommitOffsetResponse, pb.LockQueuesResponse)
_FAMILIES: Final = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


class BrokerService(broker_pb2_grpc.BrokerServiceServicer):
    """The servicer.

    Args:
        core: of the broker.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._puts = PutCalls(core)
        self._reads = ReadCalls(core)
        self._queries = QueryCalls(core)
        self._log = LogCalls(core)
        self.groups = GroupCalls(core)
        self.topics = TopicCalls(core, self.groups.members)

    def served(self) -> Served:
        """Return the registration of this service at a server."""
        service = pb.DESCRIPTOR.services_by_name["BrokerService"]
        guard = Guard(BROKER_BOUNDS, self._refuse, is_stream_checked=True)
        return Served(broker_pb2_grpc.add_BrokerServiceServicer_to_server, self, service, guard)

    def _refuse(self, error: IllegalRequest, response: Any, request: Any) -> Message:
        """Return the response to a request that breaks a bound: see `dledger.service.request_guard.Refuse`."""
        if isinstance(response, pb.PutResponse):
            refused = self._puts.refused(error, request)
        else:
            is_read = not isinstance(response, _OF_CHANGES)
            response.answer.CopyFrom(refusal(self._core, error, is_read=is_read))
            refused = response
        return refused

    async def Put(self, request: pb.PutRequest, context: Context) -> pb.PutResponse:
        """Put all messages of the request."""
        return await self._puts.put(request, host_of(context.peer()))

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
        """Read queues without end."""
        async for response in self._reads.subscribe(request):
            yield response

    async def QueryByKey(self, request: pb.QueryByKeyRequest, context: Context) -> pb.QueryResponse:
        """Find messages by a key."""
        return await answered(self._core, pb.QueryResponse, self._queries.by_key(request), is_read=True)

    async def QueryById(self, request: pb.QueryByIdRequest, context: Context) -> pb.QueryResponse:
        """Find the message of an id."""
        return await answered(self._core, pb.QueryResponse, self._queries.by_id(request), is_read=True)

    async def QueryByTime(self, request: pb.QueryByTimeRequest, context: Context) -> pb.QueryByTimeResponse:
        """Find messages by when they were stored."""
        return await answered(self._core, pb.QueryByTimeResponse, self._queries.by_time(request), is_read=True)

    async def Offsets(self, request: pb.OffsetsRequest, context: Context) -> pb.OffsetsResponse:
        """Answer the first and last offset of queues."""
        return await answered(self._core, pb.OffsetsResponse, self._queries.offsets(request), is_read=True)

    async def DescribeLog(self, request: pb.DescribeLogRequest, context: Context) -> pb.DescribeLogResponse:
        """Answer the readable ranges of topics."""
        return await answered(self._core, pb.DescribeLogResponse, self._log.describe(request), is_read=True)

    async def PlanLog(self, request: pb.PlanLogRequest, context: Context) -> pb.PlanLogResponse:
        """Answer the next range for a reader of many queues."""
        return await answered(self._core, pb.PlanLogResponse, self._log.plan(request), is_read=True)

    async def ReadLog(self, request: pb.ReadLogRequest, context: Context) -> AsyncIterator[pb.ReadLogResponse]:
        """Read the log in great chunks."""
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
        """Give queues to one consumer alone."""
        return await answered(self._core, pb.LockQueuesResponse, self.groups.lock(request))

    async def UnlockQueues(self, request: pb.LockQueuesRequest, context: Context) -> pb.ChangeResponse:
        """Take queues back from a consumer."""
        return await answered(self._core, pb.ChangeResponse, self.groups.unlock(request))

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
        """Return the way to topics."""
        return await answered(self._core, nameserver_pb2.RouteResponse, self.topics.route(request), is_read=True)

    async def Status(self, request: pb.BrokerStatusRequest, context: Context) -> pb.BrokerStatusResponse:
        """Answer the state of this node's messages."""
        return await answered(self._core, pb.BrokerStatusResponse, self.topics.status(request), is_read=True)


@lru_cache(maxsize=4096)
def host_of(peer: str) -> Host:
    """Return the client of a call, as gRPC names it: `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000`; else loopback."""
    family, _, rest = peer.partition(":")
    address, _, port = unquote(rest).rpartition(":")
    try:
        return Host(socket.inet_pton(_FAMILIES[family], address.strip("[]").partition("%")[0]), int(port))
    except (KeyError, OSError, ValueError):
        return LOOPBACK

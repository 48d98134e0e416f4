"""The gRPC service `dledger.v1.AdminService` of one node: the members of the group, its leader, and its watchers.

Every refusal is an ordinary response with a code and a message. Not here: the rules of changes and transfers
(`dledger.core`), deadlines and bounds (`dledger.node.node`).

| request                                                       | code                            | found in |
| ------------------------------------------------------------- | ------------------------------- | -------- |
| unknown group                                                 | 400 UNKNOWN_GROUP               | here     |
| an invalid id or address; too many members         | 411 UNEXPECTED_ARGUMENT         | node     |
| add, promote: the entry with all members fits no data file    | 411 UNEXPECTED_ARGUMENT         | driver   |
| the node does not lead                                        | 404 NOT_LEADER                  | core     |
| promote, remove, transfer: no (voting) member of that id      | 401 UNKNOWN_MEMBER              | core     |
| add: a member at another address                              | 402 UNEXPECTED_MEMBER           | core     |
| another change is in progress, or too many requests           | 412 REPEATED_REQUEST            | core     |
| promote, transfer: the node does not answer                   | 302, 418                        | core     |
| promote, transfer: the node lacks too much                    | 417 FALL_BEHIND_TOO_MUCH        | core     |
| promote, remove: too few voters would be alive                | 406 INCONSISTENT_STATE          | core     |
| transfer: the target did not take over in time                | 418 TAKE_LEADERSHIP_FAILED      | core     |
| not done in time: it may still happen                         | 502 WAIT_QUORUM_ACK_TIMEOUT     | node     |
| nothing of this leader's term is committed; a transfer runs   | 505, 506                        | core     |
| watch: an interval or a sequence number out of bounds         | 411 UNEXPECTED_ARGUMENT         | watch    |
| watch: too many streams watch this node already               | 503 LEADER_PENDING_FULL         | node     |
"""

# ruff: noqa: ARG002, N802  (gRPC prescribes names and arguments of the methods)
from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

import grpc.aio

from dledger.core.events import MembershipAction
from dledger.errors import ResponseCode
from dledger.pending.reads import RequestRefused
from dledger.pending.requests import RequestResult
from dledger.service.answers import group_id_of, hint, members_of, peers_of
from dledger.service.watch import watch_node
from dledger.v1 import admin_pb2, admin_pb2_grpc, watch_pb2

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from dledger.node.node import Node

Context = grpc.aio.ServicerContext[Any, Any]


class _Request(Protocol):
    @property
    def group(self) -> str: ...


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """The servicer; gRPC prescribes the names of its methods.

    Args:
        node: a started node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def ListMembers(
        self, request: admin_pb2.ListMembersRequest, context: Context
    ) -> admin_pb2.ListMembersResponse:
        """Return the members."""
        node = self._node
        fault = self._fault_of(request)
        if fault is not None:
            return admin_pb2.ListMembersResponse(code=fault.code, message=fault.message)
        status = node.status()
        return admin_pb2.ListMembersResponse(
            code=ResponseCode.SUCCESS,
            leader=hint(status.leader),
            members=members_of(status),
            membership_index=status.membership.index,
            is_committed=status.is_membership_committed,
            peers=peers_of(status),
            group_id=group_id_of(status),
        )

    async def AddMember(self, request: admin_pb2.AddMemberRequest, context: Context) -> admin_pb2.AdminResponse:
        """Add a learner."""
        return await self._answer(
            request, lambda: self._node.change_membership(MembershipAction.ADD, request.id, request.address)
        )

    async def PromoteMember(self, request: admin_pb2.PromoteMemberRequest, context: Context) -> admin_pb2.AdminResponse:
        """Make a learner a voter."""
        return await self._answer(request, lambda: self._node.change_membership(MembershipAction.PROMOTE, request.id))

    async def RemoveMember(self, request: admin_pb2.RemoveMemberRequest, context: Context) -> admin_pb2.AdminResponse:
        """Remove a member."""
        return await self._answer(request, lambda: self._node.change_membership(MembershipAction.REMOVE, request.id))

    async def TransferLeadership(
        self, request: admin_pb2.TransferLeadershipRequest, context: Context
    ) -> admin_pb2.AdminResponse:
        """Transfer the leadership."""
        return await self._answer(request, lambda: self._node.transfer_leadership(request.id))

    async def Watch(self, request: watch_pb2.WatchRequest, context: Context) -> AsyncIterator[watch_pb2.WatchResponse]:
        """Stream state and events; if the stream ends, the last response has the reason."""
        node = self._node
        fault = self._fault_of(request)
        if fault is not None:
            node.metrics.count_refusal(fault.code)
            yield watch_pb2.WatchResponse(code=fault.code, message=fault.message, leader=hint(node.leader()))
            return
        try:
            async with aclosing(watch_node(node.watching, request)) as responses:
                async for response in responses:
                    yield response
        except RequestRefused as refused:
            node.metrics.count_refusal(refused.code)
            yield watch_pb2.WatchResponse(code=refused.code, message=refused.message, leader=hint(node.leader()))

    async def _answer(
        self, request: _Request, ask: Callable[[], asyncio.Future[RequestResult]]
    ) -> admin_pb2.AdminResponse:
        result = self._fault_of(request) or await ask()
        if result.code is not ResponseCode.SUCCESS:
            self._node.metrics.count_refusal(result.code)
        return admin_pb2.AdminResponse(code=result.code, message=result.message, leader=hint(self._node.leader()))

    def _fault_of(self, request: _Request) -> RequestResult | None:
        group = self._node.config.group
        if request.group != group:
            message = f"this node serves group {group!r}, not {request.group!r}"
            return RequestResult(ResponseCode.UNKNOWN_GROUP, message)
        if not self._node.is_running:
            return RequestResult(ResponseCode.INTERNAL_ERROR, "this node has stopped")
        return None

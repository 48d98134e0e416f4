"""The gRPC service `dledger.v1.LogService` of one node: checks requests, calls the node, builds the answers.

Place on the path of an append: between the client's request and `Node.append`. Every refusal is an ordinary response
with a code and a message; a gRPC error comes from gRPC itself (connection lost, message above the limit) or from the
gate in front of the service (`call_gate`). Not
here: consensus and limits of the backlog (`dledger.node.node`), pieces and checksums of a read
(`dledger.node.log_reader`).

Answers to invalid input (code, and the part that detects it):

| request                                                       | code                                | found in   |
| ------------------------------------------------------------- | ----------------------------------- | ---------- |
| unknown group                                                 | 400 UNKNOWN_GROUP                   | here       |
| append: the log holds messages, which have their own service  | 411 UNEXPECTED_ARGUMENT             | here       |
| append: no bodies                                             | 420 REQUEST_WITH_EMPTY_BODYS        | node       |
| append: body above the limit, batch above all bounds          | 411 UNEXPECTED_ARGUMENT             | node       |
| append: node does not lead, or is stopping                    | 404 NOT_LEADER, with a hint         | node, core |
| linearizable read: no leader is known, or it is stopping      | 404 NOT_LEADER, with a hint         | node, core |
| append: the leadership is being transferred                   | 506 LEADER_TRANSFERRING             | core       |
| append: backlog full                                          | 503 LEADER_PENDING_FULL             | node       |
| append: user or address has its share of the backlog          | 503 LEADER_PENDING_FULL             | here       |
| append: disk full                                             | 415 DISK_FULL                       | driver     |
| append: not committed in time                                 | 502 WAIT_QUORUM_ACK_TIMEOUT         | node       |
| a field above its bound (`request_bounds`)                    | 411 UNEXPECTED_ARGUMENT             | guard      |
| append on a stream: the gate refuses it                       | 440 ACCESS_DENIED, 442 OVER_QUOTA   | guard      |
| read: neither index nor position; limit negative or absurd    | 411 UNEXPECTED_ARGUMENT             | here       |
| read: no entry begins at the position                         | 411 UNEXPECTED_ARGUMENT             | log_reader |
| read: begins before the log                                   | 419 INDEX_LESS_THAN_LOCAL_BEGIN     | log_reader |
| read: begins beyond the committed end + 1                     | 410 INDEX_OUT_OF_RANGE              | log_reader |
| read: entry damaged on this node's disk                       | 414 DISK_ERROR                      | log_reader |
| read: too many streams follow the log already                 | 503 LEADER_PENDING_FULL             | here       |
| anything: the node has stopped                                | 500 INTERNAL_ERROR, 414 DISK_ERROR  | node       |
"""

# ruff: noqa: ARG002, N802  (gRPC prescribes names and arguments of the methods)
from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc.aio

from dledger.errors import CallRefused, ResponseCode
from dledger.pending.appends import AppendResult
from dledger.pending.reads import RequestRefused
from dledger.security.settings import PLAIN
from dledger.service.admin import AdminService
from dledger.service.answers import hint, refuse_log_request, status_response
from dledger.service.grpc_server import Served, start_grpc_server
from dledger.service.guarded_method import BadRequest, Guard
from dledger.service.limits.append_shares import AppendShares
from dledger.service.limits.request_bounds import LOG_BOUNDS
from dledger.service.pipelined_call import PipelinedCall
from dledger.service.request_guard import BoundsCheck
from dledger.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dledger.config import Address
    from dledger.entries.format.entry import Entry
    from dledger.node.log_reader import LogCursor
    from dledger.node.node import Node
    from dledger.security.server_port import PortSecurity
    from dledger.service.call_gate import CallGate
    from dledger.service.frames.port import FramePort

Context = grpc.aio.ServicerContext[Any, Any]

FOLLOWERS_MAX = 256
# What clients send most, and the request that keeps a connection of frames in use.
_FRAMED = frozenset({"Append", "Status"})

_SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"]


def log_services(node: Node, *, append_refusal: str = "", frame_address: str = "") -> list[Served]:
    """Return the services of a node's log: LogService and AdminService.

    Args:
        node: a started node.
        append_refusal: the reason why clients may not append; empty: they may.
        frame_address: of the frame port of the same services; empty: there is none.
    """
    return [
        Served(
            log_pb2_grpc.add_LogServiceServicer_to_server,
            LogService(node, append_refusal=append_refusal, frame_address=frame_address),
            _SERVICE,
            Guard(LOG_BOUNDS, refuse_log_request, is_stream_checked=True, framed=_FRAMED),
        ),
        Served(
            admin_pb2_grpc.add_AdminServiceServicer_to_server,
            AdminService(node),
            admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
            Guard(LOG_BOUNDS, refuse_log_request),
        ),
    ]


async def start_server(
    node: Node,
    address: Address,
    security: PortSecurity = PLAIN,
    gate: CallGate | None = None,
    frames: FramePort | None = None,
) -> grpc.aio.Server:
    """Serve a log of raw entries on `address`; stop it with `await server.stop(grace)`, before the node.

    Args:
        node: a started node.
        address: to listen on.
        security: of all connections.
        gate: admits calls; None: all of them.
        frames: serves appends, too; the caller stops it, before the node.

    Raises:
        dledger.service.grpc_server.ServerNotStarted: the address is taken or wrong.
    """
    overloaded = partial(node.metrics.count_refusal, ResponseCode.LEADER_PENDING_FULL)
    services = log_services(node, frame_address=str(frames.address) if frames is not None else "")
    return await start_grpc_server(
        address, services, security=security, gate=gate, count_overloaded=overloaded, frames=frames
    )


class LogService(log_pb2_grpc.LogServiceServicer):
    """The servicer; gRPC prescribes the names of its methods.

    Args:
        node: a started node.
        append_refusal: the reason why clients may not append; empty: they may.
        frame_address: of the frame port, for `Status`; empty: there is none.
    """

    def __init__(self, node: Node, *, append_refusal: str = "", frame_address: str = "") -> None:
        self._node = node
        self._append_refusal = append_refusal
        self._frame_address = frame_address
        self._group = node.config.group
        self._followers_count = 0
        self._read_entries = 0
        self._shares = AppendShares(node.config)
        self._check_bounds = BoundsCheck(_SERVICE.methods_by_name["AppendStream"], LOG_BOUNDS)

    # -------------------------------------------------------------------------------------------------------- append

    async def Append(self, request: log_pb2.AppendRequest, context: Context) -> log_pb2.AppendResponse:
        """Append all bodies; answer when they are committed."""
        # Shielded: the share of an append ends with the append, not with its call.
        return self._append_response(request.request_id, await asyncio.shield(self._append_of(request)))

    async def AppendStream(
        self, request_iterator: AsyncIterator[log_pb2.AppendRequest], context: Context
    ) -> AsyncIterator[log_pb2.AppendResponse]:
        """Append the bodies of each request; answer each when they are committed."""
        call = PipelinedCall(self._append_of, self._append_response)
        async for response in call.run(request_iterator):
            yield response

    def _append_of(self, request: log_pb2.AppendRequest) -> asyncio.Future[AppendResult]:
        refusal = self._refusal_of(request)
        if refusal is None:
            bodies = list(request.bodies)
            try:
                return self._shares.held_while(bodies, self._node.append)
            except CallRefused as error:
                refusal = AppendResult(error.code, str(error))
        self._node.metrics.count_refusal(refusal.code)
        refused: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        refused.set_result(refusal)
        return refused

    def _refusal_of(self, request: log_pb2.AppendRequest) -> AppendResult | None:
        try:
            self._check_bounds(request)
        except BadRequest as error:
            return AppendResult(ResponseCode.UNEXPECTED_ARGUMENT, str(error))
        except CallRefused as error:
            return AppendResult(error.code, str(error))
        if request.group != self._group:
            return AppendResult(ResponseCode.UNKNOWN_GROUP, self._unknown_group_message(request.group))
        if self._append_refusal:
            return AppendResult(ResponseCode.UNEXPECTED_ARGUMENT, self._append_refusal)
        return None

    def _unknown_group_message(self, group: str) -> str:
        return f"this node serves group {self._group!r}, not {group!r}"

    def _append_response(self, request_id: int, result: AppendResult) -> log_pb2.AppendResponse:
        if result.code is ResponseCode.SUCCESS:
            return log_pb2.AppendResponse(
                request_id=request_id,
                code=200,
                first_index=result.first_index,
                term=result.term,
                positions=result.positions,
            )
        return log_pb2.AppendResponse(
            request_id=request_id,
            code=result.code,
            message=result.message,
            leader=hint(self._node.leader()),
            first_index=-1,
            term=-1,
        )

    # ---------------------------------------------------------------------------------------------------------- read

    async def Read(self, request: log_pb2.ReadRequest, context: Context) -> AsyncIterator[log_pb2.ReadResponse]:
        """Stream committed entries; if the stream ends early, the last response has the reason."""
        try:
            async for response in self._read(request):
                yield response
        except RequestRefused as refused:
            self._node.metrics.count_refusal(refused.code)
            yield log_pb2.ReadResponse(
                code=refused.code,
                message=refused.message,
                leader=hint(self._node.leader()),
                commit_index=self._node.commit_index,
            )

    async def _read(self, request: log_pb2.ReadRequest) -> AsyncIterator[log_pb2.ReadResponse]:
        if request.group != self._group:
            raise RequestRefused(ResponseCode.UNKNOWN_GROUP, self._unknown_group_message(request.group))
        self._check_running()
        if request.mode == log_pb2.READ_MODE_LOCAL:
            last_index = self._node.commit_index
        else:
            is_lease_allowed = request.mode == log_pb2.READ_MODE_LEASE
            last_index = await self._node.read_index(is_lease_allowed=is_lease_allowed)
        cursor = self._cursor(request, last_index)
        if cursor.next_index > last_index:
            # An empty response: it shows the reader that the read was accepted, and the end of the log.
            yield self._entries_response([])
        if not request.follow:
            while response := self._next_piece(cursor, last_index, is_raw=request.raw):
                yield response
            return
        async for response in self._follow(cursor, last_index, is_raw=request.raw):
            yield response

    async def _follow(self, cursor: LogCursor, last_index: int, *, is_raw: bool) -> AsyncIterator[log_pb2.ReadResponse]:
        """Stream the committed entries, then those that are committed later, until a limit is reached."""
        if self._followers_count >= FOLLOWERS_MAX:
            message = f"{self._followers_count} streams already follow the log; at most {FOLLOWERS_MAX} are allowed"
            raise RequestRefused(ResponseCode.LEADER_PENDING_FULL, message)
        self._followers_count += 1
        try:
            while not cursor.is_done:
                while response := self._next_piece(cursor, last_index, is_raw=is_raw):
                    yield response
                if not cursor.is_done:
                    last_index = await self._node.wait_commit(last_index)
        finally:
            self._followers_count -= 1

    def _next_piece(self, cursor: LogCursor, last_index: int, *, is_raw: bool) -> log_pb2.ReadResponse | None:
        """Return the next piece; None when `last_index`, or a limit, is reached."""
        self._check_running()
        begin = cursor.next_index
        if is_raw:
            encoded = cursor.read_encoded(last_index)
            self._read_entries += cursor.next_index - begin
            return (
                log_pb2.ReadResponse(code=200, commit_index=self._node.commit_index, encoded=encoded)
                if encoded
                else None
            )
        entries = cursor.read_entries(last_index)
        self._read_entries += len(entries)
        return self._entries_response(entries) if entries else None

    def _entries_response(self, entries: list[Entry]) -> log_pb2.ReadResponse:
        response = log_pb2.ReadResponse(code=200, commit_index=self._node.commit_index)
        add = response.entries.add
        for entry in entries:
            add(index=entry.index, term=entry.term, position=entry.position, magic=entry.magic, body=entry.body)
        return response

    def _check_running(self) -> None:
        """Refuse to read from a node that stopped: its files may be closed."""
        if not self._node.is_running:
            raise RequestRefused(ResponseCode.INTERNAL_ERROR, "this node has stopped")

    def _cursor(self, request: log_pb2.ReadRequest, last_index: int) -> LogCursor:
        reader, begin = self._node.reader, request.WhichOneof("begin")
        if begin is None:
            raise RequestRefused(ResponseCode.UNEXPECTED_ARGUMENT, "expected an index or a position to begin at")
        if begin == "index":
            first_index = reader.at_index(request.index, last_index)
        else:
            first_index = reader.at_position(request.position, last_index)
        return reader.cursor(first_index, request.max_entries, request.max_bytes)

    # -------------------------------------------------------------------------------------------------------- status

    async def Status(self, request: log_pb2.StatusRequest, context: Context) -> log_pb2.StatusResponse:
        """Answer the status of this node and, on a leader, of its peers."""
        if request.group not in ("", self._group):
            message = self._unknown_group_message(request.group)
            return log_pb2.StatusResponse(code=ResponseCode.UNKNOWN_GROUP, message=message)
        if not self._node.is_running:
            return log_pb2.StatusResponse(code=ResponseCode.INTERNAL_ERROR, message="this node has stopped")
        response = status_response(self._node.status())
        response.disk_used_ratio, response.read_entries = self._node.metrics.disk_used_ratio, self._read_entries
        response.frame_address = self._frame_address
        return response

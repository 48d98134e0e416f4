# ruff: noqa: N802  (gRPC prescribes the names of the methods)
"""A log whose answers the test releases, on gRPC and on a frame port, and a gate that notes the calls."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.errors import CallRefused
from dledger.service.answers import refuse_log_request
from dledger.service.call_gate import AllRights
from dledger.service.frames.limits import FrameLimits
from dledger.service.frames.port import FramePort
from dledger.service.grpc_server import Served, start_grpc_server
from dledger.service.guarded_method import Guard
from dledger.service.limits.request_bounds import LOG_BOUNDS
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceServicer, add_LogServiceServicer_to_server
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message

CALLS_MAX = 64
SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"]
APPEND, STATUS = "/dledger.v1.LogService/Append", "/dledger.v1.LogService/Status"
LARGE = 4 << 20


class Log(LogServiceServicer):
    """Answers appends when the test says so, except those with `request_id` 0."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.may_answer: dict[int, asyncio.Event] = {}

    async def Append(self, request: Any, _context: Any) -> log_pb2.AppendResponse:
        number = request.request_id
        self.begun.append(number)
        if number:
            try:
                await self.may_answer.setdefault(number, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
        return log_pb2.AppendResponse(code=200, request_id=number)

    async def Status(self, request: Any, _context: Any) -> log_pb2.StatusResponse:
        if request.group == "bug":
            raise ValueError("a bug")
        return log_pb2.StatusResponse(code=200, message="x" * LARGE if request.group == "large" else "")


class Gate:
    """Notes what it is asked, and refuses a group."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []

    def admit(self, method: str, context: Any) -> Any:
        gate = self
        token = dict(context.invocation_metadata() or ()).get("authorization")
        self.notes.append(("admit", method, token, context.peer().rpartition(":")[0], dict(context.auth_context())))
        if token == "Bearer bad":
            raise CallRefused("a bad token", is_authenticated=False)

        class Rights(AllRights):
            def check(self, request: Message) -> None:
                gate.notes.append(("check", request))
                if request.group == "secret":  # type: ignore[attr-defined]
                    raise CallRefused("no right", is_authenticated=True)

            def done(self, request: Message, response: Message | None) -> None:
                gate.notes.append(("done", request, response))

        return Rights()

    def take(self) -> list[tuple[Any, ...]]:
        notes, self.notes = self.notes, []
        # gRPC adds properties of its own to what the connection proves.
        return [(*note[:-1], {}) if note[0] == "admit" else note for note in notes]


class Serving:
    def __init__(self, log: Log, gate: Gate, port: FramePort, channel: grpc.aio.Channel) -> None:
        self.log, self.gate, self.port, self.channel = log, gate, port, channel

    @property
    def address(self) -> Address:
        return self.port.address

    async def by_grpc(self, path: str, data: bytes, token: str) -> tuple[int, bytes]:
        """Return the status, and the answer or the details, as a frame has them."""
        call = self.channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            metadata = (("authorization", f"Bearer {token}"),) if token else None
            return 0, await call(data, timeout=PATIENCE_S, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().value[0], (error.details() or "").encode()


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Serving]:
    grpc_port, frame_port = choose_ports(2, None)
    address, log, gate = Address("127.0.0.1", grpc_port), Log(), Gate()
    guard = Guard(LOG_BOUNDS, refuse_log_request, framed=frozenset({"Append", "Status"}))
    served = Served(add_LogServiceServicer_to_server, log, SERVICE, guard)
    port = FramePort(Address("127.0.0.1", frame_port), limits=FrameLimits(**limits))
    server = await start_grpc_server(address, [served], calls_max=CALLS_MAX, gate=gate, frames=port)
    async with grpc.aio.insecure_channel(str(address)) as channel:
        try:
            yield Serving(log, gate, port, channel)
        finally:
            await port.stop(0)
            await server.stop(None)

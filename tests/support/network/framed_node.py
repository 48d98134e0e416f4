# ruff: noqa: N802  (gRPC prescribes the names of the methods)
"""A LogService with scripted answers, on the real server of gRPC and the real frame port, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.event_loop import new_event_loop
from dledger.security.settings import PLAIN
from dledger.service.answers import refuse_log_request
from dledger.service.frames.context import FrameContext
from dledger.service.frames.limits import Closed, FrameLimits
from dledger.service.frames.port import FramePort
from dledger.service.grpc_server import Served, start_grpc_server
from dledger.service.guarded_method import Guard
from dledger.service.limits.request_bounds import LOG_BOUNDS
from dledger.v1 import log_pb2, log_pb2_grpc
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dledger.security.server_port import PortSecurity

SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"]


class FramedNode(log_pb2_grpc.LogServiceServicer):
    """A leader of its own; answers appends by `script`, and with success after its end.

    Attributes:
        by: how each append came: "frames" or "grpc".
        tokens: of each append.
        script: of answers: a response, or an async function of the node that returns one.
    """

    def __init__(self, security: PortSecurity = PLAIN, gate: Any = None, **limits: Any) -> None:
        self.by: list[str] = []
        self.tokens: list[Any] = []
        self.bodies: list[bytes] = []
        self.script: deque[log_pb2.AppendResponse | Callable[[], Awaitable[log_pb2.AppendResponse]]] = deque()
        self.address, self.frame_address = (Address("127.0.0.1", port) for port in choose_ports(2, None))
        # What the status says; differs in tests of wrong addresses.
        self.named = str(self.frame_address)
        self.leader = str(self.address)
        self.hung = asyncio.Event()
        self._security, self._gate = security, gate
        self._limits = FrameLimits(**limits)
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.port: FramePort
        self._server: Any = None
        self.run(self._start())

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    async def _start(self) -> None:
        guard = Guard(LOG_BOUNDS, refuse_log_request, is_stream_checked=True, framed=frozenset({"Append", "Status"}))
        served = Served(log_pb2_grpc.add_LogServiceServicer_to_server, self, SERVICE, guard)
        self.port = FramePort(self.frame_address, self._security, self._limits)
        self._server = await start_grpc_server(
            self.address, [served], security=self._security, gate=self._gate, frames=self.port
        )

    def stop(self) -> None:
        async def end() -> None:
            await self.port.stop(0)
            await self._server.stop(None)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def break_connections(self) -> None:
        """End all connections of frames at once; in the node's thread."""
        for connection in list(self.port._connections):
            connection.end(Closed.STOPPED)

    async def Status(self, _request: Any, _context: Any) -> log_pb2.StatusResponse:
        is_leader = self.leader == str(self.address)
        return log_pb2.StatusResponse(
            code=200,
            term=1,
            role="LEADER" if is_leader else "FOLLOWER",
            leader=log_pb2.LeaderHint(address=self.leader),
            frame_address=self.named,
        )

    async def Append(self, request: Any, context: Any) -> log_pb2.AppendResponse:
        return await self._answer(request, context)

    async def AppendStream(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            yield await self._answer(request, context)

    async def _answer(self, request: Any, context: Any) -> log_pb2.AppendResponse:
        self.by.append("frames" if isinstance(context, FrameContext) else "grpc")
        self.tokens.append(dict(context.invocation_metadata() or ()).get("authorization"))
        step = self.script.popleft() if self.script else None
        if step is not None:
            response = step if isinstance(step, log_pb2.AppendResponse) else await step()
            response.request_id = request.request_id
            return response
        first = len(self.bodies)
        self.bodies += request.bodies
        return log_pb2.AppendResponse(
            request_id=request.request_id,
            code=200,
            first_index=first,
            term=1,
            positions=range(first, first + len(request.bodies)),
        )

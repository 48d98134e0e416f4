"""The simulated gRPC server: runs the methods of the real servicers for calls over simulated connections."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import grpc

from dledger.testing.shell.rpc.frames import Frame, FrameKind, FrameReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from dledger.testing.shell.loop.sim_loop import SimLoop
    from dledger.testing.shell.network import SimServer

# Messages that a side may send before the other has processed them.
CREDIT = 8


class RpcServer:
    """Replaces `grpc.aio.Server`: the generated `add_..._to_server` functions add servicers to it.

    Args:
        loop: of the process.
    """

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._connections: dict[_ServerConnection, None] = {}
        self._server: SimServer | None = None

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: methods are registered by name."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Serve these methods."""
        for name, handler in handlers.items():
            self.methods[f"/{service}/{name}"] = handler

    async def start(self, host: str, port: int) -> None:
        """Listen."""
        self._server = await self.loop.create_server(self._accept, host, port)

    async def stop(self, grace_s: float) -> None:
        """Stop listening, wait up to `grace_s` for running calls, then cancel them and close all connections."""
        if self._server is not None:
            self._server.close()
        running = [task for connection in self._connections for task in connection.tasks()]
        if running:
            await asyncio.wait(running, timeout=grace_s)
        tasks = [task for connection in list(self._connections) for task in connection.end()]
        if tasks:
            await asyncio.wait(tasks)

    def _accept(self) -> _ServerConnection:
        return _ServerConnection(self)

    def opened(self, connection: _ServerConnection) -> None:
        """Register a connection."""
        self._connections[connection] = None

    def closed(self, connection: _ServerConnection) -> None:
        """Forget it."""
        self._connections.pop(connection, None)


class _ServerConnection(asyncio.Protocol):
    """The server's end of one connection, with all calls on it."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._reader = FrameReader()
        self._calls: dict[int, _ServerCall] = {}
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.opened(self)
        self.send(Frame(FrameKind.SETTINGS, 0))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._server.closed(self)
        self.end()

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks that run the calls of this connection."""
        return [call.task for call in self._calls.values()]

    def end(self) -> list[asyncio.Task[None]]:
        """End the connection; return the tasks of its calls, which are cancelled."""
        tasks = [call.cancel() for call in list(self._calls.values())]
        if self._transport is not None:
            self._transport.abort()
        return tasks

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.received(data):
            if frame.kind is FrameKind.CALL:
                self._begin(frame)
            elif frame.call_id in self._calls:
                self._calls[frame.call_id].on_frame(frame)

    def _begin(self, frame: Frame) -> None:
        handler = self._server.methods.get(frame.payload.decode())
        if handler is None:
            self.send(Frame(FrameKind.END, frame.call_id, b"Method not found!", grpc.StatusCode.UNIMPLEMENTED.value[0]))
            return
        self._calls[frame.call_id] = _ServerCall(self, self._server.loop, frame, handler)

    def send(self, frame: Frame) -> None:
        """Send a frame if the connection is open."""
        if self._transport is not None:
            self._transport.write(frame.encode())

    def ended(self, call_id: int) -> None:
        """Forget a call."""
        self._calls.pop(call_id, None)


class _ServerCall:
    """One call at the server: a task that runs the servicer's method."""

    def __init__(self, connection: _ServerConnection, loop: SimLoop, begun: Frame, handler: Any) -> None:
        self._connection = connection
        self._loop = loop
        self._id = begun.call_id
        self._handler = handler
        self._requests: deque[bytes] = deque()
        self._has_more = True
        self._credit = CREDIT
        self._changed: asyncio.Future[None] | None = None
        self._deadline = loop.call_later(begun.number / 1e6, self.cancel) if begun.number else None
        self.task = loop.create_task(self._run())

    def on_frame(self, frame: Frame) -> None:
        """Process a frame of the client."""
        if frame.kind is FrameKind.MESSAGE:
            self._requests.append(frame.payload)
        elif frame.kind is FrameKind.HALF_CLOSE:
            self._has_more = False
        elif frame.kind is FrameKind.CREDIT:
            self._credit += frame.number
        elif frame.kind is FrameKind.CANCEL:
            self.cancel()
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def cancel(self) -> asyncio.Task[None]:
        """Cancel the method, as gRPC does when the client disconnects or the deadline passes."""
        self.task.cancel()
        return self.task

    async def _run(self) -> None:
        code, details = grpc.StatusCode.OK, b""
        try:
            await self._serve()
        except asyncio.CancelledError:
            code, details = grpc.StatusCode.CANCELLED, b"Cancelled by the server"
        except Exception as error:  # noqa: BLE001 - the server's edge, as in gRPC
            code = grpc.StatusCode.UNKNOWN
            details = f"Unexpected {type(error)}: {error}".encode()
            self._loop.call_exception_handler({"message": "a method of a service raised", "exception": error})
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            self._connection.ended(self._id)
        self._connection.send(Frame(FrameKind.END, self._id, details, code.value[0]))

    async def _serve(self) -> None:
        handler = self._handler
        if handler.request_streaming:
            answers = handler.stream_stream(self._all_requests(), None)
        else:
            request = handler.request_deserializer(await self._next_request())
            if not handler.response_streaming:
                await self._answer(await handler.unary_unary(request, None))
                return
            answers = handler.unary_stream(request, None)
        try:
            async for answer in answers:
                await self._answer(answer)
        finally:
            await answers.aclose()

    async def _all_requests(self) -> AsyncIterator[Any]:
        while True:
            request = await self._next_request()
            if request is None:
                return
            yield self._handler.request_deserializer(request)

    async def _next_request(self) -> bytes | None:
        while not self._requests:
            if not self._has_more:
                return None
            await self._wait()
        self._connection.send(Frame(FrameKind.CREDIT, self._id, number=1))
        return self._requests.popleft()

    async def _answer(self, answer: Any) -> None:
        while self._credit <= 0:
            await self._wait()
        self._credit -= 1
        self._connection.send(Frame(FrameKind.MESSAGE, self._id, self._handler.response_serializer(answer)))

    async def _wait(self) -> None:
        """Wait for the next frame; at most one task waits for requests, and one for credit."""
        if self._changed is None or self._changed.done():
            self._changed = self._loop.create_future()
        # Shielded: a cancelled task must not cancel the future of the other.
        await asyncio.shield(self._changed)

"""The simulated gRPC channel: replaces `grpc.aio.Channel` under the generated stubs of a client.

It behaves like gRPC in everything that the client library depends on: when it connects; which calls fail fast and with
which text; a connection is ready only after the first data from the server; a call of a lost connection is UNAVAILABLE;
reads of a cancelled call raise `CancelledError`; a cancelled task cancels its call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from dledger.testing.shell.rpc.frames import Frame, FrameKind, FrameReader
from dledger.testing.shell.rpc.server import CREDIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from dledger.testing.shell.loop.sim_loop import SimLoop

# As in `dledger.client.failures.CHANNEL_OPTIONS`.
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 0.5
_ATTEMPT_S = 3.0
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class RpcChannel:
    """Calls to one server.

    Args:
        loop: of the process.
        address: `host:port`.
    """

    def __init__(self, loop: SimLoop, address: str) -> None:
        self.loop = loop
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._calls: dict[int, RpcCall] = {}
        self._last_id = 0
        self._connection: _ClientConnection | None = None
        self._is_ready = False
        self._dialling: asyncio.Task[None] | None = None
        self._backoff_s = _BACKOFF_MIN_S
        self._quiet_until = 0.0
        self._last_failure = ""
        self._is_closed = False

    # ---------------------------------------------------------------------------------------------- for stubs

    def unary_unary(self, method: str, **handlers: Any) -> Callable[..., _UnaryCall]:
        """Return a callable for calls with one request and one response."""
        return lambda request, *, timeout=None: _UnaryCall(_Method(method, **handlers), self, request, timeout)

    def unary_stream(self, method: str, **handlers: Any) -> Callable[..., RpcCall]:
        """Return a callable for calls with one request and many responses."""
        return lambda request, *, timeout=None: self._unary_stream(_Method(method, **handlers), request, timeout)

    def stream_stream(self, method: str, **handlers: Any) -> Callable[..., RpcCall]:
        """Return a callable for calls with many requests and many responses."""
        return lambda *, timeout=None: RpcCall(self, _Method(method, **handlers), timeout)

    def _unary_stream(self, method: _Method, request: object, timeout: float | None) -> RpcCall:
        call = RpcCall(self, method, timeout)
        call.write_at_once(request)
        return call

    async def close(self) -> None:
        """End all calls and the connection."""
        self._is_closed = True
        for call in list(self._calls.values()):
            call.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            self._connection.abort()

    # ---------------------------------------------------------------------------------------------- calls

    def begin(self, call: RpcCall) -> int:
        """Accept a call: it is sent when the connection is ready, or fails if none can be made."""
        self._last_id += 1
        self._calls[self._last_id] = call
        if self._is_closed:
            self.loop.call_soon(call.fail, grpc.StatusCode.CANCELLED, "the channel is closed")
        elif self._is_ready:
            pass
        elif self.loop.time() < self._quiet_until:
            self.loop.call_soon(call.fail, grpc.StatusCode.UNAVAILABLE, self._last_failure)
        elif self._dialling is None:
            self._dialling = self.loop.create_task(self._dial())
        return self._last_id

    def send(self, frame: Frame) -> bool:
        """Send a frame if the connection is ready; return whether it was."""
        if self._connection is None or not self._is_ready:
            return False
        self._connection.write(frame.encode())
        return True

    def ended(self, call_id: int) -> None:
        """Forget a call."""
        self._calls.pop(call_id, None)

    async def _dial(self) -> None:
        connection = _ClientConnection(self)
        try:
            async with asyncio.timeout(_ATTEMPT_S):
                await self.loop.create_connection(lambda: connection, self._host, self._port)
                await connection.settings
        except (OSError, TimeoutError) as error:
            connection.abort()
            reason = str(error) or "connection attempt timed out before receiving SETTINGS frame"
            self._not_connected(f"failed to connect to all addresses; last error: UNKNOWN: {reason}")
        else:
            self._backoff_s = _BACKOFF_MIN_S
            self._connection, self._is_ready = connection, True
            for call in list(self._calls.values()):
                call.connected()
        finally:
            self._dialling = None

    def _not_connected(self, text: str) -> None:
        self._last_failure = text
        self._quiet_until = self.loop.time() + self._backoff_s
        self._backoff_s = min(self._backoff_s * 1.6, _BACKOFF_MAX_S)
        for call in list(self._calls.values()):
            call.fail(grpc.StatusCode.UNAVAILABLE, text)

    def on_frame(self, frame: Frame) -> None:
        """Process a frame of the server."""
        call = self._calls.get(frame.call_id)
        if call is not None:
            call.on_frame(frame)

    def lost(self, connection: _ClientConnection) -> None:
        """Fail all calls of a connection that broke."""
        if self._connection is connection:
            self._connection, self._is_ready = None, False
            for call in list(self._calls.values()):
                call.fail(grpc.StatusCode.UNAVAILABLE, "Socket closed")


class _Method:
    """Name and codecs of a method, from the stubs."""

    def __init__(
        self,
        name: str,
        *,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        _registered_method: bool,
    ) -> None:
        self.name = name
        self.encode = request_serializer
        self.decode = response_deserializer


class RpcCall:
    """One call: the part of `grpc.aio.UnaryStreamCall` and `StreamStreamCall` that the client uses."""

    def __init__(self, channel: RpcChannel, method: _Method, timeout: float | None) -> None:
        self._channel = channel
        self._loop = channel.loop
        self._method = method
        self._timeout_us = 0 if timeout is None else max(1, int(timeout * 1e6))
        self._unsent: list[Frame] = []
        self._is_sent = False
        self._credit = CREDIT
        self._is_half_closed = False
        self._responses: deque[bytes] = deque()
        self._status: tuple[grpc.StatusCode, str] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._id = channel.begin(self)
        self._deadline = self._loop.call_later(timeout, self._expire) if timeout is not None and timeout > 0 else None
        if timeout is not None and timeout <= 0:
            self._loop.call_soon(self._expire)
        self._send(Frame(FrameKind.CALL, self._id, method.name.encode(), self._timeout_us))

    # ---------------------------------------------------------------------------------------------- for the client

    async def write(self, request: object) -> None:
        """Send a request; returns when the connection has accepted it."""
        self._check_open()
        try:
            while self._credit <= 0 or not self._is_sent:
                await self._wait()
                self._raise_for_status()
                self._check_open()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self.write_at_once(request)

    def write_at_once(self, request: object) -> None:
        """Send a request regardless of credit."""
        self._credit -= 1
        self._send(Frame(FrameKind.MESSAGE, self._id, self._method.encode(request)))

    def _check_open(self) -> None:
        if self._status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._is_half_closed:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')

    async def done_writing(self) -> None:
        """Half-close the call: no more requests follow."""
        if self._status is None and not self._is_half_closed:
            self._is_half_closed = True
            self._send(Frame(FrameKind.HALF_CLOSE, self._id))

    async def read(self) -> Any:
        """Return the next response, or `grpc.aio.EOF`.

        Raises:
            grpc.aio.AioRpcError: the call failed.
        """
        try:
            while not self._responses:
                if self._status is not None:
                    self._raise_for_status()
                    return grpc.aio.EOF
                await self._wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._send(Frame(FrameKind.CREDIT, self._id, number=1))
        return self._method.decode(self._responses.popleft())

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield all responses."""
        while (response := await self.read()) is not grpc.aio.EOF:
            yield response

    def cancel(self) -> bool:
        """Cancel the call; its effect at the server is unknown."""
        if self._status is not None:
            return False
        self._send(Frame(FrameKind.CANCEL, self._id))
        self.fail(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    async def code(self) -> grpc.StatusCode:
        """Wait for the final status and return it."""
        return (await self._end())[0]

    async def details(self) -> str:
        """Wait for the final status and return its details."""
        return (await self._end())[1]

    async def _end(self) -> tuple[grpc.StatusCode, str]:
        while self._status is None:
            await self._wait()
        return self._status

    # ---------------------------------------------------------------------------------------------- from the channel

    def connected(self) -> None:
        """Send the frames that waited for the connection."""
        if self._is_sent or self._status is not None:
            return
        unsent, self._unsent = self._unsent, []
        self._is_sent = True
        for frame in unsent:
            self._channel.send(frame)
        self._wake()

    def on_frame(self, frame: Frame) -> None:
        """Process a frame of the server."""
        if frame.kind is FrameKind.MESSAGE:
            self._responses.append(frame.payload)
        elif frame.kind is FrameKind.CREDIT:
            self._credit += frame.number
        elif frame.kind is FrameKind.END:
            self.fail(_CODES[frame.number], frame.payload.decode())
        self._wake()

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        """End the call."""
        if self._status is None:
            self._status = code, details
            self._channel.ended(self._id)
            if self._deadline is not None:
                self._deadline.cancel()
            self._wake()

    def _expire(self) -> None:
        if self._status is None:
            self._send(Frame(FrameKind.CANCEL, self._id))
            self.fail(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    # ---------------------------------------------------------------------------------------------- parts

    def _send(self, frame: Frame) -> None:
        if self._is_sent:
            self._channel.send(frame)
        elif self._channel.send(frame):
            self._is_sent = True
        else:
            self._unsent.append(frame)

    def _raise_for_status(self) -> None:
        if self._status is None or self._status[0] is grpc.StatusCode.OK:
            return
        code, details = self._status
        if code is grpc.StatusCode.CANCELLED:
            raise asyncio.CancelledError
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)

    async def _wait(self) -> None:
        if self._changed is None or self._changed.done():
            self._changed = self._loop.create_future()
        # Shielded: a reader and a writer may wait concurrently, and one may be cancelled.
        await asyncio.shield(self._changed)

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class _ClientConnection(asyncio.Protocol):
    """The client's end of one connection."""

    def __init__(self, channel: RpcChannel) -> None:
        self.settings: asyncio.Future[None] = channel.loop.create_future()
        self._channel = channel
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.received(data):
            if frame.kind is not FrameKind.SETTINGS:
                self._channel.on_frame(frame)
            elif not self.settings.done():
                self.settings.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.settings.done():
            self.settings.set_exception(exc or ConnectionResetError("Connection reset by peer"))
        self._channel.lost(self)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self.settings.cancel()


class _UnaryCall:
    """A call with one request and one response, to be awaited."""

    def __init__(self, method: _Method, channel: RpcChannel, request: object, timeout: float | None) -> None:
        self._call = RpcCall(channel, method, timeout)
        self._call.write_at_once(request)

    def __await__(self) -> Generator[Any, None, Any]:
        """Return the response."""
        return self._answer().__await__()

    async def _answer(self) -> Any:
        return await self._call.read()

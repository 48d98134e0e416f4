"""One connection of a client: reads requests, writes responses and the requests of the server.

Requests are answered in any order. Invariants: at most `calls_max` are in flight, and further frames wait in `_waiting`
while nothing is read from the socket; a client that does not read is not read from, either. A request without response
is never answered. The requests of the server have an `opaque` of their own, because the numbers of both directions
may be equal.

Not here: what requests mean (`front`), and the bounds of all connections together (`server`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, cast

from cluster.remoting.codec import BadCommand, FrameSplitter, Reply, decode_frame, encode_request, encode_response
from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from dledger.service.frames.limits import Closed
from dledger.service.frames.progress import ProgressWatch, Seen
from dledger.sockets import SilenceLimits, detect_silence

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.remoting.front import RemotingClient
    from cluster.remoting.limits import RemotingLimits
    from dledger.authentication.front_tokens import FrontClient
    from dledger.errors import DLedgerError
    from dledger.service.frames.turns import FairTurns

# Responses that are not sent beyond this size: the client does not read.
_UNSENT_SIZE_BYTES_MAX: Final = 64 << 10
# Larger ones are written at once, so that they are counted before the next one is made.
_JOINED_SIZE_BYTES_MAX: Final = 32 << 10
# A dead machine is detected within half a minute. Responses that are not read have a shorter limit.
_SILENCE_LIMITS: Final = SilenceLimits(idle_s=20, interval_s=5, probes_count=2, unread_ms=60_000)
_OPAQUE_MAX: Final = (1 << 31) - 1

logger = logging.getLogger(__name__)


class ConnectionPort(Protocol):
    """What a connection needs of its port, which has the limits of all connections together."""

    limits: RemotingLimits
    turns: FairTurns
    calls: int
    call_bytes: int

    async def answer(self, request: Request, client: RemotingClient) -> Response | None:
        """Return the response to a request; None: there is none."""

    def on_spoken(self, connection: RemotingConnection) -> None:
        """The first frame has arrived."""

    def on_begun(self, size_bytes: int) -> None:
        """A request of this size is in flight."""

    def on_ended(self, size_bytes: int) -> None:
        """It is no longer."""

    def on_partial(self, connection: RemotingConnection, size_bytes: int) -> None:
        """A connection has this much of a frame that is not complete, 0: of none; may end connections."""

    def on_unsent(self, connection: RemotingConnection, size_bytes: int) -> None:
        """Responses wait because the client does not read; may end a connection. Negative: they are sent."""

    def on_closed(self, connection: RemotingConnection, reason: Closed | None) -> None:
        """The connection has ended; None: the client ended it."""


class RemotingConnection(asyncio.Protocol):
    """The asyncio protocol of the server's end; handlers see it as a `RemotingClient`.

    Args:
        owner: the port.
        client: the key by which connections are counted: an address, or a network of IPv6.

    Attributes:
        client: as given.
        holder: the same: clients of one address take turns.
        peer: the other end, as gRPC names it.
        caller: the client that has signed the last request; None: the broker has no users.
    """

    def __init__(self, owner: ConnectionPort, client: str) -> None:
        self.client = self.holder = client
        self.peer = ""
        self.caller: FrontClient | None = None
        self._owner, self._limits = owner, owner.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._splitter = FrameSplitter()
        self._calls: dict[asyncio.Task[None], int] = {}
        self._call_bytes = 0
        # Frames that must wait; while there are some, nothing more is read.
        self._waiting: deque[bytes] = deque()
        self._has_asked_turn, self._is_reading = False, True
        self._unwritten: list[bytes] = []
        self._is_flushing = False
        # Bytes that the owner counts, while the transport has more than it could send.
        self._unsent_bytes = 0
        self._is_unread = False
        self._reason: Closed | None = None
        self._made_s = self._loop.time()
        self._partial_bytes = self._begun = self._frames = 0
        self._progress = ProgressWatch()
        self._asked: dict[int, asyncio.Future[Response]] = {}
        self._last_opaque = 0
        self._when_closed: list[Callable[[], None]] = []

    # ------------------------------------------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the socket."""
        self._transport = made = cast("asyncio.Transport", transport)
        # With 0 the end of the wait means that nothing is left.
        made.set_write_buffer_limits(high=_UNSENT_SIZE_BYTES_MAX, low=0)
        detect_silence(made.get_extra_info("socket"), _SILENCE_LIMITS)
        host, port, *_ = made.get_extra_info("peername") or ("", 0)
        host = str(host).partition("%")[0].removeprefix("::ffff:")
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.peer = f"{'ipv6' if ':' in host else 'ipv4'}:{self._address}"
        if self._reason is not None:
            made.abort()

    def data_received(self, data: bytes) -> None:
        """Begin the requests of one read."""
        if self._reason is not None:
            return
        try:
            frames = self._splitter.received(data)
            if frames and not self._frames:
                self._owner.on_spoken(self)
            self._frames += len(frames)
            if self._splitter.size_bytes != self._partial_bytes:
                self._partial_bytes = self._splitter.size_bytes
                self._owner.on_partial(self, self._partial_bytes)
                if self._reason is not None:
                    return
            if self._waiting:
                self._waiting += frames
                return
            for at, frame in enumerate(frames):
                if self._is_held() or not self._owner.turns.may_begin():
                    self._waiting += frames[at:]
                    self._hold()
                    self._ask_turn()
                    break
                self._take(frame)
        except BadCommand as error:
            self._end(Closed.PROTOCOL, str(error))

    def pause_writing(self) -> None:
        """Read no more: the client does not read its responses."""
        self._is_unread = True
        if self._transport is not None:
            self._count_unsent(self._transport.get_write_buffer_size())
        self._hold()

    def resume_writing(self) -> None:
        """Read again: all responses are sent."""
        self._is_unread = False
        self._count_unsent(-self._unsent_bytes)
        self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests in flight; what they have begun to store may still be committed."""
        del exc
        self._transport = None
        for task in list(self._calls):
            task.cancel()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(_gone())
        self._count_unsent(-self._unsent_bytes)
        self._owner.on_closed(self, self._reason)
        callbacks, self._when_closed = self._when_closed, []
        for callback in callbacks:
            self._loop.call_soon(callback)

    # --------------------------------------------------------------------------------------------- from the handlers

    @property
    def address(self) -> str:
        """`host:port` of the client."""
        return self._address

    def push(self, request: Request) -> None:
        """Send a request that has no response; dropped if the connection is closed, or the client does not read."""
        if self._is_open() and not self._is_unread:
            with_number = replace(request, opaque=self._next_opaque(), is_oneway=True)
            try:
                self._write(encode_request(with_number))
            except BadCommand as error:
                logger.warning("remoting_push_dropped code=%d client=%s: %s", request.code, self._address, error)

    async def ask(self, request: Request, limit_s: float) -> Response:
        """Return the client's response to a request; its `opaque` is replaced.

        Raises:
            Rejected: CONSUMER_NOT_ONLINE: the connection is closed; CONSUME_MSG_TIMEOUT: no response within the limit,
                or too many other ones are awaited; SYSTEM_ERROR: the request is larger than any client reads.
        """
        if not self._is_open():
            raise _gone()
        if self._is_unread or len(self._asked) >= self._limits.asks_max:
            raise Rejected(RemotingCode.CONSUME_MSG_TIMEOUT, f"the client {self._address} does not read its requests")
        opaque = self._next_opaque()
        try:
            frame = encode_request(replace(request, opaque=opaque, is_oneway=False))
        except BadCommand as error:
            raise Rejected(RemotingCode.SYSTEM_ERROR, str(error)) from None
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._asked[opaque] = answer
        self._write(frame)
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            text = f"the client {self._address} has not answered within {limit_s:g} s"
            raise Rejected(RemotingCode.CONSUME_MSG_TIMEOUT, text) from None
        finally:
            del self._asked[opaque]

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back once, after the connection was closed; soon, if it is."""
        if self._transport is None:
            self._loop.call_soon(callback)
        else:
            self._when_closed.append(callback)

    # ------------------------------------------------------------------------------------------------ from the port

    @property
    def is_made(self) -> bool:
        """Whether the event loop has called `connection_made`, so that it calls `connection_lost`."""
        return bool(self.peer)

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the requests in flight."""
        return list(self._calls)

    def close(self, error: DLedgerError) -> None:
        """End the connection before its first frame: for another one (`dledger.peer.unverified_peers.Closable`)."""
        self._end(Closed.CROWDED, str(error))

    def end(self, reason: Closed) -> None:
        """End the connection at once."""
        self._end(reason, "")

    def finish(self, reason: Closed) -> None:
        """End the connection when the responses are sent that it has; at once if the client does not read."""
        if self._transport is None or self._is_unread:
            self._end(reason, "")
        else:
            self._flush()
            self._reason = self._reason or reason
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once, also while it finishes."""
        if self._transport is not None:
            self._transport.abort()

    def look(self, now_s: float) -> None:
        """End what has lasted too long; called about once a second."""
        if not self._frames:
            if now_s - self._made_s > self._limits.greeting_s:
                self._end(Closed.GREETING, "no frame in time")
            return
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        is_partial = self._splitter.size_bytes > 0 and self._is_reading
        seen = Seen(self._begun, self._frames, unsent, is_partial=is_partial, is_idle=not self._calls)
        found = self._progress.look(now_s, seen, self._limits)
        if found is not None:
            reason, text = found
            if reason is Closed.IDLE:
                self.finish(reason)
            else:
                self._end(reason, text)

    # ----------------------------------------------------------------------------------------------------- requests

    def _take(self, frame: bytes) -> None:
        """Process a frame.

        Raises:
            BadCommand: the client does not follow the protocol.
        """
        found = decode_frame(frame)
        if isinstance(found, Reply):
            asked = self._asked.get(found.opaque)
            # A response that comes too late finds no request.
            if asked is not None and not asked.done():
                asked.set_result(found.response)
            return
        self._begun += 1
        size_bytes = len(frame)
        self._call_bytes += size_bytes
        self._owner.on_begun(size_bytes)
        task = self._loop.create_task(self._run(found))
        self._calls[task] = size_bytes
        # Also when the task is cancelled before its first step.
        task.add_done_callback(self._ended)

    async def _run(self, request: Request) -> None:
        """Answer one request: the edge of the front, where every error becomes a response."""
        try:
            response = await self._owner.answer(request, self)
        except asyncio.CancelledError:
            if self._transport is None:
                raise
            response = Response(RemotingCode.SERVICE_NOT_AVAILABLE, remark="this node stops")
        except Exception as error:
            # The client cannot know what was done, and other requests are not affected.
            logger.exception("remoting_request_failed code=%d client=%s", request.code, self._address)
            response = Response(RemotingCode.SYSTEM_ERROR, remark=f"Unexpected {type(error).__name__}")
        if request.is_oneway or response is None:
            return
        try:
            frame = encode_response(response, request.opaque)
        except BadCommand as error:
            frame = encode_response(Response(RemotingCode.SYSTEM_ERROR, remark=str(error)), request.opaque)
        self._write(frame)

    def _ended(self, task: asyncio.Task[None]) -> None:
        size_bytes = self._calls.pop(task)
        self._call_bytes -= size_bytes
        self._owner.on_ended(size_bytes)
        if not self._is_reading:
            self._release()

    def _next_opaque(self) -> int:
        self._last_opaque = self._last_opaque % _OPAQUE_MAX + 1
        return self._last_opaque

    # --------------------------------------------------------------------------------------------------------- flow

    def _write(self, frame: bytes) -> None:
        self._unwritten.append(frame)
        if len(self._calls) <= 1 or len(frame) > _JOINED_SIZE_BYTES_MAX:
            self._flush()
        elif not self._is_flushing:
            # Responses that are ready together are written together, in the next iteration.
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        frames, self._unwritten = self._unwritten, []
        if self._transport is None or self._reason is not None or not frames:
            return
        if self._is_unread:
            # May end this connection; then nothing more is written.
            self._count_unsent(sum(map(len, frames)))
        self._transport.writelines(frames)

    def _is_open(self) -> bool:
        return self._transport is not None and self._reason is None

    def _is_held(self) -> bool:
        """Return whether the next frame must wait."""
        limits, owner = self._limits, self._owner
        if len(self._calls) >= limits.calls_max or self._call_bytes >= limits.call_bytes_max or self._is_unread:
            return True
        is_full = owner.call_bytes >= limits.all_call_bytes_max or owner.calls >= limits.all_calls_max
        return bool(self._calls) and is_full

    def _hold(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _release(self) -> None:
        """Have frames that wait processed, as far as the bounds permit; read again if there are none."""
        if self._waiting:
            self._ask_turn()
        elif self._may_take() and not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._transport.resume_reading()

    def _ask_turn(self) -> None:
        if not self._has_asked_turn and self._may_take():
            self._has_asked_turn = True
            self._owner.turns.wait(self)

    def begin_next(self) -> None:
        """Process the next frame that waits: it is this connection's turn."""
        self._has_asked_turn = False
        if not self._may_take():
            return
        try:
            self._take(self._waiting.popleft())
        except BadCommand as error:
            self._end(Closed.PROTOCOL, str(error))
            return
        self._release()

    def _may_take(self) -> bool:
        return self._is_open() and not self._is_held()

    def _count_unsent(self, size_bytes: int) -> None:
        if size_bytes:
            self._unsent_bytes += size_bytes
            self._owner.on_unsent(self, size_bytes)

    def _end(self, reason: Closed, text: str) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        if text:
            logger.debug("remoting_closed client=%s reason=%s: %s", self._address or self.client, reason, text)
        if self._transport is not None:
            self._transport.abort()


def _gone() -> Rejected:
    return Rejected(RemotingCode.CONSUMER_NOT_ONLINE, "the connection of the client is closed")

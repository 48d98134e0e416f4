"""One connection of a client at the frame port: greets, reads calls, writes answers.

Invariants: at most `calls_max` calls are in flight, and further frames wait in `_waiting` while nothing is read from
the socket; so a connection holds what one read returned, and the requests in flight. A client that does not read its
answers is not read from, either.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import grpc

from dledger.frames.codec import (
    ANSWER,
    CALL,
    CLOSING,
    DEADLINE_MS_MAX,
    GREETING,
    HEAD,
    NOT_BEGUN,
    VERSION,
    BadClientFrame,
    ClientFrame,
    ClientFrameReader,
    decode_greeting,
    encode_frame,
    encode_greeting,
)
from dledger.service.call_gate import holder
from dledger.service.frames.context import CallEnded, FrameContext, auth_of
from dledger.service.frames.limits import Closed
from dledger.service.frames.progress import ProgressWatch, Seen
from dledger.sockets import SilenceLimits, detect_silence

if TYPE_CHECKING:
    from dledger.errors import DLedgerError
    from dledger.service.frames.ports import FramedMethod, Port
    from dledger.service.guarded_method import Context

# Answers that are not sent beyond this size: the client does not read.
_UNSENT_SIZE_BYTES_MAX: Final = 64 << 10
# Smaller answers are joined: each part of a write costs more than the copy.
_JOINED_SIZE_BYTES_MAX: Final = 32 << 10
# A dead machine is detected within half a minute, as by gRPC. Answers that are not read have a shorter limit.
_SILENCE_LIMITS: Final = SilenceLimits(idle_s=20, interval_s=5, probes_count=2, unread_ms=60_000)
_OK: Final = 0
_DEADLINE: Final = grpc.StatusCode.DEADLINE_EXCEEDED
_NUMBERS: Final = {code: code.value[0] for code in grpc.StatusCode}

logger = logging.getLogger(__name__)


class _Running(NamedTuple):
    """A call in flight: its task, its deadline by the loop's clock, and the bytes of its request."""

    task: asyncio.Task[None]
    deadline_s: float
    size_bytes: int


class FrameConnection(asyncio.Protocol):
    """The asyncio protocol of the server's end.

    Args:
        owner: the port.
        client: the key by which connections are counted: an address, or a network of IPv6.

    Attributes:
        client: as given.
        peer: the address and port of the other end.
        opening: the task that makes the connection; ends with it.
        holder: of the last answered call's shares, its user or else its address; first the client.
    """

    def __init__(self, owner: Port, client: str) -> None:
        self.client = self.holder = client
        self.peer = ""
        self.opening: asyncio.Task[None] | None = None
        self._owner = owner
        self._limits = owner.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._context: FrameContext | None = None
        self._greeting: bytearray | None = bytearray()
        self._reader = ClientFrameReader.of_server()
        self._calls: dict[int, _Running] = {}
        self._call_bytes = 0
        # The rest of what was read; while it is not empty, nothing more is read.
        self._waiting: deque[ClientFrame] = deque()
        self._has_asked_turn = False
        self._is_reading = True
        self._answers: list[bytes] = []
        self._is_flushing = False
        # Bytes of answers that the owner counts, while the transport has more than it could send.
        self._unsent_bytes = 0
        self._is_unread = False
        self._reason: Closed | None = None
        # By the loop's clock; None: it has not begun.
        self._made_s = self._loop.time()
        self._closing_s: float | None = None
        self._closing_reason = Closed.STOPPED
        # Of the frame that is not complete, as the owner knows it.
        self._partial_bytes = 0
        # Calls that have begun, and frames that have arrived.
        self._begun = self._frames = 0
        self._progress = ProgressWatch()

    # ------------------------------------------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the socket."""
        self._transport = made = cast("asyncio.Transport", transport)
        # Answers are written whole; with 0 the end of the wait means that nothing is left.
        made.set_write_buffer_limits(high=_UNSENT_SIZE_BYTES_MAX, low=0)
        detect_silence(made.get_extra_info("socket"), _SILENCE_LIMITS)
        host, port, *_ = made.get_extra_info("peername") or ("", 0)
        host = str(host).partition("%")[0].removeprefix("::ffff:")
        self._context = FrameContext(host, port, auth_of(made.get_extra_info("ssl_object")))
        self.peer = self._context.peer()
        if self._reason is not None:
            made.abort()

    def data_received(self, data: bytes) -> None:
        """Begin the calls of one read."""
        if self._reason is not None:
            return
        try:
            if self._greeting is not None:
                data = self._greet(self._greeting, data)
                if self._greeting is not None:
                    return
            frames = self._reader.received(data)
            self._frames += len(frames)
            if self._reader.size_bytes != self._partial_bytes:
                self._partial_bytes = self._reader.size_bytes
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
        except BadClientFrame as error:
            self._end(Closed.PROTOCOL if self._greeting is None else Closed.GREETING, str(error))

    def pause_writing(self) -> None:
        """Read no more: the client does not read its answers."""
        self._is_unread = True
        if self._transport is not None:
            self._count_unsent(self._transport.get_write_buffer_size())
        self._hold()

    def resume_writing(self) -> None:
        """Read again: all answers are sent."""
        self._is_unread = False
        self._count_unsent(-self._unsent_bytes)
        self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls; appends that have begun may still be committed."""
        del exc
        self._transport = None
        for running in list(self._calls.values()):
            running.task.cancel()
        self._count_unsent(-self._unsent_bytes)
        self._owner.on_closed(self, self._reason)

    # ------------------------------------------------------------------------------------------------ from the port

    @property
    def reason(self) -> Closed | None:
        """Why the port has ended it; None: it has not."""
        return self._reason

    @property
    def is_made(self) -> bool:
        """Whether the event loop has called `connection_made`, so that it calls `connection_lost`."""
        return self._context is not None

    @property
    def is_greeted(self) -> bool:
        """Whether the client has greeted."""
        return self._greeting is None

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the calls in flight."""
        return [running.task for running in self._calls.values()]

    def close(self, error: DLedgerError) -> None:
        """End the connection before its greeting: for another one (`dledger.peer.unverified_peers.Closable`)."""
        self._end(Closed.CROWDED, str(error))

    def end(self, reason: Closed) -> None:
        """End the connection at once."""
        self._end(reason, "")

    def finish(self, reason: Closed) -> None:
        """End the connection when the answers are sent that it has; at once if the client does not read."""
        if self._transport is None or self._is_unread:
            self._end(reason, "")
        else:
            self._flush()
            self._reason = self._reason or reason
            self._transport.close()

    def drain(self, reason: Closed) -> None:
        """Ask the client to send no more calls; those in flight are answered."""
        if self._closing_s is None and self._transport is not None:
            self._closing_s = self._loop.time()
            self._closing_reason = reason
            self._answers.append(encode_frame(CLOSING))
            self._flush()

    def look(self, now_s: float) -> None:
        """End what has lasted too long; called about once a second."""
        limits = self._limits
        if self._greeting is not None:
            if now_s - self._made_s > limits.greeting_s:
                self._end(Closed.GREETING, "no greeting in time")
            return
        for running in list(self._calls.values()):
            if running.deadline_s <= now_s:
                running.task.cancel()
        reason, text = self._progress.look(now_s, self._seen(), limits) or (None, "")
        if reason is Closed.SLOW:
            self._end(reason, text)
        elif self._closing_s is not None:
            if not self._calls and now_s - self._closing_s > limits.linger_s:
                self._end(self._closing_reason, "")
        elif reason is not None:
            self.drain(reason)
        elif now_s - self._made_s > limits.age_s:
            self.drain(Closed.OLD)

    def _seen(self) -> Seen:
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        is_partial = self._reader.size_bytes > 0 and self._is_reading
        return Seen(self._begun, self._frames, unsent, is_partial=is_partial, is_idle=not self._calls)

    # -------------------------------------------------------------------------------------------------------- calls

    def _greet(self, greeting: bytearray, data: bytes) -> bytes:
        """Take the greeting; return what follows it."""
        greeting += data
        if len(greeting) < GREETING.size:
            return b""
        version_min, version_max = decode_greeting(bytes(greeting[: GREETING.size]))
        assert self._transport is not None
        if not version_min <= VERSION <= version_max:
            self._transport.write(encode_greeting(0, 0))
            self._reason = Closed.GREETING
            self._transport.close()
            return b""
        self._greeting = None
        self._transport.write(encode_greeting(VERSION, VERSION) + self._owner.methods_frame)
        self._owner.on_greeted(self)
        return bytes(greeting[GREETING.size :])

    def _take(self, frame: ClientFrame) -> None:
        """Process a frame.

        Raises:
            BadClientFrame: the client does not follow the protocol.
        """
        assert self._context is not None
        if frame.kind != CALL:
            if not frame.payload.isascii() or frame.detail or frame.call_id or frame.number:
                raise BadClientFrame("expected a token of ASCII and no other fields")
            self._context = self._context.with_token(frame.payload.decode("ascii"))
            return
        _, number, call_id, deadline_ms, request = frame
        if not call_id or call_id in self._calls or not 1 <= deadline_ms <= DEADLINE_MS_MAX:
            raise BadClientFrame(f"expected a new call and its deadline, found call {call_id} with {deadline_ms} ms")
        self._begun += 1
        if self._closing_s is not None:
            self._answer(call_id, _NUMBERS[grpc.StatusCode.UNAVAILABLE], NOT_BEGUN.encode())
        elif number >= len(self._owner.methods):
            fault = f"expected one of {len(self._owner.methods)} methods, found {number}"
            self._answer(call_id, _NUMBERS[grpc.StatusCode.UNIMPLEMENTED], fault.encode())
        else:
            size_bytes = len(request)
            self._call_bytes += size_bytes
            self._owner.on_begun(size_bytes)
            task = self._loop.create_task(self._run(self._owner.methods[number], call_id, request, self._context))
            self._calls[call_id] = _Running(task, self._loop.time() + deadline_ms / 1000, size_bytes)
            # Also when the task is cancelled before its first step.
            task.add_done_callback(partial(self._ended, call_id))

    async def _run(self, method: FramedMethod, call_id: int, request: bytes, context: FrameContext) -> None:
        """Answer one call: the edge of the services, where every error becomes a status."""
        try:
            response = await method.guarded.answer(method.behaviour, cast("Context", context), request)
            self.holder = holder() or self.holder
            status, payload = _OK, response.SerializeToString()
        except CallEnded as ended:
            status, payload = _NUMBERS[ended.code], ended.details.encode()
        except asyncio.CancelledError:
            if self._transport is None:
                raise
            status, payload = _NUMBERS[_DEADLINE], b"the deadline of the call has passed"
        except Exception as error:
            # As gRPC does: the client cannot know what was done, and other calls are not affected.
            logger.exception("call_failed method=%s peer=%s", method.guarded.path, self.peer)
            status, payload = _NUMBERS[grpc.StatusCode.UNKNOWN], f"Unexpected {type(error)}: {error}".encode()
        self._answer(call_id, status, payload)

    def _ended(self, call_id: int, _task: asyncio.Task[None]) -> None:
        size_bytes = self._calls.pop(call_id).size_bytes
        self._call_bytes -= size_bytes
        self._owner.on_ended(size_bytes)
        if not self._is_reading:
            self._release()

    def _answer(self, call_id: int, status: int, payload: bytes) -> None:
        self._answers += (HEAD.pack(len(payload), ANSWER, status, 0, call_id, 0), payload)
        # Large ones at once, so that they are counted before the next one is made.
        if len(self._calls) <= 1 or len(payload) > _JOINED_SIZE_BYTES_MAX:
            self._flush()
        elif not self._is_flushing:
            # Calls that are committed together are answered in one write, in the next iteration.
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        answers, self._answers = self._answers, []
        if self._transport is None or self._reason is not None or not answers:
            return
        size_bytes = sum(map(len, answers))
        if self._is_unread:
            # May close this connection; then nothing more is written.
            self._count_unsent(size_bytes)
        if size_bytes <= _JOINED_SIZE_BYTES_MAX:
            self._transport.write(b"".join(answers))
        else:
            self._transport.writelines(answers)

    # --------------------------------------------------------------------------------------------------------- flow

    def _is_held(self) -> bool:
        """Return whether the next frame must wait."""
        limits = self._limits
        if len(self._calls) >= limits.calls_max or self._call_bytes >= limits.call_bytes_max or self._is_unread:
            return True
        return bool(self._calls) and self._owner.call_bytes >= limits.all_call_bytes_max

    def _hold(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _release(self) -> None:
        """Have frames that wait processed, as far as the bounds permit; read again if there are none."""
        if self._waiting:
            self._ask_turn()
        elif self._transport is not None and self._may_take() and not self._is_reading:
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
        except BadClientFrame as error:
            self._end(Closed.PROTOCOL, str(error))
            return
        self._release()

    def _may_take(self) -> bool:
        return self._transport is not None and self._reason is None and not self._is_held()

    def _count_unsent(self, size_bytes: int) -> None:
        if size_bytes:
            self._unsent_bytes += size_bytes
            self._owner.on_unsent(self, size_bytes)

    def _end(self, reason: Closed, text: str) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        if text:
            logger.debug("frame_connection_closed peer=%s reason=%s: %s", self.peer or self.client, reason, text)
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

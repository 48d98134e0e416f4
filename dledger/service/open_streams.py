"""The open streams of a server: one whose caller may not continue is ended within a second, also while it is idle.

The rights of a caller end while its streams are open: a user is deleted or disabled, a password changes, a token
expires, a rule is removed, a certificate is revoked. A stream that waits for its next request or response would notice
none of this, and keep its place, its membership in a group, and what it waits for.

A stream of responses is checked with the rights to its request. Its end cancels the wait of the service for the next
response; one that is being sent is sent first. A stream of requests is checked with the credentials of its caller, and
with `keeps_last` also with the rights to its last admitted request. Its end reads no more requests, and answers those
that were read. A service that knows its callers itself adds a check (`check_stream_also`).

So no append or put is left without an outcome because of a revocation. Not here: what callers may do
(`dledger.service.call_gate`).
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dledger.errors import CallRefused
from dledger.service.call_gate import EVERYTHING, end_refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from google.protobuf.message import Message

    from dledger.service.call_gate import CallRights, Context

MessageT = TypeVar("MessageT")
LOOK_INTERVAL_S: Final = 1.0


class OpenStream:
    """One stream, in the task that answers it.

    Args:
        rights: of its caller.
        keeps_last: its last admitted request is in force while it is open, so its rights are checked again.

    Attributes:
        refused: why it is being ended; None: it is not.
    """

    def __init__(self, rights: CallRights, *, keeps_last: bool = False) -> None:
        self.refused: CallRefused | None = None
        self._rights = rights
        self._keeps_last = keeps_last
        self._request: Message | None = None
        self._also: Callable[[], None] | None = None
        # The task to cancel. None: a request is being processed, or a response sent; `until_refused` ends it after.
        self._waiting: asyncio.Task[Any] | None = None

    def only_request(self, request: Message) -> None:
        """Note the only request, whose responses are streamed."""
        self._request = request

    def admit(self, request: Message) -> None:
        """Raise unless the caller may send this request, one of many, now.

        Raises:
            CallRefused: it may not.
        """
        self._rights.check(request)
        self._rights.admitted(request)
        if self._keeps_last:
            self._request = request

    def check_also(self, check: Callable[[], None]) -> None:
        """Have this called at each look, too; it raises CallRefused to end the stream."""
        self._also = check

    def wait(self) -> None:
        """Note that the current task waits for a request or response: the end of rights cancels it."""
        self._waiting = asyncio.current_task()

    def end_wait(self) -> None:
        """Note that it does not: one has come, or none will."""
        self._waiting = None

    def look(self) -> None:
        """End the stream if its caller may not continue."""
        try:
            if self._request is None:
                self._rights.check_caller()
            else:
                self._rights.check_again(self._request)
            if self._also is not None:
                self._also()
        except CallRefused as refused:
            self.refused = refused
            if self._waiting is not None:
                self._waiting.cancel()


class OpenStreams:
    """The streams of one server. Loop thread only.

    Args:
        interval_s: between two looks at all of them.
    """

    def __init__(self, interval_s: float = LOOK_INTERVAL_S) -> None:
        self._interval_s = interval_s
        # Those that are not being ended.
        self._streams: dict[OpenStream, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of streams that are looked at."""
        return len(self._streams)

    def add(self, stream: OpenStream) -> None:
        """Look at a stream from now on."""
        self._streams[stream] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look)

    def discard(self, stream: OpenStream) -> None:
        """Look at it no longer: it has ended."""
        self._streams.pop(stream, None)

    def _look(self) -> None:
        for stream in list(self._streams):
            stream.look()
            if stream.refused is not None:
                del self._streams[stream]
        self._timer = None
        if self._streams:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look)


async def until_refused(messages: AsyncIterator[MessageT], stream: OpenStream) -> AsyncIterator[MessageT]:
    """Yield the requests of a stream, or the responses of a service, until the stream is being ended."""
    iterator = aiter(messages)
    while stream.refused is None:
        stream.wait()
        try:
            message = await anext(iterator)
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            if stream.refused is None:
                raise
            _take_back_cancellation()
            return
        finally:
            stream.end_wait()
        yield message


async def end_if_refused(stream: OpenStream, context: Context) -> None:
    """End the call of a stream with the refusal because of which it is being ended, if there is one."""
    if stream.refused is not None:
        _take_back_cancellation()
        await end_refused(stream.refused, context)


def _take_back_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        task.uncancel()


_NO_STREAM: Final = OpenStream(EVERYTHING)
# Of the current task's call, for services that check the requests or the callers of their streams themselves.
_CURRENT: Final[ContextVar[OpenStream]] = ContextVar("open stream", default=_NO_STREAM)


def enter_stream(stream: OpenStream) -> None:
    """Make a stream that of the current task."""
    _CURRENT.set(stream)


def check_of_stream(request: Message) -> None:
    """Raise unless the caller of the current task's stream may send this request now.

    Raises:
        CallRefused: it may not; the other requests of the stream are not affected.
    """
    _CURRENT.get().admit(request)


def check_stream_also(check: Callable[[], None]) -> None:
    """Have `check` called each second while the current task's stream is open; it raises CallRefused to end it."""
    _CURRENT.get().check_also(check)

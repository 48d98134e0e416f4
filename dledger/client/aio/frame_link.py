"""One connection to a frame port in an event loop, with many calls in flight; and the connections of one client.

A link makes no decisions: each call ends with its answer, or with the link. Not here: which calls are made
(`framed_stream`), and what their ends mean.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from dledger.client.aio.framed_stream import FramedCalls
from dledger.client.framing import LOST, CallEncoder, FramePorts, MalformedToken, NoFrames, Welcome, code_of
from dledger.errors import DLedgerError
from dledger.frames.codec import ANSWER, BadClientFrame, ClientFrameReader, encode_greeting

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from dledger.config import Address
    from dledger.security.settings import Security, Token

_UNSENT_SIZE_BYTES_MAX: Final = 4 << 20
# A server ends calls by then; the clients' own limits are shorter.
_CALL_LIMIT_S: Final = 60.0


class LinkUser(Protocol):
    """Makes calls on a link."""

    def on_answer(self, call_id: int, code: grpc.StatusCode, payload: bytes) -> None:
        """Receive the end of a call: the response if `code` is OK, else the reason as text."""

    def on_closing(self) -> None:
        """Make no more calls on this link."""

    def on_lost(self, details: str) -> None:
        """The link has ended; calls without an answer may have been executed."""


class FrameLink(asyncio.Protocol):
    """The asyncio protocol of the client's end, for use by one event loop.

    Args:
        token: returns the token of calls; None: none is sent.
    """

    def __init__(self, token: Token | None) -> None:
        self.methods: dict[str, int] = {}
        # Until the first reason not to use it any more.
        self.is_usable = True
        self._encoder = CallEncoder(token)
        self._loop = asyncio.get_running_loop()
        self._reader = ClientFrameReader.of_client()
        self._welcome: Welcome | None = Welcome(self._reader)
        # Resolves with the greeting.
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._users: dict[int, LinkUser] = {}
        self._opened: dict[LinkUser, None] = {}
        self._drained: asyncio.Future[None] | None = None
        self._reason = "closed by the node"

    def attach(self, user: LinkUser) -> None:
        """Call `user` when the link closes or ends."""
        self._opened[user] = None

    def detach(self, user: LinkUser) -> None:
        """Do not call `user` any more."""
        self._opened.pop(user, None)

    def call(self, user: LinkUser, method: int, request: bytes) -> int:
        """Begin a call; return its id, with which `user` gets its end.

        Raises:
            NoFrames: the link cannot be used; nothing was sent.
        """
        transport = self._transport
        if transport is None or not self.is_usable:
            raise NoFrames(self._reason)
        try:
            call_id, data = self._encoder.encode(method, request, _CALL_LIMIT_S)
        except MalformedToken as error:
            raise NoFrames(str(error)) from None
        self._users[call_id] = user
        transport.write(data)
        return call_id

    async def drained(self) -> None:
        """Wait while the connection has more to send than it should."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def abort(self, reason: str) -> None:
        """End the link at once."""
        self._reason = reason
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the link and wait until it has ended."""
        self.abort("the client was closed")
        if self._transport is not None:
            await self._ended

    # ------------------------------------------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=_UNSENT_SIZE_BYTES_MAX)
        made.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.write(encode_greeting())

    def data_received(self, data: bytes) -> None:
        """Pass answers on."""
        try:
            if self._welcome is not None:
                if self._welcome.received(data):
                    self.methods = self._welcome.methods or {}
                    self._welcome = None
                    if not self.greeted.done():
                        self.greeted.set_result(None)
                return
            frames = self._reader.received(data)
        except BadClientFrame as error:
            self.abort(str(error))
            return
        for kind, status, call_id, _, payload in frames:
            if kind == ANSWER:
                user = self._users.pop(call_id, None)
                if user is not None:
                    user.on_answer(call_id, code_of(status), payload)
            elif self.is_usable:
                self.is_usable = False
                self._reason = "the node takes no more calls on this connection"
                for each in list(self._opened):
                    each.on_closing()

    def pause_writing(self) -> None:
        """Have senders wait."""
        if self._drained is None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wake the senders."""
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self._transport = None
        self.is_usable = False
        self._users.clear()
        if not self.greeted.done():
            self.greeted.set_exception(NoFrames(str(exc) if exc else self._reason))
        self.resume_writing()
        details = f"{LOST}: {exc or self._reason}"
        for each in list(self._opened):
            each.on_lost(details)
        self._opened.clear()
        self._ended.set_result(None)


class FrameLinks:
    """The links of one client, one to each node. For use by one event loop.

    Args:
        security: of the connections.
        now_s: a monotonic clock.
    """

    def __init__(self, security: Security, now_s: Callable[[], float]) -> None:
        self.ports = FramePorts(security, now_s)
        # By the address of the node's gRPC port.
        self._links: dict[str, FrameLink] = {}
        self._opening: dict[str, asyncio.Task[FrameLink | None]] = {}
        self._is_closed = False

    async def link(self, address: str) -> FrameLink | None:
        """Return a link to a node; None: it must be called by gRPC."""
        link = self._links.get(address)
        if link is not None and link.is_usable:
            return link
        port = self.ports.usable(address)
        if port is None or self._is_closed:
            return None
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(address, port))
            self._opening[address] = opening
            opening.add_done_callback(lambda _: self._opening.pop(address, None))
        return await asyncio.shield(opening)

    async def calls(self, address: str, path: str, response: Callable[[bytes], Any]) -> FramedCalls | None:
        """Return how to call a method of a node; None: by gRPC.

        Args:
            address: of the node's gRPC port.
            path: of the method.
            response: returns the response in the bytes of an answer.
        """
        link = await self.link(address)
        number = None if link is None else link.methods.get(path)
        return None if link is None or number is None else FramedCalls(link, number, response)

    async def close(self) -> None:
        """End all links."""
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        for link in self._links.values():
            await link.close()

    async def _open(self, address: str, port: Address) -> FrameLink | None:
        link = FrameLink(self.ports.token(port))
        try:
            async with asyncio.timeout(self.ports.connect_limit_s):
                tls = self.ports.tls(port)
                await asyncio.get_running_loop().create_connection(
                    lambda: link,
                    port.host.strip("[]"),
                    port.port,
                    ssl=None if tls is None else tls[0],
                    server_hostname=None if tls is None else tls[1],
                )
                await link.greeted
        except (OSError, TimeoutError, DLedgerError, NoFrames, ValueError):
            link.abort("not greeted in time")
            self.ports.failed(address)
            return None
        except asyncio.CancelledError:
            link.abort("the client was closed")
            raise
        finally:
            # It has no waiter after a failure.
            link.greeted.cancel()
        self.ports.worked(address)
        self._links[address] = link
        return link

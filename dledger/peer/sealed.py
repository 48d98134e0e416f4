"""A sealed connection between two nodes: a transport and a protocol between the socket and the protocol of the owner.

It does for a shared secret what the event loop does for TLS: the owner's protocol is created when the greeting has
succeeded, gets opened bytes, and writes to a transport that seals them.

Not here: the cryptography (`dledger.peer.sealing`).

Invariants: at most one greeting is buffered before it is proven, at most one record afterwards; nothing reaches the
owner's protocol before its record was authenticated, and nothing after one that was not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from dledger.errors import DLedgerError
from dledger.peer.proven import SEALED_PEER_ID
from dledger.peer.sealing import (
    GREETING_HEAD,
    GREETING_SIZE_MAX,
    PIECE_SIZE_BYTES_MAX,
    RECORD_HEAD,
    SEALED_SIZE_BYTES_MAX,
    greeting_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dledger.peer.sealing import SealedSession

# Smaller pieces are copied into one, so that they become one record.
_JOINED_SIZE_BYTES_MAX = 16 * 1024
Owner = TypeVar("Owner", bound=asyncio.BaseProtocol)


class Greeting(Protocol):
    """One side of the greeting."""

    @property
    def first(self) -> bytes:
        """What this side sends before it has received anything."""

    def finish(self, message: bytes) -> tuple[bytes, SealedSession]:
        """Return the bytes to send next, and the session.

        Raises:
            DLedgerError: the other side is refused.
        """


class SealedProtocol(asyncio.BufferedProtocol, Generic[Owner]):
    """The protocol of the socket.

    Args:
        new_owner: creates the protocol of the owner, after the greeting.
        greeting: of this side.
    """

    def __init__(self, new_owner: Callable[[], Owner], greeting: Greeting) -> None:
        # Resolves when the owner's protocol has its transport; fails if the connection ends before.
        self._opened: asyncio.Future[tuple[SealedTransport, Owner]] = asyncio.get_running_loop().create_future()
        # Set by the greeting; another one follows by `SealedTransport.set_protocol`.
        self.owner: asyncio.BaseProtocol | None = None
        self._new_owner = new_owner
        self._greeting = greeting
        self._socket: asyncio.Transport | None = None
        self._session: SealedSession | None = None
        # Received and not yet opened: `_view[_begin:_end]`.
        self._view = memoryview(bytearray(GREETING_SIZE_MAX))
        self._begin = self._end = 0
        self._failure: DLedgerError | None = None

    async def open(self) -> tuple[SealedTransport, Owner]:
        """Return when the greeting has ended; if this is cancelled, the connection ends.

        Raises:
            OSError: the connection ended.
            DLedgerError: the other side is refused.
        """
        try:
            return await self._opened
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """End the connection at once."""
        if self._socket is not None:
            self._socket.abort()

    # ------------------------------------------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet first, on the dialing side."""
        self._socket = cast("asyncio.Transport", transport)
        if self._greeting.first:
            self._socket.write(self._greeting.first)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature; one record is enough)
        """Return the free part of the buffer; never empty."""
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Open what was received."""
        self._end += nbytes
        if self._failure is not None:
            return
        try:
            if self._session is None and not self._greet():
                return
            pieces = self._pieces()
        except DLedgerError as error:
            self._failure = error
            self.abort()
            return
        if pieces:
            self._deliver(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def pause_writing(self) -> None:
        """Pass it on."""
        if self.owner is not None:
            cast("asyncio.Protocol", self.owner).pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        if self.owner is not None:
            cast("asyncio.Protocol", self.owner).resume_writing()

    def eof_received(self) -> bool:
        """Close: a half-open connection is useless."""
        if self.owner is not None:
            cast("asyncio.Protocol", self.owner).eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the reason on."""
        if not self._opened.done():
            self._opened.set_exception(self._failure or exc or ConnectionResetError("closed during the greeting"))
            # Nothing may await it any more.
            self._opened.exception()
        if self.owner is not None:
            self.owner.connection_lost(self._failure or exc)

    # -------------------------------------------------------------------------------------------------------- parts

    def _greet(self) -> bool:
        """Take the other side's greeting, if all of it is there; return whether the connection is open now."""
        assert self._socket is not None
        if self._end < GREETING_HEAD.size:
            return False
        size = greeting_size(bytes(self._view[: GREETING_HEAD.size]))
        if self._end < size:
            return False
        answer, self._session = self._greeting.finish(bytes(self._view[:size]))
        if answer:
            self._socket.write(answer)
        rest = bytes(self._view[size : self._end])
        self._view = memoryview(bytearray(RECORD_HEAD.size + SEALED_SIZE_BYTES_MAX))
        self._view[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)
        transport = SealedTransport(self._socket, self, self._session)
        self.owner = owner = self._new_owner()
        owner.connection_made(transport)
        if not self._opened.done():
            self._opened.set_result((transport, owner))
        return True

    def _pieces(self) -> list[bytes]:
        """Open all records that are complete, and make space for the next one."""
        assert self._session is not None
        opener, view, begin, end = self._session.opener, self._view, self._begin, self._end
        pieces = []
        while end - begin >= RECORD_HEAD.size:
            head = bytes(view[begin : begin + RECORD_HEAD.size])
            sealed_at = begin + RECORD_HEAD.size
            next_at = sealed_at + opener.size_of(head)
            if end < next_at:
                break
            pieces.append(opener.open(head, view[sealed_at:next_at]))
            begin = next_at
        if begin:
            view[: end - begin] = view[begin:end]
            begin, end = 0, end - begin
        self._begin, self._end = begin, end
        return pieces

    def _deliver(self, data: bytes) -> None:
        assert self._socket is not None
        left = memoryview(data)
        # The owner may end the connection: what follows is then not for it.
        while left and not self._socket.is_closing():
            owner = self.owner
            if not isinstance(owner, asyncio.BufferedProtocol):
                cast("asyncio.Protocol", owner).data_received(bytes(left))
                return
            space = memoryview(owner.get_buffer(len(left)))
            size = min(len(space), len(left))
            space[:size] = left[:size]
            owner.buffer_updated(size)
            left = left[size:]


class SealedTransport(asyncio.Transport):
    """The transport of the owner's protocol.

    Args:
        plain: of the socket.
        protocol: of the socket.
        session: seals.
    """

    def __init__(self, plain: asyncio.Transport, protocol: SealedProtocol[Any], session: SealedSession) -> None:
        super().__init__()
        self._plain = plain
        self._protocol = protocol
        self._sealer = session.sealer
        self._peer_id = session.peer_id

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the id of the node at the other side, or what the socket's transport knows."""
        return self._peer_id if name == SEALED_PEER_ID else self._plain.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Seal and write."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Seal and write; what is small becomes one record."""
        parts = list(list_of_data)
        if len(parts) > 1 and sum(map(len, parts)) <= _JOINED_SIZE_BYTES_MAX:
            parts = [b"".join(parts)]
        sealed: list[bytes] = []
        for part in parts:
            view = memoryview(part)
            for begin in range(0, len(view), PIECE_SIZE_BYTES_MAX):
                sealed += self._sealer.seal(view[begin : begin + PIECE_SIZE_BYTES_MAX])
        self._plain.writelines(sealed)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give what is received from now on to another protocol."""
        self._protocol.owner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol of the owner."""
        assert self._protocol.owner is not None
        return self._protocol.owner

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set them on the socket's transport."""
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the unsent bytes, sealed."""
        return self._plain.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self._plain.is_closing()

    def is_reading(self) -> bool:
        """Return whether bytes are received."""
        return self._plain.is_reading()

    def pause_reading(self) -> None:
        """Receive no more bytes for now."""
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Receive bytes again."""
        self._plain.resume_reading()

    def close(self) -> None:
        """Write what is left, then close."""
        self._plain.close()

    def abort(self) -> None:
        """Close at once."""
        self._plain.abort()

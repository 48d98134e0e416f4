"""One TCP connection between two nodes: greets, splits frames, writes messages, detects silence.

Not here: when to dial (`dledger.peer.dialer`), the connection for each message (`dledger.peer.transport`), which peers
are accepted (`dledger.peer.handshake`).

Place on the way of an append: all frames of one read are passed to the owner in one call; a push is sent by
`writelines`, head and payload not joined, so that the store's bytes reach the kernel without another copy (on uvloop;
asyncio before Python 3.12 joins them).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from dledger.errors import DLedgerError, ResponseCode
from dledger.peer.handshake import Handshake, PeerRefused
from dledger.peer.proven import kind_of
from dledger.peer.wire.buffer import FrameBuffer
from dledger.peer.wire.decoder import decode
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import BadFrame, Hello, decode_hello, encode_hello
from dledger.security.peers import PeerKind
from dledger.sockets import SilenceLimits, detect_silence
from dledger.types import NO_GROUP
from store.errors import StoreError

if TYPE_CHECKING:
    from dledger.core.messages import Message

# A connection whose other side does not read, or on which nothing at all arrives, is closed after this time:
# several election timeouts, so that a busy peer keeps it, and a few redials, so that a repaired network is used soon.
SILENCE_TIMEOUT_MS = 4_000
_SILENCE_LIMITS = SilenceLimits(idle_s=2, interval_s=1, probes_count=3, unread_ms=SILENCE_TIMEOUT_MS)
# A push that is smaller is joined with its head on secured connections, where each part costs a record of its own.
_JOINED_SIZE_BYTES_MAX = 16 * 1024
# Both sides send the greeting first; a side that takes longer is not a node, or a stopped one.
HELLO_TIMEOUT_S = 2.0


class ConnectionLost(DLedgerError):
    """The other side closed the connection, or the network did; dial again."""


class ConnectionOwner(Protocol):
    """Receives the events of a connection. Calls come from the event loop, never from within `send`."""

    def on_open(self, connection: PeerConnection) -> None:
        """Both sides accepted the handshake: ids and addresses of `connection` are known."""

    def on_bootstrap(self, connection: PeerConnection, transport: asyncio.Transport) -> None:
        """Take over the socket of a bootstrap connection after its greeting; `connection` is not used any more."""

    def on_messages(self, connection: PeerConnection, messages: list[Message]) -> None:
        """Receive all messages of one read; there is at least one."""

    def on_large(self, connection: PeerConnection) -> None:
        """A large frame began; `connection` allocates memory for it until it is complete."""

    def on_accepted(self, connection: PeerConnection, host: str) -> None:
        """A connection from `host` was accepted, whose greeting has not arrived yet."""

    def on_failed(self, error: Exception) -> None:
        """The node must stop."""

    def on_closed(self, connection: PeerConnection, error: DLedgerError) -> None:
        """The connection ended, for this reason; called once, even if it never opened."""


class PeerConnection(asyncio.BufferedProtocol):
    """The asyncio protocol of both ends; the dialling end greets first.

    Args:
        handshake: this node's side of the greeting.
        owner: receives messages and the end.
        buffer_size_bytes_max: outgoing bytes beyond which messages are dropped until the peer has read some.
        dialled: (peer id, is_bulk) on the dialling end; None on the accepting end.
        greet_by: when the greeting must have arrived, by the event loop's clock: a handshake before it counts. None:
            the usual time after the connection was made.
    """

    def __init__(
        self,
        handshake: Handshake,
        owner: ConnectionOwner,
        *,
        buffer_size_bytes_max: int,
        dialled: tuple[str, bool] | None = None,
        greet_by: float | None = None,
    ) -> None:
        # Fixed on the dialling end; on the accepting end as in the greeting, which is accepted if `is_open`.
        self.peer_id, self.is_bulk = dialled or ("", False)
        self.is_dialled = dialled is not None
        self.client_address = ""
        self.peer_address = ""
        self.feature_level = 0
        self.host = ""
        # From the accepted greeting to the end, once: messages are sent and delivered only meanwhile.
        self.is_open = False
        # Set by the accepted greeting, never cleared.
        self.is_greeted = False
        self.kind = PeerKind.PLAIN
        # Of the certificates or the secret that the connection began with.
        self.generation = 0
        # Set by the greeting, or later by `prove`; never cleared.
        self.is_proven = False
        self._named_group_id = NO_GROUP
        # While the peer reads too slowly: every message is dropped.
        self.is_full = False
        self._handshake = handshake
        self._owner = owner
        self._buffer_size_bytes_max = buffer_size_bytes_max
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._greet_by = greet_by
        # The first reason of the end; what arrives after it is ignored.
        self._error: DLedgerError | None = None

    def send(self, message: Message) -> bool:
        """Write `message`; return False if it was dropped because the peer reads too slowly or is disconnected."""
        transport = self._transport
        if self.is_full or transport is None or not self.is_open:
            return False
        head, payload = encode(message)
        if payload is None:
            transport.write(head)
        elif self.kind is not PeerKind.PLAIN and len(payload) <= _JOINED_SIZE_BYTES_MAX:
            transport.write(head + payload)
        else:
            transport.writelines((head, payload))
        return True

    @property
    def buffer_size_bytes(self) -> int:
        """Memory for received bytes of an incomplete frame."""
        return self._buffer.size_bytes

    @property
    def is_buffer_large(self) -> bool:
        """Whether that is more than any connection may hold."""
        return self._buffer.is_large

    def prove(self, group_id: int) -> bool:
        """Return whether the other side's greeting had this group id, which was not known here then."""
        self.is_proven = self.is_proven or self._named_group_id == group_id
        return self.is_proven

    def is_of_another_group(self, group_id: int) -> bool:
        """Return whether the other side's greeting had the id of another group."""
        return self._named_group_id not in (NO_GROUP, group_id)

    def check_identity(self) -> None:
        """Close the open connection if its certificate has been revoked, or has expired, since the greeting."""
        if self._transport is None or not self.is_open:
            return
        try:
            self._handshake.check_identity(self._transport, self.peer_id)
        except PeerRefused as refused:
            self.close(refused)

    def close(self, error: DLedgerError) -> None:
        """End the connection at once, dropping what is not yet sent; `on_closed` follows."""
        self._error = self._error or error
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the socket, and greet if this end dialled."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._buffer_size_bytes_max, low=self._buffer_size_bytes_max // 2)
        detect_silence(self._transport.get_extra_info("socket"), _SILENCE_LIMITS)
        self.kind = kind_of(self._transport)
        self.generation = self._handshake.security.generation_of(self.kind)
        timeout = PeerRefused(ResponseCode.NETWORK_ERROR, f"no greeting within {HELLO_TIMEOUT_S} s")
        loop = asyncio.get_running_loop()
        greet_by = loop.time() + HELLO_TIMEOUT_S if self._greet_by is None else self._greet_by
        self._hello_timer = loop.call_at(greet_by, self.close, timeout)
        if not self.is_dialled:
            self.host = str((self._transport.get_extra_info("peername") or ("",))[0])
            self._owner.on_accepted(self, self.host)
            return
        try:
            self._handshake.check_identity(self._transport, self.peer_id)
        except PeerRefused as refused:
            self.close(refused)
        else:
            self._transport.write(encode_hello(self._handshake.hello(self.peer_id, is_bulk=self.is_bulk)))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature; the buffer knows better)
        """Return a buffer for the next read."""
        return self._buffer.free_part()

    def buffer_updated(self, nbytes: int) -> None:
        """Split the received bytes into frames and pass them on together."""
        if self._error is not None:
            return
        try:
            frames = self._buffer.received(nbytes)
            if frames and not self.is_open:
                self._greeted(decode_hello(*frames.pop(0)))
            messages = [decode(control, payload) for control, payload in frames]
        except (BadFrame, PeerRefused) as error:
            self.close(error)
            return
        except StoreError as error:
            self.close(ConnectionLost("the greeting of the other side could not be saved"))
            self._owner.on_failed(error)
            return
        if self._buffer.is_large and self.is_open:
            self._owner.on_large(self)
        if messages and self.is_open:
            self._owner.on_messages(self, messages)

    def pause_writing(self) -> None:
        """Drop messages from now on: the peer does not keep up."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Send messages again."""
        self.is_full = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the reason of the end to the owner."""
        self.is_open = False
        self._transport = None
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        reason = str(exc) if exc else "closed by the other side"
        if self.kind is PeerKind.TLS and self.is_dialled and not self.is_greeted:
            reason += " after the handshake: it may refuse this node's certificate"
        self._owner.on_closed(self, self._error or ConnectionLost(reason))

    # ----------------------------------------------------------------------------------------------------- greeting

    def _greeted(self, hello: Hello) -> None:
        if self.is_dialled:
            self._handshake.check_answer(hello, self.peer_id)
        else:
            # Before anything else in the greeting is judged, and without an answer.
            assert self._transport is not None
            self._handshake.check_identity(self._transport, hello.self_id)
            if not self._answer(hello):
                return
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self.is_greeted = True
        self.is_proven = self._handshake.proves_group(hello)
        self._named_group_id = hello.group_id
        self.client_address, self.peer_address = hello.client_address, hello.peer_address
        self.feature_level = hello.feature_level
        if hello.is_bootstrap:
            self._hand_over()
            return
        self.is_open = True
        # Only the leader sends payloads, on connections that it dialled.
        self._buffer.accept_messages(has_payloads=self.is_bulk and not self.is_dialled)
        self._owner.on_open(self)

    def _hand_over(self) -> None:
        """Pass the socket to the owner, for a bootstrap connection; this object has ended."""
        transport, self._transport = self._transport, None
        if transport is None or self.is_dialled:
            raise BadFrame("a bootstrap connection where none is expected")
        self._owner.on_bootstrap(self, transport)

    def _answer(self, hello: Hello) -> bool:
        """Answer the dialling end; return False if it is refused: the reason is sent before the connection ends."""
        assert self._transport is not None
        answer, refused = self._handshake.answer(hello)
        self._transport.write(encode_hello(answer))
        self.peer_id, self.is_bulk = hello.self_id, hello.is_bulk
        if refused is None:
            return True
        self._error = refused
        self._transport.close()
        return False

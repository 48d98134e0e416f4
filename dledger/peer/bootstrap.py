"""Questions between nodes before they join: the accepting and the asking end of a bootstrap connection.

It is a connection of the peer transport whose Hello is marked as such. It carries `Question`s one way and `Answer`s the
other, in order; several questions may be in flight. It creates no link, and carries no Raft messages.

Not here: the content of questions (`dledger.peer.origin`, and its owner), which peers are accepted
(`dledger.peer.handshake`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Self, cast

from dledger.errors import DLedgerError
from dledger.peer.connection import PeerConnection
from dledger.peer.dialing import open_peer_connection
from dledger.peer.handshake import ForeignIdentity, Handshake
from dledger.peer.listening import PeerPort
from dledger.peer.origin import BootstrapHandler, BootstrapMessage
from dledger.peer.refusals import Refusal
from dledger.peer.unverified_peers import UnverifiedPeers
from dledger.peer.wire.buffer import FrameBuffer
from dledger.peer.wire.frames import (
    CONTROL_SIZE_BYTES_MAX,
    FRAME_HEAD,
    FRAME_SIZE_BYTES_MAX,
    BadFrame,
    check_control,
    decode_hello,
    encode_hello,
    head_and_control,
    parse_control,
)
from dledger.security.peers import PLAIN_PEERS
from dledger.v1 import peer_pb2
from store.errors import StoreError

if TYPE_CHECKING:
    from dledger.config import Address, NodeConfig
    from dledger.core.messages import Message
    from dledger.security.peers import PeerKind, PeerSecurity

logger = logging.getLogger(__name__)

# Questions in flight on one connection; a peer that sends more is not a node of this program.
QUESTIONS_MAX = 16
# Bootstrap connections that a node answers at the same time.
BOOTSTRAPS_MAX = 32
# A bootstrap connection is closed if nothing was asked or read on it for this time.
IDLE_S = 30.0
_DIAL_TIMEOUT_S = 2.0
_STREAM_LIMIT_BYTES = 4 << 20


class BootstrapResponder(asyncio.BufferedProtocol):
    """The accepting end: takes over a connection after its greeting, and answers until the other side closes it.

    Args:
        transport: of the connection.
        peer_id: the node id that the other side sent.
        handler: knows the answers.
        connections: all those of this node; this one is among them until it ends.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        peer_id: str,
        handler: BootstrapHandler,
        connections: dict[BootstrapResponder, None],
    ) -> None:
        self._transport = transport
        self._peer_id = peer_id
        self._handler = handler
        self._bootstraps = connections
        # The asking node need not be a member: no question is larger than a greeting, and none has a payload.
        self._buffer = FrameBuffer()
        # Oldest first, at most `QUESTIONS_MAX`; `_has_question` is set while there is one.
        self._questions: deque[BootstrapMessage] = deque()
        self._has_question = asyncio.Event()
        # Cleared while the other side reads too slowly.
        self._may_write = asyncio.Event()
        self._may_write.set()
        connections[self] = None
        transport.set_protocol(self)
        self._task = asyncio.get_running_loop().create_task(self._answer_all())

    def end(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature; the buffer knows better)
        """Return a buffer for the next read."""
        return self._buffer.free_part()

    def buffer_updated(self, nbytes: int) -> None:
        """Queue the questions in the received bytes."""
        try:
            for control, payload in self._buffer.received(nbytes):
                self._questions.append(_message_of(control, payload, "question"))
            if len(self._questions) > QUESTIONS_MAX:
                raise BadFrame(f"more than {QUESTIONS_MAX} questions in flight")  # noqa: TRY301  (one place ends it)
        except BadFrame as error:
            logger.warning("bootstrap_connection_ended peer=%r reason=%r", self._peer_id, str(error))
            self._transport.abort()
            return
        if self._questions:
            self._has_question.set()

    def pause_writing(self) -> None:
        """Pause answering until the other side has read some answers."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Answer again."""
        self._may_write.set()

    def eof_received(self) -> bool:
        """Close: the other side sends no more questions."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (the other side asks again if it likes)
        """Forget the connection."""
        self._bootstraps.pop(self, None)
        self._task.cancel()

    async def _answer_all(self) -> None:
        try:
            while True:
                async with asyncio.timeout(IDLE_S):
                    await self._has_question.wait()
                    await self._may_write.wait()
                question = self._questions.popleft()
                if not self._questions:
                    self._has_question.clear()
                answer = await self._handler.answer(self._peer_id, question)
                message = peer_pb2.PeerMessage(answer=peer_pb2.Answer(body=answer.body))
                self._transport.writelines((head_and_control(message, len(answer.payload)), answer.payload))
        except (ValueError, StoreError) as error:
            logger.warning("bootstrap_connection_ended peer=%r reason=%r", self._peer_id, str(error))
        except TimeoutError:
            pass
        finally:
            self._transport.abort()


class BootstrapConnection:
    """The asking end. Create it by `dial`; one task uses it at a time, and any error ends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def dial(cls, handshake: Handshake, peer_id: str, address: Address) -> Self:
        """Connect to the node `peer_id`, and greet.

        Raises:
            OSError, TimeoutError: it cannot be reached.
            PeerRefused: one side refuses the other; see the message.
            DLedgerError: the process at that address does not use this protocol.
        """
        *others, last = handshake.security.kinds
        for kind in others:
            with suppress(OSError, TimeoutError, DLedgerError):
                return await cls._dial(handshake, peer_id, address, kind)
        return await cls._dial(handshake, peer_id, address, last)

    @classmethod
    async def _dial(cls, handshake: Handshake, peer_id: str, address: Address, kind: PeerKind) -> Self:
        async with asyncio.timeout(_DIAL_TIMEOUT_S):
            reader = asyncio.StreamReader(limit=_STREAM_LIMIT_BYTES)
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await open_peer_connection(lambda: protocol, address, handshake.dialed(peer_id), kind)
            writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
            connection = cls(reader, writer)
            try:
                handshake.check_identity(transport, peer_id)
                writer.write(encode_hello(handshake.hello(peer_id, is_bulk=True, is_bootstrap=True)))
                answer = decode_hello(*await connection._frame())
                handshake.check_answer(answer, peer_id)
            except BaseException:
                connection.close()
                raise
        return connection

    def ask(self, question: BootstrapMessage) -> None:
        """Send a question; at most `QUESTIONS_MAX` may be in flight."""
        message = peer_pb2.PeerMessage(question=peer_pb2.Question(body=question.body))
        self._writer.write(head_and_control(message, len(question.payload)) + question.payload)

    async def answer(self) -> BootstrapMessage:
        """Return the answer to the oldest question.

        Raises:
            OSError, DLedgerError: the connection ended.
        """
        return _message_of(*await self._frame(), "answer")

    def close(self) -> None:
        """End it."""
        self._writer.transport.abort()

    async def _frame(self) -> tuple[bytes, bytes]:
        try:
            total_size, control_size = FRAME_HEAD.unpack(await self._reader.readexactly(FRAME_HEAD.size))
            if total_size + 4 > FRAME_SIZE_BYTES_MAX or not control_size + 4 <= total_size:
                raise BadFrame(f"frame head out of bounds: {total_size} bytes, {control_size} of them control")
            if control_size > CONTROL_SIZE_BYTES_MAX:
                raise BadFrame(f"a control part of {control_size} bytes")
            control = await self._reader.readexactly(control_size)
            payload_size = total_size - 4 - control_size
            if payload_size:
                # Before waiting for the payload: only answers have one.
                check_control(control, payload_size)
            return control, await self._reader.readexactly(payload_size)
        except asyncio.IncompleteReadError:
            raise DLedgerError("the other side ended the bootstrap connection") from None


class BootstrapServer:
    """Listens at the peer address of a node that has not joined yet, and answers questions of others there.

    Args:
        config: own address and identity.
        handler: knows the answers.
        security: of all connections.
    """

    def __init__(self, config: NodeConfig, handler: BootstrapHandler, security: PeerSecurity = PLAIN_PEERS) -> None:
        self.handshake = Handshake(config, lambda _: False, None, security=security)
        self._handler = handler
        self._bootstraps: dict[BootstrapResponder, None] = {}
        self._unverified = UnverifiedPeers()
        self._port = PeerPort(config, security, self._accept)
        self._is_started = False

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on; choose another one.
        """
        await self._port.start()
        self._is_started = True

    async def stop(self) -> None:
        """End all connections, and stop listening."""
        if not self._is_started:
            return
        self._port.close()
        for connection in list(self._bootstraps):
            connection.end()
        self._unverified.close(DLedgerError("this node stops to listen for bootstrap connections"))
        await self._port.wait_closed()

    def _accept(self, greet_by: float | None = None) -> PeerConnection:
        return PeerConnection(self.handshake, self, buffer_size_bytes_max=_STREAM_LIMIT_BYTES, greet_by=greet_by)

    # ------------------------------------------------------------------------------------------ from the connections

    def on_bootstrap(self, connection: PeerConnection, transport: asyncio.Transport) -> None:
        """Take over the socket of a bootstrap connection after its greeting, and answer its questions."""
        self._unverified.discard(connection)
        take_over(transport, connection.peer_id, self._handler, self._bootstraps)

    def on_open(self, connection: PeerConnection) -> None:
        """Both sides accepted the handshake, which here admits bootstrap connections only, no Raft messages."""
        raise AssertionError(f"{connection.peer_id} was let in, and this node does not take part")

    def on_messages(self, connection: PeerConnection, messages: list[Message]) -> None:
        """Refuse, as `on_open`: a connection that is not accepted cannot send messages."""
        raise AssertionError(f"{connection.peer_id} sent {messages}, and this node does not take part")

    def on_large(self, connection: PeerConnection) -> None:
        """Refuse, as `on_open`: a connection that is not accepted cannot send a large frame."""
        raise AssertionError(f"{connection.peer_id} sent a large frame, and this node does not take part")

    def on_accepted(self, connection: PeerConnection, host: str) -> None:
        """Count a connection from `host` whose greeting has not arrived yet."""
        self._unverified.add(connection, host)

    def on_failed(self, error: Exception) -> None:
        """Refuse: nothing is saved here, so nothing can fail."""
        raise AssertionError("a bootstrap connection saves nothing") from error

    def on_closed(self, connection: PeerConnection, error: DLedgerError) -> None:
        """Forget a connection that ended before its greeting arrived; the other side dials again."""
        self._unverified.discard(connection)
        if isinstance(error, ForeignIdentity):
            self._port.refusals.note(Refusal.IDENTITY, connection.host, str(error))


def take_over(
    transport: asyncio.BaseTransport,
    peer_id: str,
    handler: BootstrapHandler,
    connections: dict[BootstrapResponder, None],
) -> None:
    """Answer questions on a bootstrap connection from now on; beyond the bound the connection is closed."""
    if len(connections) >= BOOTSTRAPS_MAX:
        reason = f"more than {BOOTSTRAPS_MAX} are answered"
        logger.warning("bootstrap_connection_refused peer=%r reason=%r", peer_id, reason)
        cast("asyncio.Transport", transport).abort()
        return
    BootstrapResponder(cast("asyncio.Transport", transport), peer_id, handler, connections)


def _message_of(control: bytes, payload: bytes, kind: str) -> BootstrapMessage:
    message = parse_control(control, len(payload))
    if message.WhichOneof("kind") != kind:
        raise BadFrame(f"expected a {kind}, found {message.WhichOneof('kind')}")
    return BootstrapMessage(message.question.body if kind == "question" else message.answer.body, payload)

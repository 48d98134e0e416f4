"""What the blocking and the asyncio client know about frame ports: addresses, failures, tokens. It does no I/O.

Nodes name their frame port in `Status`. A port that cannot be reached or does not speak the protocol is not tried
again for a while, and its node is called by gRPC meanwhile; callers see no difference.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import grpc

from dledger.config import Address
from dledger.frames.codec import (
    CALL,
    CALL_ID_MAX,
    DEADLINE_MS_MAX,
    GREETING,
    METHODS,
    TOKEN,
    TOKEN_SIZE_BYTES_MAX,
    VERSION,
    BadClientFrame,
    ClientFrameReader,
    decode_greeting,
    decode_methods,
    encode_frame,
)
from dledger.security.channels import token_for
from dledger.security.contexts import client_context
from dledger.security.settings import Tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from dledger.security.settings import Security, Token

# A node's machine has just answered by gRPC, so a port that is open answers in milliseconds; a firewall that drops
# packets delays the first call by this.
CONNECT_LIMIT_S: Final = 0.5
TLS_CONNECT_LIMIT_S: Final = 2.0
_PAUSE_S_MIN: Final = 1.0
_PAUSE_S_MAX: Final = 60.0
_ADDRESSES_MAX: Final = 256
# Of a call that has no answer when its connection ends.
LOST: Final = "the connection broke after the request was sent"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class FrameCallFailed(Exception):
    """A call by frames ended without a response; the classification is that of gRPC (`dledger.client.failures`).

    Attributes:
        code: the status.
        details: for people.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name} {details}")
        self.code = code
        self.details = details


class NoFrames(Exception):
    """A frame port cannot be used; gRPC can."""


class MalformedToken(Exception):
    """The token of this client cannot be sent in a frame."""

    def __init__(self) -> None:
        super().__init__("the token of this client is malformed")


class FramePorts:
    """The frame ports of the nodes that a client calls. Any thread may call the methods.

    Args:
        security: of the client's connections.
        now_s: a monotonic clock.
    """

    def __init__(self, security: Security, now_s: Callable[[], float]) -> None:
        self._security = security
        self._now_s = now_s
        self._lock = threading.Lock()
        # By the address of a node's gRPC port: that of its frame port.
        self._ports: dict[str, Address] = {}
        # When a port may be tried again, and the pause after the next failure.
        self._pauses: dict[str, tuple[float, float]] = {}
        self._context: ssl.SSLContext | None = None

    @property
    def connect_limit_s(self) -> float:
        """Time limit of a connection with its greeting."""
        return TLS_CONNECT_LIMIT_S if isinstance(self._security, Tls) else CONNECT_LIMIT_S

    def learn(self, address: str, frame_address: str) -> None:
        """Take what a node said of itself.

        Args:
            address: of its gRPC port.
            frame_address: of its frame port; empty: it has none, or is of an older version.
        """
        known = self._ports.get(address)
        if frame_address == (str(known) if known else ""):
            return
        with self._lock:
            self._ports.pop(address, None)
            self._pauses.pop(address, None)
            if frame_address and len(self._ports) < _ADDRESSES_MAX:
                try:
                    self._ports[address] = Address.parse(frame_address)
                except ValueError:
                    return

    def usable(self, address: str) -> Address | None:
        """Return the frame port of a node; None: it has none, or must not be tried yet."""
        port = self._ports.get(address)
        if port is None or not self._pauses:
            return port
        pause = self._pauses.get(address)
        return port if pause is None or self._now_s() >= pause[0] else None

    def failed(self, address: str) -> None:
        """Note that the port of a node cannot be used: it is tried again after a pause, longer each time."""
        with self._lock:
            _, pause_s = self._pauses.get(address, (0.0, _PAUSE_S_MIN))
            self._pauses[address] = self._now_s() + pause_s, min(2 * pause_s, _PAUSE_S_MAX)

    def worked(self, address: str) -> None:
        """Note that the port of a node can be used."""
        with self._lock:
            self._pauses.pop(address, None)

    def token(self, port: Address) -> Token | None:
        """Return the source of the token for calls to a port; None: there is none, or it must not be sent there."""
        return token_for(str(port), self._security)

    def tls(self, port: Address) -> tuple[ssl.SSLContext, str] | None:
        """Return the context of connections to a port and the name that its certificate must have; None: plain.

        Raises:
            dledger.security.errors.CertificateFault: the client's own certificates cannot be used.
        """
        if not isinstance(self._security, Tls):
            return None
        if self._context is None:
            self._context = client_context(self._security)
        return self._context, self._security.server_name or port.host.strip("[]")


class Welcome:
    """Reads the server's greeting and its methods from the first bytes of a connection.

    Attributes:
        methods: their numbers, by path; None until they have arrived.
    """

    def __init__(self, reader: ClientFrameReader) -> None:
        self.methods: dict[str, int] | None = None
        self._reader = reader
        self._greeting: bytearray | None = bytearray()

    def received(self, data: bytes) -> bool:
        """Take bytes; return whether the methods are known.

        Raises:
            BadClientFrame: it is no such server, or has no version in common.
        """
        if self._greeting is not None:
            self._greeting += data
            if len(self._greeting) < GREETING.size:
                return False
            versions = decode_greeting(bytes(self._greeting[: GREETING.size]))
            if versions != (VERSION, VERSION):
                raise BadClientFrame(f"expected version {VERSION}, found {versions}")
            data = bytes(self._greeting[GREETING.size :])
            self._greeting = None
        for frame in self._reader.received(data):
            if self.methods is not None or frame.kind != METHODS:
                # A server that is stopping closes the connection next.
                raise BadClientFrame(f"expected the methods first, found a frame of kind {frame.kind}")
            self.methods = decode_methods(frame.payload)
        return self.methods is not None


class CallEncoder:
    """Encodes the calls of one connection: numbers them, and puts the token before the first one that needs it.

    Args:
        token: returns the token of calls; None: none is sent.
    """

    def __init__(self, token: Token | None) -> None:
        self._token = token
        self._sent_token = ""
        self._last_id = 0

    def encode(self, method: int, request: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Return the id of a call and its bytes, which must be sent, or the connection closed.

        Args:
            method: its number on this connection.
            request: in protobuf.
            timeout_s: of the call.

        Raises:
            MalformedToken: send nothing.
        """
        token = "" if self._token is None else self._token()
        before = b""
        if token != self._sent_token:
            if not token.isascii() or len(token) > TOKEN_SIZE_BYTES_MAX:
                raise MalformedToken
            before, self._sent_token = encode_frame(TOKEN, token.encode()), token
        self._last_id = call_id = self._last_id % CALL_ID_MAX + 1
        deadline_ms = min(max(int(timeout_s * 1000), 1), DEADLINE_MS_MAX)
        return call_id, before + encode_frame(CALL, request, detail=method, call_id=call_id, number=deadline_ms)


def code_of(status: int) -> grpc.StatusCode:
    """Return the code of gRPC with the number in an answer."""
    return _CODES.get(status, grpc.StatusCode.UNKNOWN)

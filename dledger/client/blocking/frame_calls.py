"""Calls by frames on the caller's own thread: one blocking socket for each call in flight, kept for the next call.

No thread, no event loop and no lock is on the way of a call. Before a call its socket is checked for bytes that arrived
since the last one: the server has closed the connection, or will, and another one is opened. What breaks after the
first byte of a call was sent has an unknown outcome.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc

from dledger.client.framing import (
    LOST,
    CallEncoder,
    FrameCallFailed,
    FramePorts,
    MalformedToken,
    NoFrames,
    Welcome,
    code_of,
)
from dledger.errors import DLedgerError
from dledger.frames.codec import (
    ANSWER,
    NOT_BEGUN,
    REQUEST_SIZE_BYTES_MAX,
    BadClientFrame,
    ClientFrameReader,
    encode_greeting,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from dledger.config import Address
    from dledger.security.settings import Security, Token

_READ_SIZE_BYTES: Final = 64 << 10
# Idle connections to one node: as many as the calls that a client has in flight.
_IDLE_MAX: Final = 4

ResponseT = TypeVar("ResponseT", bound="Message")


class _NotSent(Exception):
    """Nothing of a call was sent on this connection: another one may send it."""


class FrameCalls:
    """The connections of one client to frame ports. Any thread may call the methods.

    Args:
        security: of the connections.
    """

    def __init__(self, security: Security) -> None:
        self.ports = FramePorts(security, time.monotonic)
        self._lock = threading.Lock()
        # Connections without a call, by the address of the node's gRPC port; taking and giving back are atomic.
        self._idle: dict[str, list[_Connection]] = {}
        self._all: set[_Connection] = set()
        self._is_closed = False

    def call(self, address: str, path: str, request: Message, response: type[ResponseT], timeout_s: float) -> Any:
        """Return the response to a call, or None if it must be made by gRPC: nothing was sent then.

        Args:
            address: of the node's gRPC port.
            path: of the method.
            request: of the method.
            response: the class of its responses.
            timeout_s: for the answer.

        Raises:
            FrameCallFailed: the call ended without a response; `dledger.client.failures` says what that means.
        """
        data = request.SerializeToString()
        if len(data) > REQUEST_SIZE_BYTES_MAX:
            return None
        # A connection that was idle may be found closed; a new one is not.
        for _ in range(_IDLE_MAX + 1):
            connection = self._take(address, timeout_s)
            if connection is None:
                return None
            number = connection.methods.get(path)
            if number is None:
                self._give_back(address, connection)
                return None
            try:
                status, payload = connection.call(number, data, timeout_s)
            except _NotSent:
                self._drop(connection)
                continue
            except BaseException:
                # Also after an interrupt: the answer may still arrive.
                self._drop(connection)
                raise
            self._give_back(address, connection)
            if status == 0:
                return response.FromString(payload)
            details = payload.decode(errors="replace")
            if details != NOT_BEGUN:
                raise FrameCallFailed(code_of(status), details)
        return None

    def close(self) -> None:
        """Close all connections; calls in progress in other threads fail."""
        with self._lock:
            self._is_closed = True
            connections, self._all = self._all, set()
            self._idle.clear()
        for each in connections:
            each.close()

    def _take(self, address: str, timeout_s: float) -> _Connection | None:
        idle = self._idle.get(address)
        while idle:
            with suppress(IndexError):
                connection = idle.pop()
                if connection.is_quiet():
                    return connection
                self._drop(connection)
        port = self.ports.usable(address)
        return None if port is None or self._is_closed else self._connect(address, port, timeout_s)

    def _connect(self, address: str, port: Address, timeout_s: float) -> _Connection | None:
        try:
            connection = _connected(self.ports, port, min(self.ports.connect_limit_s, timeout_s))
        except (OSError, DLedgerError, NoFrames, ValueError):
            self.ports.failed(address)
            return None
        self.ports.worked(address)
        with self._lock:
            if not self._is_closed:
                self._all.add(connection)
                return connection
        connection.close()
        return None

    def _give_back(self, address: str, connection: _Connection) -> None:
        idle = self._idle.get(address)
        if idle is None:
            with self._lock:
                idle = self._idle.setdefault(address, [])
        if len(idle) < _IDLE_MAX and not connection.is_closing and not self._is_closed:
            idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        with self._lock:
            self._all.discard(connection)
        connection.close()


class _Connection:
    """One connection after its greeting; one thread at a time uses it."""

    def __init__(
        self, connected: socket.socket, reader: ClientFrameReader, methods: dict[str, int], token: Token | None
    ) -> None:
        self.methods = methods
        # The server takes no more calls.
        self.is_closing = False
        self._socket = connected
        self._reader = reader
        self._encoder = CallEncoder(token)
        self._timeout_s = connected.gettimeout()
        self._is_tls = isinstance(connected, ssl.SSLSocket)
        self._arrivals = select.poll()
        self._arrivals.register(connected.fileno(), select.POLLIN)

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived since the last call: the server has neither closed nor announced that."""
        try:
            return not self._arrivals.poll(0)
        except OSError:
            return False

    def call(self, number: int, request: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Return the status and the payload of the answer.

        Raises:
            _NotSent: nothing of the call was sent.
            FrameCallFailed: no answer; the request may have been executed.
        """
        try:
            call_id, data = self._encoder.encode(number, request, timeout_s)
        except MalformedToken as error:
            raise FrameCallFailed(grpc.StatusCode.UNAUTHENTICATED, str(error)) from None
        try:
            if timeout_s != self._timeout_s:
                self._socket.settimeout(timeout_s)
                self._timeout_s = timeout_s
            self._send(data)
            return self._answer_of(call_id, timeout_s)
        except TimeoutError:
            raise FrameCallFailed(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None
        except (OSError, BadClientFrame) as error:
            raise FrameCallFailed(grpc.StatusCode.UNAVAILABLE, f"{LOST}: {error}") from None

    def _send(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            # The first attempt of a plain connection: the kernel has taken nothing.
            if self._is_tls:
                raise
            raise _NotSent from error
        if sent < len(data):
            self._socket.sendall(memoryview(data)[sent:])

    def _answer_of(self, call_id: int, timeout_s: float) -> tuple[int, bytes]:
        found = None
        deadline = 0.0
        while True:
            data = self._socket.recv(_READ_SIZE_BYTES)
            if not data:
                raise ConnectionResetError("closed by the node")
            for kind, status, its_id, _, payload in self._reader.received(data):
                if kind != ANSWER:
                    self.is_closing = True
                elif its_id == call_id:
                    found = status, payload
                else:
                    raise BadClientFrame(f"expected the answer to call {call_id}, found that to {its_id}")
            if found is not None:
                return found
            # A large answer comes in pieces: the limit is for all of them.
            now_s = time.monotonic()
            deadline = deadline or now_s + timeout_s
            if now_s >= deadline:
                raise TimeoutError

    def close(self) -> None:
        """Close the socket; a thread that reads from it gets an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _connected(ports: FramePorts, port: Address, limit_s: float) -> _Connection:
    """Return a connection that has greeted.

    Raises:
        OSError, BadClientFrame, NoFrames: it cannot be made.
    """
    deadline = time.monotonic() + limit_s
    connected = socket.create_connection((port.host.strip("[]"), port.port), timeout=limit_s)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = ports.tls(port)
        if tls is not None:
            connected = tls[0].wrap_socket(connected, server_hostname=tls[1])
        reader = ClientFrameReader.of_client()
        return _Connection(connected, reader, _greeted(connected, reader, deadline), ports.token(port))
    except BaseException:
        connected.close()
        raise


def _greeted(connected: socket.socket, reader: ClientFrameReader, deadline: float) -> dict[str, int]:
    """Greet, and return the numbers of the server's methods."""
    connected.sendall(encode_greeting())
    welcome = Welcome(reader)
    while welcome.methods is None:
        connected.settimeout(max(deadline - time.monotonic(), 0.001))
        data = connected.recv(_READ_SIZE_BYTES)
        if not data:
            raise NoFrames("closed before its greeting")
        welcome.received(data)
    return welcome.methods

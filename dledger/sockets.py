"""Listening sockets whose owner accepts by itself, and the options of connections.

An owner that accepts decides about a connection before the event loop reads of it. The event loop's own servers report
a connection only after its TLS handshake has ended, so the number of handshakes could not be bounded.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_BACKLOG: Final = 128
# After a failed accept: descriptors are lacking, and every attempt would fail at once.
_PAUSE_S: Final = 0.2
# In the order of `SilenceLimits`.
_SILENCE_OPTIONS: Final = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


async def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for all addresses of `host`, as the event loop's own servers have; the caller closes.

    Raises:
        OSError: the address cannot be listened on; choose another one.
    """
    listeners: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
        )
        for family, kind, protocol, _, name in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setblocking(False)
            listener.bind(name)
            listener.listen(_BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise OSError(error.errno, f"{host}:{port} cannot be listened on: {error.strerror}") from error
    return listeners


async def accept_all(
    listener: socket.socket, accept: Callable[[socket.socket, str], None], note_failure: Callable[[OSError], None]
) -> None:
    """Accept connections until this is cancelled, which closes `listener`.

    Args:
        listener: one of `open_listeners`.
        accept: gets each accepted socket, which it closes, and the host of the other side.
        note_failure: gets the first error of several failures in a row; they are repeated after a pause.
    """
    loop, is_failing = asyncio.get_running_loop(), False
    try:
        while True:
            try:
                accepted, name = await loop.sock_accept(listener)
            except OSError as error:
                if not is_failing:
                    note_failure(error)
                is_failing = True
                await asyncio.sleep(_PAUSE_S)
                continue
            is_failing = False
            accept(accepted, str(name[0]))
    finally:
        listener.close()


async def first_byte(accepted: socket.socket) -> int:
    """Return the first byte that the other side sends: that of TLS begins no plain frame. It stays in the socket.

    Args:
        accepted: a socket that does not block, and that no transport has yet.

    Raises:
        ConnectionError: it has closed the connection, or sent none.
    """
    while True:
        try:
            byte = accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            await _readable(accepted)
            continue
        if not byte:
            raise ConnectionResetError("closed before its first byte")
        return byte[0]


async def _readable(accepted: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def on_readable() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(accepted.fileno(), on_readable)
    try:
        await ready
    finally:
        loop.remove_reader(accepted.fileno())


class SilenceLimits(NamedTuple):
    """After which silence the kernel ends a connection, because the other side vanished.

    Attributes:
        idle_s: without a packet, until the first probe.
        interval_s: between two probes.
        probes_count: without an answer, after which the connection ends.
        unread_ms: until sent data must be acknowledged.
    """

    idle_s: int
    interval_s: int
    probes_count: int
    unread_ms: int


def detect_silence(connection: socket.socket, limits: SilenceLimits) -> None:
    """Enable keep-alive on a connection of TCP, and send small data at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in zip(_SILENCE_OPTIONS, limits, strict=True):
        # Not every system has all of these options; where one is missing, the system's longer timeouts apply.
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

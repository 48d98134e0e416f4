"""Listening sockets whose owner accepts by itself, to decide about a connection before the event loop reads of it.

The event loop's own servers report a connection only after its TLS handshake has ended, so the number of handshakes
could not be bounded.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BACKLOG: Final = 128
# After a failed accept: descriptors are lacking, and every attempt would fail at once.
_PAUSE_S: Final = 0.2


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

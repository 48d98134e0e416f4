"""The connections that a gRPC server of this process has accepted, and the only way to close one of them.

gRPC for Python has no call that lists or closes connections. They are descriptors of this process, so they are found in
`/proc/self/fd`; each is duplicated before it is looked at, so that gRPC may close its own at any time, and ended with
`shutdown`, which gRPC treats as a client that went away (ADR 0053).

Not here: the rules by which connections are closed (`connections_by_address`, `unread_answers`).
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

_DESCRIPTORS = "/proc/self/fd"


class OtherEnd(NamedTuple):
    """The other end of a connection: its host, an address in digits, and its port."""

    host: str
    port: int


def peer_of(name: str) -> OtherEnd | None:
    """Return the address that `grpc.ServicerContext.peer()` names, e.g. `ipv4:10.0.0.7:4711`; None: not TCP."""
    family, _, address = unquote(name).partition(":")
    host, _, port = address.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return OtherEnd(host.strip("[]"), int(port))


def list_peers(port: int) -> set[OtherEnd]:
    """Return the other ends of all connections that were accepted on `port`; some 10 µs for each descriptor."""
    found = set()

    def keep(peer: OtherEnd, _: socket.socket) -> None:
        found.add(peer)

    _visit(port, keep)
    return found


def close_connections(port: int, peers: set[OtherEnd]) -> None:
    """End the connections of `peers` that were accepted on `port`; unsent answers are dropped."""

    def end(peer: OtherEnd, connection: socket.socket) -> None:
        if peer in peers:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    _visit(port, end)


def _visit(port: int, visit: Callable[[OtherEnd, socket.socket], None]) -> None:
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208  (these are numbers; the log knows paths as strings)
        # A descriptor may be closed at any moment, and its number may be used again; the duplicate stays what it is.
        with suppress(OSError):
            duplicate = os.dup(int(name))
            try:
                if stat.S_ISSOCK(os.fstat(duplicate).st_mode):
                    _visit_socket(duplicate, port, visit)
            finally:
                os.close(duplicate)


def _visit_socket(descriptor: int, port: int, visit: Callable[[OtherEnd, socket.socket], None]) -> None:
    connection = socket.socket(fileno=descriptor)
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
            host, peer_port, *_ = connection.getpeername()
            # gRPC listens on both families with one socket, and names the clients of version 4 without this prefix.
            visit(OtherEnd(host.removeprefix("::ffff:"), peer_port), connection)
    finally:
        connection.detach()

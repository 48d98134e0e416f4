"""Serves the console on loopback until the process is asked to end."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from cluster.console.app import Console, console_app
from cluster.console.hub import Hub
from cluster.console.topics import ask_topics
from dledger.client.aio.host import secured_host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from socket import socket

    from dledger.security.settings import Security


class ConsoleGroups(NamedTuple):
    """What a console shows.

    Attributes:
        nodes: client addresses of the nodes, by group.
        security: of the connections to them, with the token of the user whose rights the console has.
    """

    nodes: Mapping[str, tuple[str, ...]]
    security: Security


def serve(groups: ConsoleGroups, listener: socket) -> None:
    """Serve on an open listener until SIGINT or SIGTERM."""
    hub = Hub(dict(groups.nodes), secured_host(groups.security), lambda: time.time_ns() // 1_000_000)
    console = Console(hub, partial(ask_topics, groups.nodes, groups.security))
    # Streams have no end: open pages must not delay the end of the process.
    config = uvicorn.Config(
        console_app(console), log_level="warning", access_log=False, timeout_graceful_shutdown=1, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listener])

"""The asyncio client's access to its machine: time, randomness, and connections.

A port, as `dledger.node.host` is for nodes: the simulator of the shell (`dledger.testing.shell`) provides its own, so
that the whole client is determined by a seed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from dledger.client.failures import CHANNEL_OPTIONS
from dledger.client.reaching import STATUS_TIMEOUT_S, status_timeout_s
from dledger.security.channels import open_aio_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

    from dledger.security.settings import Security


def connect(address: str, security: Security = PLAIN) -> grpc.aio.Channel:
    """Return a channel to `host:port`; nothing is connected before its first call."""
    return open_aio_channel(address, security, CHANNEL_OPTIONS)


@dataclass(frozen=True, slots=True)
class ClientHost:
    """The machine of one client.

    Attributes:
        now_s: seconds of a monotonic clock; all deadlines are measured by it.
        random: chooses the pauses between attempts and the follower to read from.
        connect: opens a channel to `host:port`.
        status_timeout_s: of a request for the status of a node.
        frames: the security of connections to frame ports; None: calls go to gRPC only.
    """

    now_s: Callable[[], float] = time.monotonic
    random: Random = field(default_factory=Random)
    connect: Callable[[str], grpc.aio.Channel] = connect
    status_timeout_s: float = STATUS_TIMEOUT_S
    frames: Security | None = None


def secured_host(security: Security, *, may_use_frames: bool = False) -> ClientHost:
    """Return the machine's clock, randomness and connections, plain or with TLS."""
    return ClientHost(
        connect=partial(connect, security=security),
        status_timeout_s=status_timeout_s(security),
        frames=security if may_use_frames else None,
    )

"""The bounds of a frame port, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dledger.service.limits.unread_answers import SIZE_BYTES_MAX
from store.fs.descriptors import connections_max


class Closed(StrEnum):
    """Why the port ended a connection."""

    CROWDED = "crowded"
    HANDSHAKE = "handshake"
    GREETING = "greeting"
    PROTOCOL = "protocol"
    SLOW = "slow"
    IDLE = "idle"
    OLD = "old"
    STOPPED = "stopped"


def _half() -> int:
    return max(1, connections_max() // 2)


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The bounds; times in seconds.

    Attributes:
        connections_max: open at a time, in fair shares of addresses, or networks of IPv6; more are closed at once, and
            their clients use gRPC.
        ungreeted_max: before their greeting, TLS included; beyond it the oldest is closed.
        ungreeted_address_max: the same of one address.
        greeting_s: until the greeting has arrived, TLS included.
        calls_max: in flight on one connection; further ones are read when others have ended.
        call_bytes_max: of requests in flight on one connection; the same.
        all_call_bytes_max: the same of all connections; each may have one call beyond it.
        partial_s: until a frame that has begun is complete.
        partial_bytes_max: of incomplete frames of all connections; beyond it the largest one's connection is closed, of
            the address that has most.
        unread_s: in which a client must read something of its answers.
        unread_bytes_max: of answers that are not read, of all connections (`dledger.service.limits.unread_answers`).
        idle_s: without a call.
        age_s: of a connection: so that certificates and authorities that are not valid any more end.
        linger_s: after `CLOSING`, for calls that are on their way: they are refused.
    """

    connections_max: int = field(default_factory=_half)
    ungreeted_max: int = 128
    ungreeted_address_max: int = 64
    greeting_s: float = 10.0
    calls_max: int = 128
    call_bytes_max: int = 16 << 20
    all_call_bytes_max: int = 256 << 20
    partial_s: float = 10.0
    partial_bytes_max: int = 64 << 20
    unread_s: float = 30.0
    unread_bytes_max: int = SIZE_BYTES_MAX
    idle_s: float = 300.0
    age_s: float = 3600.0
    linger_s: float = 10.0


@dataclass(slots=True)
class FrameCounts:
    """What one port counts, for metrics.

    Attributes:
        connections: open, with a greeting.
        calls: that have begun, also refused ones.
        closed: connections that the port ended, by reason.
    """

    connections: int = 0
    calls: int = 0
    closed: dict[Closed, int] = field(default_factory=lambda: dict.fromkeys(Closed, 0))

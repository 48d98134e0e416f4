"""The bounds of the front's port."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.service.frames.limits import FrameLimits


@dataclass(frozen=True, slots=True)
class RemotingLimits(FrameLimits):
    """The bounds; times in seconds. What `FrameLimits` calls a greeting is here the first whole frame of a client.

    Attributes:
        calls_max: requests in flight on one connection. A consumer waits for messages with a request for each of its
            queues, so they are many.
        all_calls_max: the same of all connections, in fair shares of addresses; each connection may have one beyond it.
            The bytes of requests are shared in the same way.
        asks_max: requests of the server in flight on one connection.
        idle_s: without a request. RocketMQ's own clients send something each 30 s.
    """

    calls_max: int = 4096
    all_calls_max: int = 16_384
    asks_max: int = 64
    idle_s: float = 180.0

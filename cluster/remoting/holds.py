"""Requests that wait at the leader for messages, until this node stops.

A hold is a series of calls of some seconds each at whatever node leads then, so that a change of the leader ends no
hold. When this node stops its clients are answered at once: older ones wait 30 s after a connection that was closed
instead.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from dledger.networks import network_of_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.client.routing.broker_nodes import Method, ResponseT
    from cluster.fronts.leader_link import LeaderLink
    from cluster.remoting.front import RemotingClient
    from cluster.v1 import broker_pb2 as pb

# Clients wait 30 s for the answer.
HOLD_S_MAX: Final = 20.0
# Of one call of the leader.
PIECE_S: Final = 5.0
_LIMIT_S: Final = 2.5


class Holds:
    """The calls of one node that wait.

    Args:
        link: to the leader.
    """

    def __init__(self, link: LeaderLink) -> None:
        self._link = link
        self._stopping = asyncio.Event()
        self._alarms: set[asyncio.Event] = set()

    @property
    def is_stopping(self) -> bool:
        """Whether nothing is held any more."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End all waits now, and begin no more."""
        self._stopping.set()
        for alarm in self._alarms:
            alarm.set()

    @contextmanager
    def alarming(self, alarm: asyncio.Event) -> Iterator[None]:
        """Set an event also when this node stops, at once if it does already."""
        self._alarms.add(alarm)
        if self.is_stopping:
            alarm.set()
        try:
            yield
        finally:
            self._alarms.discard(alarm)

    async def call(
        self, method: Method[ResponseT], request: pb.GetRequest | pb.ReceiveRequest, wait_s: float
    ) -> ResponseT:
        """Return the response of the leader; a wait there ends early when this node stops.

        Args:
            method: selects the method of the stub.
            request: its wait is set.
            wait_s: for which the leader may wait, in seconds.

        Raises:
            RequestFailed: no leader has answered.
        """
        request.wait_ms = int(wait_s * 1_000)
        call = asyncio.ensure_future(self._link.call(method, request, wait_s + _LIMIT_S, wait_s))
        if not wait_s:
            return await call
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((call, stopping), return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
        finally:
            call.cancel()
            stopping.cancel()
        request.wait_ms = 0
        return await self._link.call(method, request, _LIMIT_S)


def holder_of(client: RemotingClient) -> str:
    """Return the network to which a request counts: clients of one address have one share."""
    return network_of_host(client.address.rpartition(":")[0])

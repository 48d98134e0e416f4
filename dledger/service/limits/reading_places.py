"""Places of the requests that a server receives at the same time: a bound of the memory that they take.

gRPC for Python has no bound of the memory of all requests. While a call is being read, its request may grow to the
server's largest size, whatever the method allows; while it is not, gRPC's flow control stops its client after 64 KiB
(only without the probe of `grpc.http2.bdp_probe`, which raises that window). So a server reads a bounded number of
requests at a time, with fair shares of their callers, and other calls wait.

Not here: how long a call may wait or be read (`unread_calls`).
"""

from __future__ import annotations

import asyncio
from collections import deque

from dledger.service.limits.fair_shares import FairShares


class ReadingPlaces:
    """Some places; callers that wait get theirs in turn, and in the order of the calls of each. Loop thread only.

    Args:
        count: requests that are received at the same time.
    """

    def __init__(self, count: int) -> None:
        self._shares = FairShares(count)
        # By caller, in the order of their first waiting calls; no queue is empty.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def is_short(self) -> bool:
        """Whether a call waits for a place."""
        return bool(self._waiting)

    def take(self, caller: str) -> bool:
        """Take a place without waiting; False: none is free for this caller. `give_back` ends it."""
        return self._shares.take(caller, 1)

    async def wait(self, caller: str) -> None:
        """Return when the caller has a place; `give_back` ends it. A task that is cancelled has none."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(place)
        try:
            # Shielded: a place in the line is not done until this task has left the line.
            await asyncio.shield(place)
        except asyncio.CancelledError:
            if place.done():
                # It got its place in the iteration in which it was cancelled.
                self.give_back(caller)
            else:
                self._leave(caller, place)
            raise

    def give_back(self, caller: str) -> None:
        """Give back the place of a call, and pass on what is free."""
        self._shares.give_back(caller, 1)
        self._serve()

    def share_of(self, caller: str) -> int:
        """Return the number of places of a caller."""
        return self._shares.held_by(caller)

    def _serve(self) -> None:
        # A pass gives each caller one place at most; those that were served go to the end of the line.
        for caller in list(self._waiting):
            if self._shares.used == self._shares.size:
                return
            if self._shares.take(caller, 1):
                places = self._waiting.pop(caller)
                places.popleft().set_result(None)
                if places:
                    self._waiting[caller] = places

    def _leave(self, caller: str, place: asyncio.Future[None]) -> None:
        places = self._waiting[caller]
        places.remove(place)
        if not places:
            del self._waiting[caller]

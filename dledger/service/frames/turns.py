"""Which connection begins the next call: users take turns, and so do the connections of one user.

A call that has begun delays all others in the same iteration of the event loop. So a port begins a limited number of
calls in each iteration. If more have arrived, each user's next call waits for one call of each other user, however many
calls those have sent. gRPC's server, in contrast, serves all calls in the order of their arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

# Calls that begin in one iteration of the event loop: as many as take about this time, from experience.
_ITERATION_S: Final = 0.005
_BEGINS_MIN, _BEGINS_MAX = 8, 1024
_BEGINS_AT_FIRST: Final = 64


class TurnTaker(Protocol):
    """A connection that has frames to process."""

    holder: str

    def begin_next(self) -> None:
        """Begin the next call, and wait for another turn if more may begin."""


class FairTurns:
    """The turns of one port. Construct it in the event loop.

    Args:
        now_s: a monotonic clock.
    """

    __slots__ = ("_began_s", "_begins_max", "_is_scheduled", "_left", "_loop", "_now_s", "_waiting")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._now_s = now_s
        # Adapted to what calls cost: halved after an iteration that was too long, else a bit more if all were used.
        self._begins_max = self._left = _BEGINS_AT_FIRST
        # Whether `_next_iteration` is scheduled, and when the iteration began in which it was.
        self._is_scheduled = False
        self._began_s = 0.0
        # By holder, in the order of their turns; each connection once, in the order of its turns.
        self._waiting: dict[str, deque[TurnTaker]] = {}

    def may_begin(self) -> bool:
        """Return whether a call that has just arrived may begin at once; then it counts as begun."""
        if self._waiting or not self._left:
            return False
        self._left -= 1
        self._schedule()
        return True

    def wait(self, connection: TurnTaker) -> None:
        """Call `begin_next` of a connection when it is its turn; it must not wait already."""
        waiting = self._waiting.get(connection.holder)
        if waiting is None:
            self._waiting[connection.holder] = deque((connection,))
        else:
            waiting.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._began_s = self._now_s()
            self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        # The calls that began since the last one have run now: the event loop keeps the order of what it was given.
        now_s = self._now_s()
        self._is_scheduled = False
        if now_s - self._began_s > _ITERATION_S:
            self._begins_max = max(self._begins_max // 2, _BEGINS_MIN)
        elif not self._left:
            self._begins_max = min(self._begins_max + self._begins_max // 4, _BEGINS_MAX)
        self._left = self._begins_max
        while self._left and self._waiting:
            holder = next(iter(self._waiting))
            connections = self._waiting.pop(holder)
            connection = connections.popleft()
            if connections:
                self._waiting[holder] = connections
            self._left -= 1
            connection.begin_next()
        if self._waiting:
            self._schedule()
            self._began_s = now_s

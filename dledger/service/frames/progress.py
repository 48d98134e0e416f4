"""How long a connection has made no progress, seen once a second, without a clock at each call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.service.frames.limits import Closed

if TYPE_CHECKING:
    from dledger.service.frames.limits import FrameLimits


class Seen(NamedTuple):
    """What is seen of a connection.

    Attributes:
        begun: calls that have begun so far.
        frames: frames that have arrived so far.
        unsent_bytes: of answers that the transport has not sent.
        is_partial: a frame is not complete, and the rest of it is awaited.
        is_idle: no call is in flight.
    """

    begun: int
    frames: int
    unsent_bytes: int
    is_partial: bool
    is_idle: bool


class ProgressWatch:
    """Since when one connection has not made progress of each kind; times by the loop's clock, None: it makes some."""

    def __init__(self) -> None:
        self._before = Seen(0, 0, 0, is_partial=False, is_idle=False)
        self._partial_s: float | None = None
        self._unread_s: float | None = None
        self._idle_s: float | None = None

    def look(self, now_s: float, seen: Seen, limits: FrameLimits) -> tuple[Closed, str] | None:
        """Return why the connection should end (`SLOW`) or drain (`IDLE`), with a text; None: it should do neither."""
        before, self._before = self._before, seen
        is_partial = seen.is_partial and seen.frames == before.frames
        self._partial_s = (self._partial_s or now_s) if is_partial else None
        is_unread = seen.unsent_bytes >= before.unsent_bytes > 0
        self._unread_s = (self._unread_s or now_s) if is_unread else None
        is_idle = seen.is_idle and seen.begun == before.begun
        self._idle_s = (self._idle_s or now_s) if is_idle else None
        if self._partial_s is not None and now_s - self._partial_s > limits.partial_s:
            return Closed.SLOW, "a frame is not complete in time"
        if self._unread_s is not None and now_s - self._unread_s > limits.unread_s:
            return Closed.SLOW, "answers are not read"
        if self._idle_s is not None and now_s - self._idle_s > limits.idle_s:
            return Closed.IDLE, ""
        return None

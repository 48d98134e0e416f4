"""What of the queue of a delay level is due: a pure function of its delivery times and of the time.

The units of one level are delivered in their order, so what is due is a prefix. A time further away than the delay of
the level counts as due: a clock was wrong when the message was stored, and it would block the level.

Source: RocketMQ `ScheduleMessageService.DeliverDelayedMessageTimerTask.correctDeliverTimestamp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from store.model.dispatch_batch import Int64s


class Due(NamedTuple):
    """The due part of a queue.

    Attributes:
        units_count: leading units that are due.
        next_ms: when the next one is due, milliseconds since 1970; None: it is not among the given units.
    """

    units_count: int
    next_ms: int | None


def due_of(times_ms: Int64s, now_ms: int, delay_ms: int) -> Due:
    """Return the due part of a queue.

    Args:
        times_ms: delivery times of consecutive units.
        now_ms: the time, milliseconds since 1970.
        delay_ms: delay of the level.
    """
    waiting = np.flatnonzero((times_ms > now_ms) & (times_ms <= now_ms + delay_ms))
    if not len(waiting):
        return Due(len(times_ms), None)
    first = int(waiting[0])
    return Due(first, int(times_ms[first]))

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


def expiring_of(times_ms: Int64s, now_ms: int, delay_ms: int, keep_ms: int) -> Due:
    """Return the leading units whose records the log will delete before they are due.

    Args:
        times_ms: delivery times of consecutive units that wait.
        now_ms: the time, milliseconds since 1970.
        delay_ms: delay of the level: a record was stored that time before it is due.
        keep_ms: age of a record at which it must not wait any longer.
    """
    if delay_ms <= keep_ms:
        return Due(0, None)
    ages_ms = now_ms - (times_ms - delay_ms)
    kept = np.flatnonzero(ages_ms < keep_ms)
    if not len(kept):
        return Due(len(times_ms), None)
    first = int(kept[0])
    return Due(first, int(times_ms[first]) - delay_ms + keep_ms)

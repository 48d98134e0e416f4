"""The properties of messages that are delivered at any time, and the time in them.

| property | meaning |
| --- | --- |
| `TIMER_DELAY_SEC`, `TIMER_DELAY_MS`, `TIMER_DELIVER_MS` | asked for: a delay in seconds, in milliseconds; a time |
| `TIMER_DELIVER_MS` | of a message that waits: its exact time, milliseconds since 1970; set by this broker |
| `TIMER_OUT_MS` | of a message that waits: RocketMQ's slot, which is emptied one precision (a second) later |
| `TIMER_DEL_UNIQKEY` | the record is no message, but recalls the one with this key |
| `TIMER_ROLL_TIMES` | number of times that the message was put again before its time |
| `TIMER_ENQUEUE_MS`, `TIMER_DEQUEUE_MS` | of a delivered message: when it was put, and when it was due |

Source: RocketMQ `MessageConst`, `HookUtils.transformTimerMessage`, `TimerMessageStore`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DELAY_SEC: Final = "TIMER_DELAY_SEC"
DELAY_MS: Final = "TIMER_DELAY_MS"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
OUT_MS: Final = "TIMER_OUT_MS"
DELETE_KEY: Final = "TIMER_DEL_UNIQKEY"
ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
# RocketMQ's `timerPrecisionMs`.
PRECISION_MS: Final = 1_000
# Of a record that is no message: it is examined at once.
AT_ONCE_MS: Final = 0
# Far beyond any delay, and below 2^63.
_TIME = re.compile(r"[0-9]{1,18}", re.ASCII)


def timer_out_ms(deliver_ms: int) -> int:
    """Return RocketMQ's slot for a time: rounded down to the precision; an exact multiple becomes the one before."""
    return (deliver_ms - 1) // PRECISION_MS * PRECISION_MS


def timer_time_ms(properties: Mapping[str, str]) -> int:
    """Return when a record of the timer topic is due, in milliseconds since 1970; `AT_ONCE_MS`: it names no time.

    A record of RocketMQ has no exact time if the client asked for a delay: the end of its slot is used.
    """
    if DELETE_KEY in properties:
        return AT_ONCE_MS
    exact, slot = properties.get(DELIVER_MS, ""), properties.get(OUT_MS, "")
    if _TIME.fullmatch(exact):
        return int(exact)
    return int(slot) + PRECISION_MS if _TIME.fullmatch(slot) else AT_ONCE_MS

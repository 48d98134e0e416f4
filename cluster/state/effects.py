"""The effects of message records on broker state, and their text in the records (`commitlog.record.effects`).

| effect | text | changes |
| --- | --- | --- |
| `DelayDelivered` | `d:<level>:<unit>` | the unit of the delay level was copied to its topic; the next one is due |
| `Returned` | `b:<key>`, of a dead letter `x:<key>` | a consumer returned the message with this key: this is the copy |
| `TimerDone` | `t:<unit>` | the unit of the timer queue was copied to its topic |
| | `r:<unit>` | … was put again, by this record, because the log will be deleted before its time |
| | `c:<unit>` | … was recalled, by this record |

A message cannot be refused when it is applied. So the leader decides what it writes from the applied state and from
what it has proposed since; an effect that does not fit the state changes nothing, and is counted as a defect.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.state.compact_bytes import Unreadable
from store.model.topics import DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_UNIT_END: Final = 1 << 63
_NUMBER_LENGTH_MAX: Final = 19
_KEY_TEXT: Final = re.compile(r"[0-9a-f]{32}")


class DelayDelivered(NamedTuple):
    """The record is the copy of a delayed message.

    Attributes:
        level: delay level, from 1.
        unit: offset of the delayed message in the queue of its level.
    """

    level: int
    unit: int


class Returned(NamedTuple):
    """The record is the copy of a message that a consumer returned.

    Attributes:
        key: of the group and the returned message (`cluster.retries.copies`), 16 bytes.
        is_dead: whether the copy is a dead letter.
    """

    key: bytes
    is_dead: bool


class TimerEnd(StrEnum):
    """Why a message for a time does not wait any more."""

    DELIVERED = "t"
    PUT_AGAIN = "r"
    RECALLED = "c"


class TimerDone(NamedTuple):
    """The record ends the wait of a message for a time.

    Attributes:
        unit: its offset in the timer queue.
        end: why.
    """

    unit: int
    end: TimerEnd = TimerEnd.DELIVERED


Effect = DelayDelivered | Returned | TimerDone


def encode_effect(effect: Effect) -> str:
    """Return the text of an effect."""
    match effect:
        case DelayDelivered(level, unit):
            return f"d:{level}:{unit}"
        case Returned(key, is_dead):
            return f"{'x' if is_dead else 'b'}:{key.hex()}"
        case TimerDone(unit, end):
            return f"{end.value}:{unit}"


def decode_effect(text: str) -> Effect:
    """Return the effect of a text.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is none, or one of a newer version. The node must stop.
    """
    kind, _, rest = text.partition(":")
    reading = _READERS.get(kind)
    effect = None if reading is None else reading(rest)
    # The text of an effect is unique: no other digits, and no zeros before a number.
    if effect is not None and encode_effect(effect) == text:
        return effect
    raise Unreadable("the effect of a record", 0, f"one of the kinds {', '.join(_READERS)}", repr(text[:80]))


def _numbers(texts: Sequence[str], count: int) -> list[int] | None:
    if len(texts) != count or not all(text.isdecimal() and len(text) <= _NUMBER_LENGTH_MAX for text in texts):
        return None
    numbers = [int(text) for text in texts]
    return numbers if max(numbers) < _UNIT_END else None


def _delay_delivered(text: str) -> DelayDelivered | None:
    numbers = _numbers(text.split(":"), 2)
    return DelayDelivered(*numbers) if numbers and 1 <= numbers[0] <= len(DELAY_LEVELS_MS) else None


def _returned(text: str, *, is_dead: bool) -> Returned | None:
    return Returned(bytes.fromhex(text), is_dead) if _KEY_TEXT.fullmatch(text) else None


def _timer_done(text: str, end: TimerEnd) -> TimerDone | None:
    numbers = _numbers([text], 1)
    return TimerDone(numbers[0], end) if numbers else None


_READERS: Final[dict[str, Callable[[str], Effect | None]]] = {
    "d": _delay_delivered,
    "b": partial(_returned, is_dead=False),
    "x": partial(_returned, is_dead=True),
    **{end.value: partial(_timer_done, end=end) for end in TimerEnd},
}

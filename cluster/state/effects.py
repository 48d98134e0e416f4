"""The effects of message records on broker state, and their text in the records (`commitlog.record.effects`).

| effect | text | changes |
| --- | --- | --- |
| `DelayDelivered` | `d:<level>:<unit>` | the unit of the delay level was copied to its topic; the next one is due |
| `TimerDone` | `t:<unit>` | the unit of the timer queue was copied to its topic |
| | `r:<unit>` | … was put again, by this record, because the log will be deleted before its time |
| | `c:<unit>` | … was recalled, by this record |

A message cannot be refused when it is applied. So the leader decides what it writes from the applied state and from
what it has proposed since; an effect that does not fit the state changes nothing, and is counted as a defect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from cluster.state.compact_bytes import Unreadable
from store.model.topics import DELAY_LEVELS_MS

_DELAY: Final = "d"
_UNIT_END: Final = 1 << 63
_TEXT_LENGTH_MAX: Final = 30


class DelayDelivered(NamedTuple):
    """The record is the copy of a delayed message.

    Attributes:
        level: delay level, from 1.
        unit: offset of the delayed message in the queue of its level.
    """

    level: int
    unit: int


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


Effect = DelayDelivered | TimerDone
_TIMER_ENDS: Final = frozenset(TimerEnd)


def encode_effect(effect: Effect) -> str:
    """Return the text of an effect."""
    if isinstance(effect, TimerDone):
        return f"{effect.end.value}:{effect.unit}"
    return f"{_DELAY}:{effect.level}:{effect.unit}"


def decode_effect(text: str) -> Effect:
    """Return the effect of a text.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is none, or one of a newer version. The node must stop.
    """
    effect = _decoded(text) if len(text) <= _TEXT_LENGTH_MAX else None
    # The text of an effect is unique: no other digits, and no zeros before a number.
    if effect is None or effect.unit >= _UNIT_END or encode_effect(effect) != text:
        raise Unreadable("the effect of a record", 0, "one of the kinds d, t, r, c", repr(text[:80]))
    return effect


def _decoded(text: str) -> Effect | None:
    kind, _, numbers = text.partition(":")
    if kind in _TIMER_ENDS:
        return TimerDone(int(numbers), TimerEnd(kind)) if numbers.isdecimal() else None
    level, _, unit = numbers.partition(":")
    if kind != _DELAY or not level.isdecimal() or not unit.isdecimal():
        return None
    effect = DelayDelivered(int(level), int(unit))
    return effect if 1 <= effect.level <= len(DELAY_LEVELS_MS) else None

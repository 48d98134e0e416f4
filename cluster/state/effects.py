"""The effects of message records on broker state, and their text in the records (`commitlog.record.effects`).

| effect | text | changes |
| --- | --- | --- |
| `DelayDelivered` | `d:<level>:<unit>` | the unit of the delay level was copied to its topic; the next one is due |
| `Returned` | `b:<key>`, of a dead letter `x:<key>` | a consumer returned the message with this key: this is the copy |
| `TimerDone` | `t:<unit>` | the unit of the timer queue was copied to its topic |
| | `r:<unit>` | … was put again, by this record, because the log will be deleted before its time |
| | `c:<unit>` | … was recalled, by this record |
| `Prepared` | `h:<immunity>:<group>:<key>` | the record is a half message: its transaction is open |
| `Ended` | `e:<half>:<c, r or g>,…` | these transactions ended (`cluster.state.transactions`) |
| `GivenUp` | `g:<half>` | the record is the copy of a half message whose transaction no producer decided |
| `Renewed` | `n:<half>` | the record replaces a half message, because the log will delete that record |
| `PopMoved` | `p:<group>:<topic>:<queue>:<offset>:<serial>` | the record is the copy of a message in flight, now done |

A message cannot be refused when it is applied. So the leader decides what it writes from the applied state and from
what it has proposed since; an effect that does not fit the state changes nothing, and is counted as a defect.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.state.compact_bytes import Unreadable
from store.model.topics import DELAY_LEVELS_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_UNIT_END: Final = 1 << 63
_HASH_END: Final = 1 << 32
# Seconds in which a producer does not want to be asked.
IMMUNITY_S_MAX: Final = 3_600
# Transactions whose ends one record carries: its properties have at most 32,767 bytes.
ENDS_MAX: Final = 256
_KEY_TEXT: Final = re.compile(r"[0-9a-f]{32}")
# The only text of a number: no other digits, and no zeros before it.
_NUMBER: Final = re.compile("(0|[1-9][0-9]{0,18})")
_DELAYED: Final = re.compile(f"{_NUMBER.pattern}:{_NUMBER.pattern}")


class Ending(StrEnum):
    """How a transaction ended; the letters are in the text of effects."""

    COMMITTED = "c"
    ROLLED_BACK = "r"
    GIVEN_UP = "g"


_ENDINGS: Final = {ending.value: ending for ending in Ending}
_END: Final = re.compile(f"{_NUMBER.pattern}:([{''.join(_ENDINGS)}])")


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


class Prepared(NamedTuple):
    """The record is a half message.

    Attributes:
        immunity_s: seconds from its put in which its producer is not asked, at most `IMMUNITY_S_MAX`.
        group_hash: CRC-32 of the name of the producer group.
        key_hash: CRC-32 of the id of the transaction.
    """

    immunity_s: int
    group_hash: int
    key_hash: int


class Ended(NamedTuple):
    """Transactions have ended: by this record, if it is a committed message, or else as it says.

    Attributes:
        ends: offset of each half message in its queue, ascending, and how its transaction ended.
    """

    ends: tuple[tuple[int, Ending], ...]


class GivenUp(NamedTuple):
    """The record is the copy of a half message whose transaction is given up.

    Attributes:
        half: offset of the half message in its queue.
    """

    half: int


class Renewed(NamedTuple):
    """The record is a half message that replaces the record of an open transaction.

    Attributes:
        half: offset of the first half message, by which the transaction is known.
    """

    half: int


class PopMoved(NamedTuple):
    """The record is the copy of a message that a pop consumer was to get: a dead letter, or in a retry topic.

    Attributes:
        group: consumer group.
        topic: topic of the message that is done now.
        queue_id: its queue.
        offset: its offset there.
        serial: of the leader's own lease of it.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    serial: int


Effect = DelayDelivered | Returned | TimerDone | Prepared | Ended | GivenUp | Renewed | PopMoved


def delayed_head(level: int) -> str:
    """Return the text of `DelayDelivered` up to its unit."""
    return f"d:{level}:"


def timer_head(end: TimerEnd) -> str:
    """Return the text of `TimerDone` up to its unit."""
    return f"{end}:"


def encode_effect(effect: Effect) -> str:  # noqa: PLR0911  (one for each kind)
    """Return the text of an effect."""
    match effect:
        # Patterns without fields, for what deliveries make by the thousands: their names would be looked up each time.
        case DelayDelivered():
            return f"{delayed_head(effect.level)}{effect.unit}"
        case TimerDone():
            return f"{timer_head(effect.end)}{effect.unit}"
        case Returned(key, is_dead):
            return f"{'x' if is_dead else 'b'}:{key.hex()}"
        case Prepared(immunity_s, group_hash, key_hash):
            return f"h:{immunity_s}:{group_hash}:{key_hash}"
        case Ended(ends):
            return "e:" + ",".join(f"{half}:{ending}" for half, ending in ends)
        case GivenUp(half) | Renewed(half):
            return f"{'g' if isinstance(effect, GivenUp) else 'n'}:{half}"
        case PopMoved(group, topic, queue_id, offset, serial):
            return f"p:{group}:{topic}:{queue_id}:{offset}:{serial}"


def decode_effect(text: str) -> Effect:
    """Return the effect of a text.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is none, or one of a newer version. The node must stop.
    """
    kind, _, rest = text.partition(":")
    reading = _READERS.get(kind)
    effect = None if reading is None else reading(rest)
    if effect is not None:
        return effect
    raise Unreadable("the effect of a record", 0, f"one of the kinds {', '.join(_READERS)}", repr(text[:80]))


# The readers: each accepts only the text that `encode_effect` returns, so equal effects have equal records.


def _numbers(texts: Sequence[str], count: int) -> list[int] | None:
    if len(texts) != count or not all(map(_NUMBER.fullmatch, texts)):
        return None
    numbers = list(map(int, texts))
    return numbers if max(numbers) < _UNIT_END else None


def _delay_delivered(text: str) -> DelayDelivered | None:
    # One expression for both numbers: this runs on every node for every delayed message.
    found = _DELAYED.fullmatch(text)
    if found is None:
        return None
    level, unit = int(found[1]), int(found[2])
    return DelayDelivered(level, unit) if 1 <= level <= len(DELAY_LEVELS_MS) and unit < _UNIT_END else None


def _returned(text: str, *, is_dead: bool) -> Returned | None:
    return Returned(bytes.fromhex(text), is_dead) if _KEY_TEXT.fullmatch(text) else None


def _timer_done(text: str, end: TimerEnd) -> TimerDone | None:
    unit = int(text) if _NUMBER.fullmatch(text) else _UNIT_END
    return TimerDone(unit, end) if unit < _UNIT_END else None


def _prepared(text: str) -> Prepared | None:
    numbers = _numbers(text.split(":"), 3)
    if numbers is None or numbers[0] > IMMUNITY_S_MAX or max(numbers[1:]) >= _HASH_END:
        return None
    return Prepared(*numbers)


def _ended(text: str) -> Ended | None:
    found = [_END.fullmatch(part) for part in text.split(",", ENDS_MAX)]
    ends = [(int(each[1]), _ENDINGS[each[2]]) for each in found if each is not None]
    is_ascending = all(one[0] < other[0] for one, other in pairwise(ends))
    if len(ends) != len(found) or len(ends) > ENDS_MAX or not is_ascending or ends[-1][0] >= _UNIT_END:
        return None
    return Ended(tuple(ends))


def _given_up(text: str) -> GivenUp | None:
    numbers = _numbers([text], 1)
    return GivenUp(*numbers) if numbers else None


def _renewed(text: str) -> Renewed | None:
    numbers = _numbers([text], 1)
    return Renewed(*numbers) if numbers else None


def _pop_moved(text: str) -> PopMoved | None:
    group, _, rest = text.partition(":")
    topic, _, rest = rest.partition(":")
    numbers = _numbers(rest.split(":"), 3)
    return PopMoved(group, topic, *numbers) if numbers and group and topic else None


_READERS: Final[dict[str, Callable[[str], Effect | None]]] = {
    "d": _delay_delivered,
    "b": partial(_returned, is_dead=False),
    "x": partial(_returned, is_dead=True),
    **{end.value: partial(_timer_done, end=end) for end in TimerEnd},
    "h": _prepared,
    "e": _ended,
    "g": _given_up,
    "n": _renewed,
    "p": _pop_moved,
}

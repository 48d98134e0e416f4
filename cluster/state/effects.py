"""The effects of message records on broker state, and their text in the records (`commitlog.record.effects`).

| effect | text | changes |
| --- | --- | --- |
| `DelayDelivered` | `d:<level>:<unit>` | the unit of the delay level was copied to its topic; the next one is due |
| `Returned` | `b:<key>`, of a dead letter `x:<key>` | a consumer returned the message with this key: this is the copy |

A message cannot be refused when it is applied. So the leader decides what it writes from the applied state and from
what it has proposed since; an effect that does not fit the state changes nothing, and is counted as a defect.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cluster.state.compact_bytes import Unreadable
from store.model.topics import DELAY_LEVELS_MS

_DELAY: Final = "d"
_RETURNED: Final = "b"
_DEAD: Final = "x"
_KEY_TEXT: Final = re.compile(r"[0-9a-f]{32}")
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


class Returned(NamedTuple):
    """The record is the copy of a message that a consumer returned.

    Attributes:
        key: of the group and the returned message (`cluster.retries.copies`), 16 bytes.
        is_dead: whether the copy is a dead letter.
    """

    key: bytes
    is_dead: bool


Effect = DelayDelivered | Returned


def encode_effect(effect: Effect) -> str:
    """Return the text of an effect."""
    if isinstance(effect, Returned):
        return f"{_DEAD if effect.is_dead else _RETURNED}:{effect.key.hex()}"
    return f"{_DELAY}:{effect.level}:{effect.unit}"


def decode_effect(text: str) -> Effect:
    """Return the effect of a text.

    Raises:
        cluster.state.compact_bytes.Unreadable: it is none, or one of a newer version. The node must stop.
    """
    kind, _, numbers = text.partition(":")
    if kind in (_RETURNED, _DEAD) and _KEY_TEXT.fullmatch(numbers):
        return Returned(bytes.fromhex(numbers), kind == _DEAD)
    level, _, unit = numbers.partition(":")
    if kind == _DELAY and len(text) <= _TEXT_LENGTH_MAX and level.isdecimal() and unit.isdecimal():
        effect = DelayDelivered(int(level), int(unit))
        # The text of an effect is unique: no other digits, and no zeros before a number.
        if 1 <= effect.level <= len(DELAY_LEVELS_MS) and effect.unit < _UNIT_END and encode_effect(effect) == text:
            return effect
    raise Unreadable("the effect of a record", 0, "one of the kinds d, b and x", repr(text[:80]))

"""The delivery options in what a client puts: delay levels and times.

| property | delivery |
| --- | --- |
| `TRAN_MSG`, true | after the commit, from which a delay level counts (`cluster.delivery.transactions.half_messages`) |
| `DELAY`, a level | after the delay of the level; it has precedence over a time |
| `TIMER_DELAY_SEC`, then `TIMER_DELAY_MS`, then `TIMER_DELIVER_MS` | after a delay, or at a time; past: at once |
| another `TIMER_…` | refused: stored like any other message it would be delivered at once |

A message whose delayed delivery has already happened, and that is put again (restored, replayed), has the property
REAL_TOPIC: it is stored like any other.

Source: RocketMQ `MessageConst`, `HookUtils.handleScheduleMessage`, `transformTimerMessage`, `SendMessageProcessor`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.delivery.diversion import AT_ONCE, DeliverAt, Delivery
from cluster.delivery.transactions.half_messages import is_half
from cluster.protocol.errors import Reason, RequestFailed
from commitlog.record.properties import decode_properties
from commitlog.record.tags_code import delay_level
from commitlog.record.timer_properties import DELAY_MS, DELAY_SEC, DELIVER_MS
from store.errors import IllegalMessage
from store.model.message import DELAY
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from store.model.topics import REAL_TOPIC, TIMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

_MS_PER_S: Final = 1_000
# In order of precedence; the unit of a delay in milliseconds, 0 of a time.
_TIMES: Final = {DELAY_SEC: _MS_PER_S, DELAY_MS: 1, DELIVER_MS: 0}
# The part of the syntax of Java's `Long.parseLong` that clients use.
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_MARKS: Final = tuple(name.encode() for name in (DELAY, TIMER_PREFIX))


class TimeLimits(NamedTuple):
    """What bounds the times that clients may ask for.

    Attributes:
        now_ms: the time, milliseconds since 1970.
        max_delay_s: longest delay in seconds.
    """

    now_ms: int
    max_delay_s: int


def requested_deliveries(
    properties: Sequence[bytes], sys_flags: Sequence[int], limits: TimeLimits
) -> list[Delivery] | None:
    """Return when to deliver each message; None: all at once.

    Args:
        properties: encoded properties of each message.
        sys_flags: flags of each message, or one value for all.
        limits: of times.

    Raises:
        RequestFailed: UNSUPPORTED: a message has another delivery option.
        IllegalMessage: a time is no number, or too far away.
    """
    for number, sys_flag in enumerate(sys_flags):
        # Rolled back messages, too: neither kind is in a queue, so no consumer would ever get them.
        if sys_flag & TRANSACTION_PREPARED_TYPE:
            raise _unsupported(number, "sys_flag", f"{sys_flag:#x}")
    # One check for all messages together: such properties are rare.
    joined = b"\x02".join(properties)
    if not any(mark in joined for mark in _MARKS):
        return None
    found = [_requested(number, raw, limits) for number, raw in enumerate(properties)]
    return found if any(found) else None


def _requested(number: int, raw: bytes, limits: TimeLimits) -> Delivery:
    if not any(mark in raw for mark in _MARKS):
        return AT_ONCE
    properties = decode_properties(raw)
    if REAL_TOPIC in properties or is_half(properties):
        return AT_ONCE
    if level := delay_level(properties.get(DELAY)):
        return level
    for name, value in properties.items():
        if name.startswith(TIMER_PREFIX) and name not in _TIMES:
            raise _unsupported(number, name, value)
    for name, unit_ms in _TIMES.items():
        if name in properties:
            return _timed(name, properties[name], unit_ms, limits)
    return AT_ONCE


def _timed(name: str, text: str, unit_ms: int, limits: TimeLimits) -> Delivery:
    """Return the delivery of a property; the unit of an absolute time is 0."""
    if not _NUMBER.fullmatch(text):
        raise IllegalMessage(name, "a whole number", repr(text[:80]))
    deliver_ms = limits.now_ms + int(text) * unit_ms if unit_ms else int(text)
    if deliver_ms - limits.now_ms > limits.max_delay_s * _MS_PER_S:
        expected = f"at most {limits.max_delay_s} seconds from now (the setting timer_max_delay_sec)"
        raise IllegalMessage(name, expected, f"{text[:80]}")
    return DeliverAt(deliver_ms) if deliver_ms > limits.now_ms else AT_ONCE


def _unsupported(number: int, name: str, value: str) -> RequestFailed:
    text = (
        f"message {number} has {name} {value[:80]!r}, which is not supported: it would be delivered at once. Nothing "
        "was stored; send it without"
    )
    return RequestFailed(Reason.UNSUPPORTED, text)

"""The delivery options in what a client puts: delay levels; timed messages are refused.

Stored like any other message those would be delivered at once, which is too early. The level of a half message counts
from its commit (`cluster.delivery.transactions.half_messages`).
A message whose delayed delivery has already happened, and that is put again (restored, replayed), has the property
REAL_TOPIC: it is stored like any other.

Source: RocketMQ `MessageConst`, `HookUtils.handleScheduleMessage`, `SendMessageProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.delivery.transactions.half_messages import is_half
from cluster.protocol.errors import Reason, RequestFailed
from commitlog.record.properties import decode_properties
from commitlog.record.tags_code import delay_level
from store.model.message import DELAY
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from store.model.topics import REAL_TOPIC, TIMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARKS: Final = tuple(name.encode() for name in (DELAY, TIMER_PREFIX))


def requested_levels(properties: Sequence[bytes], sys_flags: Sequence[int]) -> list[int] | None:
    """Return the delay level of each message, 0 without one; None: no message has one.

    Args:
        properties: encoded properties of each message.
        sys_flags: flags of each message, or one value for all.

    Raises:
        RequestFailed: UNSUPPORTED: a message has another delivery option.
    """
    for number, sys_flag in enumerate(sys_flags):
        # Rolled back messages, too: neither kind is in a queue, so no consumer would ever get them.
        if sys_flag & TRANSACTION_PREPARED_TYPE:
            raise _unsupported(number, "sys_flag", f"{sys_flag:#x}")
    # One check for all messages together: such properties are rare.
    joined = b"\x02".join(properties)
    if not any(mark in joined for mark in _MARKS):
        return None
    levels = [_requested_level(number, raw) for number, raw in enumerate(properties)]
    return levels if any(levels) else None


def _requested_level(number: int, raw: bytes) -> int:
    if not any(mark in raw for mark in _MARKS):
        return 0
    properties = decode_properties(raw)
    if REAL_TOPIC in properties:
        return 0
    level = delay_level(properties.get(DELAY))
    for name, value in properties.items():
        # A level has precedence over a time.
        if name.startswith(TIMER_PREFIX) and not level:
            raise _unsupported(number, name, value)
    return 0 if is_half(properties) else level


def _unsupported(number: int, name: str, value: str) -> RequestFailed:
    text = (
        f"message {number} has {name} {value[:80]!r}: timed messages are not supported, and it would be delivered "
        "at once. Nothing was stored; send it without, or with a delay level; a transaction with TRAN_MSG"
    )
    return RequestFailed(Reason.UNSUPPORTED, text)

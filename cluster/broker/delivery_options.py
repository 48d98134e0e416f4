"""Refuses messages with unsupported delivery options: delayed, timed or transactional.

Stored like any other message they would be delivered at once: a delayed one too early, a prepared one before its
commit. So they are refused. A message whose delayed delivery has already happened, and that is put again (restored,
replayed), has the property REAL_TOPIC and is accepted.

Source: RocketMQ `MessageConst`, `HookUtils.handleScheduleMessage`, `SendMessageProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from commitlog.record.properties import decode_properties
from store.model.message import DELAY
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

_REAL_TOPIC: Final = "REAL_TOPIC"
_TRANSACTION: Final = "TRAN_MSG"
_TIMER_PREFIX: Final = "TIMER_"
_MARKS: Final = tuple(name.encode() for name in (DELAY, _TRANSACTION, _TIMER_PREFIX))


def check_delivery(properties: Sequence[bytes], sys_flags: Sequence[int]) -> None:
    """Raise unless all messages can be delivered immediately.

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
        return
    for number, raw in enumerate(properties):
        requested = _requested_delivery(raw)
        if requested is not None:
            raise _unsupported(number, *requested)


def _requested_delivery(raw: bytes) -> tuple[str, str] | None:
    """Return the property that requests a delayed, timed or transactional delivery, and its value; None: none."""
    if not any(mark in raw for mark in _MARKS):
        return None
    properties = decode_properties(raw)
    if _REAL_TOPIC in properties:
        return None
    for name, value in properties.items():
        is_delay = name == DELAY and value.isdecimal() and int(value[:20]) > 0
        is_prepared = name == _TRANSACTION and value.lower() == "true"
        if is_delay or is_prepared or name.startswith(_TIMER_PREFIX):
            return name, value
    return None


def _unsupported(number: int, name: str, value: str) -> RequestFailed:
    text = (
        f"message {number} has {name} {value[:80]!r}: delayed, timed and transactional messages are not supported, and "
        "it would be delivered at once. Nothing was stored; send it without"
    )
    return RequestFailed(Reason.UNSUPPORTED, text)

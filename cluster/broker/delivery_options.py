"""Puts that ask for a delivery that this broker cannot give yet: later, at a time, or when a transaction commits.

Stored like any other message they would be delivered at once, which their sender must not get: a delayed one too early,
a prepared one before its commit. So they are refused. A message that a broker has delivered late already, and that is
put again (restored, replayed), has REAL_TOPIC beside the wish: it passes.

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
    """Raise unless all messages may be delivered at once.

    Args:
        properties: of each message, as they travel.
        sys_flags: of each, or one for all.

    Raises:
        RequestFailed: UNSUPPORTED: a message asks for something else.
    """
    for number, sys_flag in enumerate(sys_flags):
        # Also a rolled back one: neither is in a queue, so no consumer would ever get it.
        if sys_flag & TRANSACTION_PREPARED_TYPE:
            raise _unsupported(number, "sys_flag", f"{sys_flag:#x}")
    # One check of all of them: hardly any message has such a property.
    joined = b"\x02".join(properties)
    if not any(mark in joined for mark in _MARKS):
        return
    for number, raw in enumerate(properties):
        wish = _wish_of(raw)
        if wish is not None:
            raise _unsupported(number, *wish)


def _wish_of(raw: bytes) -> tuple[str, str] | None:
    """Return the property by which a message asks for another delivery, and its value; None: it asks for none."""
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

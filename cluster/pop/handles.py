"""Receipt handles: which take of which message a consumer acknowledges, in the form of RocketMQ's `POP_CK`.

Fields, separated by blanks: first offset of the lease, serial (its pop time), invisible ms, epoch modulo 999 (the
revive queue; 999 means an ordered pop), 0 (a normal topic), broker, queue, offset.

A handle is no secret: the rights of its user decide. Source: RocketMQ `ExtraInfoUtil`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cluster.protocol.request_bounds import HANDLE_LENGTH_MAX
from store.errors import IllegalRequest

_FIELDS_MIN: Final = 8
# RocketMQ's also have the physical offset, and the message id.
_FIELDS_MAX: Final = 10
_EPOCHS: Final = 999
_DIGITS_MAX: Final = 19


class Handle(NamedTuple):
    """A receipt handle.

    Attributes:
        lease_offset: first offset of the lease; only informative.
        serial: of the lease, in its queue.
        invisible_ms: for which the message was taken; only informative.
        epoch: reset count of the group's offset, modulo 999.
        broker: that gave the message.
        queue_id: queue of the message.
        offset: of the message in the queue.
    """

    lease_offset: int
    serial: int
    invisible_ms: int
    epoch: int
    broker: str
    queue_id: int
    offset: int

    def epoch_near(self, current: int) -> int:
        """Return the latest epoch, not after the current one, that the handle may mean."""
        return max(current - (current - self.epoch) % _EPOCHS, 0)


def encode_handle(handle: Handle) -> str:
    """Return the text of a handle; of its epoch only the part that the form has."""
    lease_offset, serial, invisible_ms, epoch, broker, queue_id, offset = handle
    return f"{lease_offset} {serial} {invisible_ms} {epoch % _EPOCHS} 0 {broker} {queue_id} {offset}"


def decode_handle(text: str) -> Handle:
    """Return the handle of a text.

    Raises:
        IllegalRequest: it is none.
    """
    fields = text.split(" ")
    numbers = [*fields[:4], *fields[6:8]]
    is_valid = (
        _FIELDS_MIN <= len(fields) <= _FIELDS_MAX
        and len(text) <= HANDLE_LENGTH_MAX
        and all(each.isascii() and each.isdecimal() and len(each) <= _DIGITS_MAX for each in numbers)
        and int(fields[3]) < _EPOCHS
        and max(map(int, numbers)) < 1 << 63
    )
    if not is_valid:
        raise IllegalRequest("handle", "the handle of a received message", repr(text[:100]))
    lease_offset, serial, invisible_ms, epoch, queue_id, offset = map(int, numbers)
    return Handle(lease_offset, serial, invisible_ms, epoch, fields[5], queue_id, offset)

"""Receipt handles: which take of which message a consumer acknowledges, in the form of RocketMQ's `POP_CK`.

Fields, separated by blanks: first offset of the lease, serial (its pop time), invisible ms, epoch modulo 999 (the
revive queue; 999 means an ordered pop), 0 (the topic) or 1 (its retry topic), broker, queue, offset.

A handle is no secret: the rights of its user decide. Source: RocketMQ `ExtraInfoUtil`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cluster.protocol.handle_bounds import HANDLE_LENGTH_MAX
from store.errors import IllegalRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

# RocketMQ's also have the physical offset, and the message id.
_FORM: Final = re.compile(
    r"(\d{1,19}) (\d{1,19}) (\d{1,10}) (\d{1,3}) ([01]) ([^ ]+) (\d{1,9}) (\d{1,19})(?: [^ ]+){0,2}", re.ASCII
)
_EPOCHS: Final = 999
_BLANKS_OF_HEAD: Final = 6
# Each decimal number of this length is less than the end of numbers.
_SHORT_LENGTH: Final = 18
_NUMBER_END: Final = 1 << 63


class Handle(NamedTuple):
    """A receipt handle.

    Attributes:
        lease_offset: first offset of the lease; only informative.
        serial: of the lease, in its queue.
        invisible_ms: for which the message was taken; only informative.
        epoch: reset count of the group's offset, modulo 999.
        is_retry: whether the message is in the retry topic of group and topic.
        broker: that gave the message.
        queue_id: queue of the message.
        offset: of the message in the queue.
    """

    lease_offset: int
    serial: int
    invisible_ms: int
    epoch: int
    is_retry: bool
    broker: str
    queue_id: int
    offset: int

    def epoch_near(self, current: int) -> int:
        """Return the latest epoch, not after the current one, that the handle may mean."""
        return max(current - (current - self.epoch) % _EPOCHS, 0)


def encode_handles(lease: Handle, offsets: Iterable[int]) -> list[str]:
    """Return the texts of the handles of one lease, which has any offset; of the epoch only what the form has."""
    head = encode_handle(lease).rpartition(" ")[0]
    return [f"{head} {offset}" for offset in offsets]


def encode_handle(handle: Handle) -> str:
    """Return the text of a handle; of its epoch only the part that the form has."""
    lease_offset, serial, invisible_ms, epoch, is_retry, broker, queue_id, offset = handle
    return f"{lease_offset} {serial} {invisible_ms} {epoch % _EPOCHS} {is_retry:d} {broker} {queue_id} {offset}"


def decode_handles(texts: Iterable[str]) -> list[Handle]:
    """Return the handles of texts; of those of one lease only the first is decoded wholly.

    Raises:
        IllegalRequest: one is none.
    """
    # What precedes the offset, without those that follow in RocketMQ's.
    known: dict[str, tuple[Any, ...]] = {}
    handles: list[Handle] = []
    for text in texts:
        head, _, last = text.rpartition(" ")
        fields = known.get(head)
        if fields is not None and last.isdecimal() and last.isascii() and len(last) <= _SHORT_LENGTH:
            handles.append(tuple.__new__(Handle, (*fields, int(last))))
            continue
        handle = decode_handle(text)
        handles.append(handle)
        if head.count(" ") == _BLANKS_OF_HEAD:
            known[head] = handle[:-1]
    return handles


def decode_handle(text: str) -> Handle:
    """Return the handle of a text.

    Raises:
        IllegalRequest: it is none.
    """
    found = _FORM.fullmatch(text)
    if found is not None and len(text) <= HANDLE_LENGTH_MAX:
        lease_offset, serial, invisible_ms, epoch, flag, broker, queue_id, offset = found.groups()
        handle = Handle(
            int(lease_offset),
            int(serial),
            int(invisible_ms),
            int(epoch),
            flag == "1",
            broker,
            int(queue_id),
            int(offset),
        )
        if handle.epoch < _EPOCHS and max(handle.lease_offset, handle.serial, handle.offset) < _NUMBER_END:
            return handle
    raise IllegalRequest("handle", "the handle of a received message", repr(text[:100]))

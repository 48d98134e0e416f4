"""Offset message ids: a store host and a physical offset, as hexadecimal digits.

| part | bytes | meaning |
| ---- | ----: | ------- |
| address | 4 or 16 | of the store host |
| port | 4 | of the store host |
| physical offset | 8 | of the record |

So an id has 32 digits, or 56 with an IPv6 host. Source: RocketMQ `MessageDecoder.createMessageId`, `decodeMessageId`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from store.errors import IllegalMessage
from store.model.message import Host

_TAIL: Final = struct.Struct(">iq")
ID_LENGTHS: Final = (32, 56)


class MessageId(NamedTuple):
    """The parts of an offset message id."""

    store_host: Host
    physical_offset: int


def encode_message_id(store_host: Host, physical_offset: int) -> str:
    """Return the id of the message of `store_host` at `physical_offset`, in capital letters."""
    return (store_host.address + _TAIL.pack(store_host.port, physical_offset)).hex().upper()


def decode_message_id(text: str) -> MessageId:
    """Return the message id in `text`; lower-case digits are accepted, too.

    Raises:
        IllegalMessage: it is not an offset message id.
    """
    expected = "an offset message id of 32 or 56 hexadecimal digits"
    if len(text) not in ID_LENGTHS or not text.isalnum():
        raise IllegalMessage("message id", expected, repr(text))
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise IllegalMessage("message id", expected, repr(text)) from error
    port, physical_offset = _TAIL.unpack(data[-_TAIL.size :])
    if physical_offset < 0:
        raise IllegalMessage("message id", "a physical offset from 0", f"{physical_offset} in {text!r}")
    return MessageId(Host(data[: -_TAIL.size], port), physical_offset)

"""The body of a client's batch: several messages of one topic, which the store takes apart again.

One message behind the other, each as (all integers big-endian and signed):

| size | type | field |
| ---: | ---- | ----- |
| 4 | i32 | size of all of it |
| 4 | i32 | magic: 0, ignored |
| 4 | i32 | checksum: 0, ignored |
| 4 | i32 | flag |
| 4 | i32 | body length |
| n | | body |
| 2 | i16 | properties length |
| p | | properties, see `commitlog.record.properties` |

Topic, queue, sys_flag, born timestamp and host, reconsume times and some more properties are the batch's own.

Source: RocketMQ `MessageDecoder.encodeMessages`, `MessageExtEncoder.encode(MessageExtBatch)`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from commitlog.record.properties import RawProperties, encode_properties
from commitlog.record.record import MAX_MESSAGE_SIZE
from store.errors import IllegalMessage
from store.model.message import DELAY, Message
from store.model.sys_flag import transaction_type
from store.model.topics import is_retry_topic

_HEAD: Final = struct.Struct(">iiiii")
_LENGTH: Final = struct.Struct(">h")
_FIXED_SIZE: Final = _HEAD.size + _LENGTH.size
_PROPERTY_END: Final = b"\x02"


def encode_batch(messages: Sequence[Message]) -> bytes:
    """Return the body of a batch of `messages`: of each its flag, body and properties.

    Raises:
        IllegalMessage: properties cannot be stored.
    """
    parts = list[bytes]()
    for message in messages:
        raw = encode_properties(message.properties)
        body = message.body
        parts += (
            _HEAD.pack(_FIXED_SIZE + len(body) + len(raw), 0, 0, message.flag, len(body)),
            body,
            _LENGTH.pack(len(raw)),
            raw,
        )
    return b"".join(parts)


def split_batch(batch: Message, *, max_message_size: int = MAX_MESSAGE_SIZE) -> list[Message]:
    """Return the messages that the body of `batch` holds; properties are kept as they are, byte for byte.

    Args:
        batch: its body is that of a batch, everything else holds for all messages; its properties go behind theirs.
        max_message_size: bytes of the batch's body at most.

    Raises:
        IllegalMessage: it is no batch, or one that cannot be: in a transaction, delayed, of a retry topic, too large.
    """
    _check_batch(batch, max_message_size)
    view = memoryview(batch.body)
    extra = encode_properties(batch.properties)
    messages = list[Message]()
    position = 0
    while position < len(view):
        flag, body, raw, position = _next(view, position)
        if extra:
            raw += extra if not raw or raw.endswith(_PROPERTY_END) else _PROPERTY_END + extra
        messages.append(
            batch._replace(body=body, properties=RawProperties(raw), flag=flag, prepared_transaction_offset=0)
        )
    if not messages:
        raise IllegalMessage("batch", "at least one message", "none")
    return messages


def _check_batch(batch: Message, max_message_size: int) -> None:
    if len(batch.body) > max_message_size:
        raise IllegalMessage("batch", f"at most {max_message_size} bytes", f"{len(batch.body)}")
    if transaction_type(batch.sys_flag):
        raise IllegalMessage("batch", "no transaction", f"sys flag {batch.sys_flag:#x}")
    if is_retry_topic(batch.topic):
        raise IllegalMessage("batch", "a topic that is none for retries or dead letters", repr(batch.topic))
    if batch.properties.get(DELAY, "0") != "0":
        raise IllegalMessage("batch", "no delay", f"delay level {batch.properties[DELAY]}")


def _next(view: memoryview, position: int) -> tuple[int, bytes, bytes, int]:
    """Return flag, body and properties of the message at `position`, and where the next one begins."""
    room = len(view) - position
    if room < _FIXED_SIZE:
        raise IllegalMessage("batch", f"a message of at least {_FIXED_SIZE} bytes at byte {position}", f"{room} bytes")
    size, _, _, flag, body_size = _HEAD.unpack_from(view, position)
    if not _FIXED_SIZE <= size <= room or not 0 <= body_size <= size - _FIXED_SIZE:
        expected = f"a message of {_FIXED_SIZE} to {room} bytes at byte {position}"
        raise IllegalMessage("batch", expected, f"size {size}, body length {body_size}")
    body_begin = position + _HEAD.size
    body_end, end = body_begin + body_size, position + size
    begin = body_end + _LENGTH.size
    (properties_size,) = _LENGTH.unpack_from(view, body_end)
    if properties_size != end - begin:
        raise IllegalMessage("batch", f"a properties length of {end - begin} at byte {body_end}", f"{properties_size}")
    return flag, view[body_begin:body_end].tobytes(), view[begin:end].tobytes(), end

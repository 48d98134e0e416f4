"""A half message as a producer gets it: with the topic and queue that it had in the send. Pure.

Source: RocketMQ `AbstractTransactionalMessageCheckListener.sendCheckMessage`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from commitlog.record.record import MAGIC_V1, MAGIC_V2, TOPIC_LENGTH_MAX_V1
from store.model.topics import REAL_QUEUE_ID

if TYPE_CHECKING:
    from commitlog.record.record import Record

_HEAD: Final = struct.Struct(">ii4si")
_LENGTH_V1: Final = struct.Struct(">b")
_LENGTH_V2: Final = struct.Struct(">h")
# Of the properties.
_LENGTH_SIZE: Final = 2


def restored(record: Record, topic: str) -> bytes:
    """Return the record of a half message with its real topic and queue.

    Args:
        record: of the half topic.
        topic: the real one.
    """
    raw, name = bytes(record.raw), topic.encode()
    tail_begin = len(raw) - _LENGTH_SIZE - record.properties_size
    length = _LENGTH_V1 if record.magic == MAGIC_V1 else _LENGTH_V2
    body_end = tail_begin - len(record.topic_view) - length.size
    magic, length = (MAGIC_V1, _LENGTH_V1) if len(name) <= TOPIC_LENGTH_MAX_V1 else (MAGIC_V2, _LENGTH_V2)
    rest = raw[_HEAD.size : body_end] + length.pack(len(name)) + name + raw[tail_begin:]
    queue = record.properties.get(REAL_QUEUE_ID, "0")
    queue_id = int(queue) if queue.isascii() and queue.isdecimal() else 0
    return _HEAD.pack(_HEAD.size + len(rest), magic, raw[8:12], queue_id) + rest

"""The body of a batch: messages back to back, each with its flag, body and properties.

| bytes | field |
| ----: | ----- |
| 4 | size of the message, this field included |
| 4, 4 | magic and checksum; both 0, not read |
| 4 | flag |
| 4, n | size of the body, body |
| 2, n | size of the properties, properties |

Source: RocketMQ `MessageDecoder.encodeMessage`, `decodeMessage`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from cluster.remoting.command import Rejected, RemotingCode

_HEAD: Final = struct.Struct(">i8xii")
_LENGTH: Final = struct.Struct(">h")
_SIZE_MIN: Final = _HEAD.size + _LENGTH.size
# Of one batch. 4 MiB may have 190,000 empty messages, which take 100 MiB and seconds.
MESSAGES_MAX: Final = 16_384


class BatchedMessage(NamedTuple):
    """One message of a batch.

    Attributes:
        flag: of the application.
        body: as the client has compressed it, or not.
        properties: encoded.
    """

    flag: int
    body: bytes
    properties: bytes


def decode_batch(body: bytes) -> list[BatchedMessage]:
    """Return the messages of a batch, 1 to `MESSAGES_MAX`.

    Raises:
        Rejected: MESSAGE_ILLEGAL: a size does not fit, there is no message, or there are too many.
    """
    messages: list[BatchedMessage] = []
    position = 0
    while position < len(body):
        if len(messages) >= MESSAGES_MAX:
            raise Rejected(RemotingCode.MESSAGE_ILLEGAL, f"batch: expected at most {MESSAGES_MAX} messages, found more")
        if len(body) - position < _SIZE_MIN:
            raise _damaged(position)
        size, flag, body_size = _HEAD.unpack_from(body, position)
        begin, end = position + _HEAD.size, position + size
        if end > len(body) or not 0 <= body_size <= size - _SIZE_MIN:
            raise _damaged(position)
        properties_begin = begin + body_size + _LENGTH.size
        (properties_size,) = _LENGTH.unpack_from(body, begin + body_size)
        if properties_size < 0 or properties_begin + properties_size != end:
            raise _damaged(position)
        messages.append(BatchedMessage(flag, body[begin : begin + body_size], body[properties_begin:end]))
        position = end
    if not messages:
        raise Rejected(RemotingCode.MESSAGE_ILLEGAL, "batch: expected at least one message, found none")
    return messages


def _damaged(position: int) -> Rejected:
    return Rejected(RemotingCode.MESSAGE_ILLEGAL, f"batch: the sizes of the message at byte {position} do not fit")

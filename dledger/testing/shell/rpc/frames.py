"""Frames of the simulated gRPC: calls with streams of messages in both directions over one simulated connection.

It carries the same as HTTP/2 for gRPC: a call and its deadline, messages, half-close, cancellation, the final status,
and credit (the number of messages that the other side may still send). The messages are the real ones, serialized by
the generated stubs.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

_HEAD = struct.Struct(
    ">"
    "I"  # size of the payload
    "B"  # kind
    "I"  # call id
    "Q"  # number: timeout in microseconds, status code, credit
)


class FrameKind(IntEnum):
    """The kind of a frame."""

    SETTINGS = 0
    CALL = 1
    MESSAGE = 2
    HALF_CLOSE = 3
    CANCEL = 4
    END = 5
    CREDIT = 6


class Frame(NamedTuple):
    """One frame.

    Attributes:
        kind: its meaning.
        call_id: of its call; 0 for the connection.
        payload: a message, the name of a method, or the details of a status.
        number: the timeout of a call in microseconds (0: none), a status code, or messages of credit.
    """

    kind: FrameKind
    call_id: int
    payload: bytes = b""
    number: int = 0

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        return _HEAD.pack(len(self.payload), self.kind, self.call_id, self.number) + self.payload


class FrameReader:
    """Splits received data into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def received(self, data: bytes) -> list[Frame]:
        """Add data; return the frames that are complete."""
        data = self._rest + data
        frames, begin = [], 0
        while len(data) - begin >= _HEAD.size:
            size, kind, call_id, number = _HEAD.unpack_from(data, begin)
            end = begin + _HEAD.size + size
            if end > len(data):
                break
            frames.append(Frame(FrameKind(kind), call_id, data[begin + _HEAD.size : end], number))
            begin = end
        self._rest = data[begin:]
        return frames

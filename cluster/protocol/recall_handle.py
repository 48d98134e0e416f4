"""Recall handles: what a client needs to recall a message that waits for its time.

The base64url form of `v1 <topic> <broker> <deliver ms> <UNIQ_KEY>`, as RocketMQ has it. It is no secret, and proves
nothing: the broker looks for the message.

Source: RocketMQ `RecallMessageHandle`.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from store.errors import IllegalRequest

_VERSION: Final = "v1"
_PARTS: Final = 5
_TIME_DIGITS_MAX: Final = 18


class RecallHandle(NamedTuple):
    """The content of a handle.

    Attributes:
        topic: of the message.
        broker: name of the broker where it waits.
        deliver_ms: when it is due, milliseconds since 1970.
        unique_key: its UNIQ_KEY.
    """

    topic: str
    broker: str
    deliver_ms: int
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the text of a handle."""
    text = " ".join((_VERSION, handle.topic, handle.broker, str(handle.deliver_ms), handle.unique_key))
    return urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Return the content of a handle.

    Raises:
        IllegalRequest: it is none.
    """
    try:
        content = urlsafe_b64decode(text).decode()
    except (binascii.Error, ValueError):
        content = ""
    version, *parts = content.split(" ", _PARTS - 1)
    if version != _VERSION or len(parts) != _PARTS - 1 or not all(parts):
        raise IllegalRequest("recall handle", "one that the answer to a put had", repr(text[:80]))
    topic, broker, time, key = parts
    if not (time.isascii() and time.isdecimal() and len(time) <= _TIME_DIGITS_MAX):
        raise IllegalRequest("recall handle", "a time in milliseconds", repr(time[:80]))
    return RecallHandle(topic, broker, int(time), key)

"""The records of one client that are not sent yet: a bounded queue, and the messages that it is sent as. Pure.

Records above the bound are counted and dropped: a trace never delays what it traces.

Source: RocketMQ `AsyncTraceDispatcher`; its keys of a batch may exceed what the properties of a message hold (SG45).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.client.tracing.trace_records import encode_trace, plain_words

if TYPE_CHECKING:
    from cluster.client.tracing.trace_records import WrittenTrace

QUEUE_MAX: Final = 10_000
# Bytes of the body of a message of traces, and of its search keys, which share 32,767 bytes with other properties.
BODY_SIZE_MAX: Final = 128_000
KEYS_SIZE_MAX: Final = 30_000


class TraceBatch(NamedTuple):
    """One message of traces: its body, its search keys, and the number of records."""

    body: bytes
    keys: str
    records_count: int


class TraceQueue:
    """The records that wait.

    Args:
        count_max: their maximum number.

    Attributes:
        dropped_count: records that were dropped.
    """

    def __init__(self, count_max: int = QUEUE_MAX) -> None:
        self._count_max = count_max
        self._records: deque[WrittenTrace] = deque()
        self.dropped_count = 0

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def add(self, record: WrittenTrace) -> bool:
        """Add a record; return whether there was space for it."""
        if len(self._records) >= self._count_max:
            self.dropped_count += 1
            return False
        self._records.append(record)
        return True

    def take(self) -> TraceBatch:
        """Remove the oldest records, at least one, which form one message.

        Every record's message id, and its keys, become keys of the message. Keys that alone exceed the bound are left
        out; a record that alone exceeds the size of a body is cut from its end, which makes it unreadable.
        """
        texts: list[bytes] = []
        keys: dict[str, None] = {}
        body_size, keys_size = 0, 0
        while self._records:
            record = self._records[0]
            text = encode_trace(record).encode(errors="replace")[:BODY_SIZE_MAX]
            words = [*plain_words(record.message_id), *plain_words(record.keys)]
            if sum(len(word.encode()) + 1 for word in words) > KEYS_SIZE_MAX:
                words = words[:1]
            new = {word: len(word.encode()) + 1 for word in words if word not in keys}
            if texts and (body_size + len(text) > BODY_SIZE_MAX or keys_size + sum(new.values()) > KEYS_SIZE_MAX):
                break
            self._records.popleft()
            texts.append(text)
            body_size += len(text)
            keys_size += sum(new.values())
            keys |= dict.fromkeys(new)
        return TraceBatch(b"".join(texts), " ".join(keys), len(texts))

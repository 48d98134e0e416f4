"""The messages of one put as columns: one topic and one client, and for each other field a list or one value for all.

A put of thousands of messages then has a few lists, and no object for each message. `MessageColumns` is a sequence of
messages, too: code that is not in the path of each put uses it as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import repeat
from operator import or_
from typing import TYPE_CHECKING, TypeAlias, overload

from store.model.message import Host, Message
from store.model.sys_flag import INNER_BATCH, TRANSACTION_MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# One number for all messages, or one for each.
Numbers: TypeAlias = int | Sequence[int]


class MessageColumns(Sequence[Message]):
    """The messages of one put. All lists have the same length, and are not changed.

    Attributes:
        topic: of all messages.
        bodies: of each message.
        properties: of each message, encoded.
        decode: returns encoded properties as names and values.
        queue_ids, flags, sys_flags, born_timestamps, reconsume_times: see `Message`.
        born_host: of all messages.
        unique_keys: of each message: `store.model.unique_keys.unique_key`; empty without a UNIQ_KEY.
        key_hashes: of each message: `store.model.java_hash.key_hash` of its UNIQ_KEY; 0 without one.
        is_ordinary: none is redelivered, part of a transaction, or an inner batch.
    """

    __slots__ = (
        *("born_host", "born_timestamps", "bodies", "decode", "flags", "is_ordinary", "key_hashes", "properties"),
        *("queue_ids", "reconsume_times", "sys_flags", "topic", "unique_keys"),
    )

    def __init__(
        self,
        topic: str,
        bodies: Sequence[bytes],
        properties: Sequence[bytes],
        decode: Callable[[bytes], Mapping[str, str]],
        *,
        queue_ids: Numbers,
        flags: Numbers,
        sys_flags: Numbers,
        born_timestamps: Numbers,
        reconsume_times: Numbers,
        born_host: Host,
        unique_keys: Sequence[bytes],
        key_hashes: Sequence[int],
    ) -> None:
        self.topic = topic
        self.bodies = bodies
        self.properties = properties
        self.decode = decode
        self.queue_ids = queue_ids
        self.flags = flags
        self.sys_flags = sys_flags
        self.born_timestamps = born_timestamps
        self.reconsume_times = reconsume_times
        self.born_host = born_host
        self.unique_keys = unique_keys
        self.key_hashes = key_hashes
        times = reconsume_times if isinstance(reconsume_times, int) else any(reconsume_times)
        bits = sys_flags if isinstance(sys_flags, int) else reduce(or_, sys_flags, 0)
        self.is_ordinary = not times and not bits & (TRANSACTION_MASK | INNER_BATCH)

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        # The reference in Python encodes message by message: a fifth of the time that access by row takes.
        count = len(self)
        return map(
            Message,
            repeat(self.topic, count),
            self.bodies,
            _each(self.queue_ids, count),
            map(self.decode, self.properties),
            _each(self.flags, count),
            _each(self.sys_flags, count),
            _each(self.born_timestamps, count),
            repeat(self.born_host, count),
            _each(self.reconsume_times, count),
        )

    @overload
    def __getitem__(self, row: int) -> Message: ...

    @overload
    def __getitem__(self, row: slice) -> list[Message]: ...

    def __getitem__(self, row: int | slice) -> Message | list[Message]:
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        return Message(
            self.topic,
            self.bodies[row],
            number_at(self.queue_ids, row),
            self.decode(self.properties[row]),
            number_at(self.flags, row),
            number_at(self.sys_flags, row),
            number_at(self.born_timestamps, row),
            self.born_host,
            number_at(self.reconsume_times, row),
        )


def _each(numbers: Numbers, count: int) -> Iterable[int]:
    return repeat(numbers, count) if isinstance(numbers, int) else numbers


def number_at(numbers: Numbers, row: int) -> int:
    """Return the number of one message."""
    return numbers if isinstance(numbers, int) else numbers[row]


def each_queue_id(messages: Sequence[Message]) -> Sequence[int]:
    """Return the queue id of each message."""
    if not isinstance(messages, MessageColumns):
        return [message.queue_id for message in messages]
    queue_ids = messages.queue_ids
    return [queue_ids] * len(messages) if isinstance(queue_ids, int) else queue_ids

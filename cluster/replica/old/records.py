"""Reads the records of a queue of an old store, and identifies messages across their copies.

A copy in another topic has all properties of the waiting message, its born time and host, and its body; so does the
copy that RocketMQ puts again. The key of a message is a hash of these, so that millions of keys need little memory.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, cast

from commitlog.record.properties import decode_properties
from store.errors import CorruptData
from store.model.message import PRODUCER_GROUP, UNIQUE_KEY, QueueKey
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import REAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from commitlog.record.record import Record
    from store.access.message_store import MessageStore

_UNITS_PER_READ: Final = 256
_KEY_SIZE: Final = 8
_SEPARATOR: Final = "\x01"


def records_of(
    store: MessageStore, topic: str, queue_id: int, begin: int, log_end: int
) -> Iterator[tuple[int, Record | None]]:
    """Yield the units of a queue from `begin` on, and their records; None: it is deleted, damaged, or another one.

    Records at `log_end` of the log or after it, and those that carry an effect, are not of the old store.
    """
    queue = store.derived.queues.get(QueueKey(topic, queue_id))
    if queue is None:
        return
    unit, name = max(begin, queue.min_offset), topic.encode()
    while units := queue.unit_tuples(unit, _UNITS_PER_READ):
        for physical_offset, size, _ in units:
            if physical_offset >= log_end:
                return
            record = _read(store, physical_offset, size)
            if record is not None and not record.is_at_queue_offset(name, queue_id, unit):
                record = None
            if record is None or record.sys_flag & CARRIES_EFFECT != CARRIES_EFFECT:
                yield unit, record
            unit += 1


def _read(store: MessageStore, physical_offset: int, size: int) -> Record | None:
    try:
        return cast("Record | None", store.log.read(physical_offset, size))
    except CorruptData:
        return None


def message_key(record: Record, properties: Mapping[str, str]) -> int | None:
    """Return a hash of the properties and fields that a waiting message and its copies have in common.

    None: it has no id, so that another message may be equal to it. The attempts of a message that was returned
    differ in the number of redeliveries.
    """
    key = properties.get(UNIQUE_KEY, "")
    if not key:
        return None
    facts = (record.reconsume_times, record.born_timestamp, *record.born_host, record.body_crc)
    return _hash(_SEPARATOR.join((properties.get(REAL_TOPIC, ""), key, *map(str, facts))))


def transaction_key(properties: Mapping[str, str]) -> int | None:
    """Return a hash that is the same for a half message, its copies and its committed message; None: it has no id."""
    key = properties.get(UNIQUE_KEY, "")
    if not key:
        return None
    return _hash(_SEPARATOR.join(("half", properties.get(PRODUCER_GROUP, ""), properties.get(REAL_TOPIC, ""), key)))


def properties_of(record: Record) -> dict[str, str]:
    """Return the properties of a record."""
    return decode_properties(record.properties_raw)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_SIZE).digest())

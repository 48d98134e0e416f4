"""Finds, in the log of an old store, the copies of messages that waited: they show what was delivered or committed.

A copy has the property REAL_TOPIC, and is in the topic that it names; a committed message has the sysFlag of a
commit, too. Others that have this property wait themselves. A search for the property's name in the bytes of the log
costs little where there is none, and only records that have it are decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cluster.replica.old.records import message_key, properties_of, transaction_key
from commitlog.record.record import BadRecord, decode
from store.model.sys_flag import TRANSACTION_COMMIT_TYPE, transaction_type
from store.model.topics import HALF_TOPIC, REAL_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.model.commit_log import CommitLog
    from store.steps import Steps

_SCAN_SIZE_BYTES: Final = 1 << 20
_NAME: Final = f"{REAL_TOPIC}\x01".encode()
_WAITING: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC})


@dataclass(slots=True)
class Copies:
    """The copies that were found.

    Attributes:
        wanted: keys of messages and transactions; others are not noted.
        delivered: copies of each message.
        committed: transactions.
    """

    wanted: set[int] = field(default_factory=set)
    delivered: Counter[int] = field(default_factory=Counter)
    committed: set[int] = field(default_factory=set)


def find_copies(log: CommitLog, begin: int, end: int, found: Copies) -> Steps[None]:
    """Note the copies among the records of `[begin, end)`, in steps of some milliseconds.

    Args:
        log: of the old store.
        begin: begin of a record, or before the log.
        end: of the old store in the log.
        found: to which they are added.
    """
    offset = max(begin, log.begin_offset)
    while found.wanted and offset < end and (batch := log.scan(offset, _SCAN_SIZE_BYTES)) is not None:
        raw = log.raw(batch.begin_offset, batch.next_offset, batch.next_offset - batch.begin_offset)
        if raw is not None and len(batch):
            data, begins = bytes(raw.data), (batch.physical_offsets - batch.begin_offset).tolist()
            for at in _records_with_name(data, begins):
                _note(data, at, found)
        offset = batch.next_offset
        yield


def _records_with_name(data: bytes, begins: list[int]) -> Iterator[int]:
    """Yield the position of each record that contains the name of the property."""
    position = data.find(_NAME)
    while position >= 0:
        row = bisect_right(begins, position) - 1
        if row >= 0:
            yield begins[row]
        if row + 1 >= len(begins):
            return
        position = data.find(_NAME, begins[row + 1])


def _note(data: bytes, position: int, found: Copies) -> None:
    try:
        record = decode(memoryview(data), position)
    except BadRecord:
        return
    properties = properties_of(record)
    if REAL_TOPIC not in properties:
        return
    if transaction_type(record.sys_flag) == TRANSACTION_COMMIT_TYPE:
        transaction = transaction_key(properties)
        if transaction is not None and transaction in found.wanted:
            found.committed.add(transaction)
    if record.topic not in _WAITING and record.topic == properties[REAL_TOPIC]:
        key = message_key(record, properties)
        if key is not None and key in found.wanted:
            found.delivered[key] += 1

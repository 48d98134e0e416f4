r"""The copies of records that wait in a queue of the broker: the parts of each, for many at once.

A copy has all of the record but its place: its topic and queue are those that the properties REAL_TOPIC and REAL_QID
name, and after its other properties is an effect (`commitlog.record.effects`), which names the unit where it waited.

The module in C reads the records up to the first that is rare: a client with IPv6, or an effect of an earlier record
that is not the last property. Python reads it and those after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from commitlog.record.effects import without_effect
from dledger import native
from store.model.sys_flag import CARRIES_EFFECT
from store.model.topics import REAL_QUEUE_ID, REAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from commitlog.record.record import Record

# Of a copy: real topic, body, real queue, properties, flag, system flag with the mark of an effect, born timestamp,
# born host, number of redeliveries, offset of the prepared transaction. Topic and queue are as in the properties, empty
# without one; topic, queue and host are bytes.
CopiedRecord = tuple[bytes, bytes, bytes, bytes, int, int, int, bytes, int, int]

_END: Final = b"\x02"
_REAL_TOPIC: Final = REAL_TOPIC.encode()
_REAL_QUEUE_ID: Final = REAL_QUEUE_ID.encode()


class WaitingQueue(NamedTuple):
    r"""The queue where records wait, and what is added to their properties.

    Attributes:
        topic: the name, encoded.
        queue_id: of the topic.
        before_unit: names and values up to the queue offset, encoded; after it is only 0x02.
        before_time: names and values before these, up to the store timestamp; empty: without the timestamp.
    """

    topic: bytes
    queue_id: int
    before_unit: bytes
    before_time: bytes = b""


def copied(records: Sequence[Record], units: Sequence[int], queue: WaitingQueue) -> list[CopiedRecord]:
    """Return the parts of copies of records, up to the first record that is not at its unit.

    Args:
        records: of one buffer.
        units: the expected queue offset of each.
        queue: where they are expected.
    """
    found: list[CopiedRecord] = []
    if native.kernels is not None and records:
        view, rows = records[0].view, [record.row for record in records]
        found = native.kernels.copy_records(
            *(view, rows, units, queue.topic, queue.queue_id, queue.before_time, queue.before_unit)
        ) or []  # fmt: skip
    if len(found) < len(records):
        found += copied_in_python(records[len(found) :], units[len(found) :], queue)
    return found


def copied_in_python(records: Sequence[Record], units: Sequence[int], queue: WaitingQueue) -> Iterator[CopiedRecord]:
    """Yield the same as `copied`; the reference of the native module."""
    for record, unit in zip(records, units, strict=True):
        if not record.is_at_queue_offset(queue.topic, queue.queue_id, unit):
            return
        raw, fields = record.properties_raw, record.fields()
        kept, real = without_effect(raw), dict.fromkeys((_REAL_TOPIC, _REAL_QUEUE_ID), b"")
        for name, _, value in (part.partition(b"\x01") for part in raw.split(_END)):
            if value and name in real:
                real[name] = value
        end = _END if kept and not kept.endswith(_END) else b""
        time = b"%s%d" % (queue.before_time, record.store_timestamp) if queue.before_time else b""
        yield (
            real[_REAL_TOPIC],
            record.body,
            real[_REAL_QUEUE_ID],
            b"%s%s%s%s%d\x02" % (kept, end, time, queue.before_unit, unit),
            record.flag,
            record.sys_flag | CARRIES_EFFECT,
            record.born_timestamp,
            fields[9],
            record.reconsume_times,
            record.prepared_transaction_offset,
        )

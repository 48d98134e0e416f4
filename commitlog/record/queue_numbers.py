"""Numbers the queues of many records: all topics are compared at once with NumPy.

A topic is compared in pieces of eight bytes. Rows are grouped by a hash of their pieces and their queue id; then each
is compared with the first row of its group, piece by piece. The groups are found in a table by some bits of the hash.
If two queues collide in it, as with more than a few hundred queues, rows are sorted by the whole hash. If that
collides, too, which is extremely rare, rows are processed one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from commitlog.record.rows import Bytes, RecordRows, gather
from store.model.message import QueueKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from store.model.dispatch_batch import Int32s, Int64s

_PIECE: Final = 8
_TABLE_BITS: Final = 16
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
# Of the first n bytes of eight, little-endian.
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_PIECE + 1)], np.uint64)


def queue_numbers(view: memoryview, rows: RecordRows) -> tuple[list[QueueKey], Int32s]:
    """Return the distinct queues in order of first occurrence, and the number of each row's queue."""
    if not len(rows):
        return [], np.empty(0, np.int32)
    groups = _groups(np.frombuffer(view, np.uint8), rows)
    return _one_by_one(view, rows) if groups is None else _numbered(view, rows, *groups)


def _groups(data: Bytes, rows: RecordRows) -> tuple[Int64s, Int64s] | None:
    """Return for each row the first row of its queue, and the list of first rows; None: the hash collides."""
    sizes = rows.topic_ends - rows.topic_begins
    if rows.topic_begins[-1] + max(int(sizes.max()), 1) + _PIECE > len(data):
        # The last pieces would exceed the buffer.
        data = np.concatenate((data, np.zeros(_PIECE, np.uint8)))
    queue_ids = rows.fields["queue_id"].astype(np.int64).view(np.uint64)
    marks = (queue_ids << np.uint64(32) ^ sizes.view(np.uint64)) * _ODD
    pieces: list[NDArray[np.uint64]] = []
    for done in range(0, int(sizes.max()), _PIECE):
        left = np.clip(sizes - done, 0, _PIECE)
        piece = gather(data, rows.topic_begins + np.where(left > 0, done, 0), "<u8") & _MASKS[left]
        pieces.append(piece)
        marks = (marks ^ piece) * _ODD
        marks ^= marks >> np.uint64(29)
    columns = (queue_ids, sizes, *pieces)
    for firsts_of in (_firsts_by_table, _firsts_by_sorting):
        firsts = firsts_of(marks)
        if all((column == column[firsts]).all() for column in columns):
            return firsts, np.flatnonzero(firsts == np.arange(len(rows)))
    return None


def _firsts_by_table(marks: NDArray[np.uint64]) -> Int64s:
    """Return for each row the first one with the same slot in a table."""
    slots = ((marks * _ODD) >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)
    table = np.zeros(1 << _TABLE_BITS, np.int64)
    # Rows are written in reverse order, so that the first row of a slot is written last.
    table[slots[::-1]] = np.arange(len(marks) - 1, -1, -1)
    firsts: Int64s = table[slots]
    return firsts


def _firsts_by_sorting(marks: NDArray[np.uint64]) -> Int64s:
    """Return for each row the first one with the same mark."""
    _, heads, groups = np.unique(marks, return_index=True, return_inverse=True)
    firsts: Int64s = heads[groups]
    return firsts


def _numbered(view: memoryview, rows: RecordRows, firsts: Int64s, heads: Int64s) -> tuple[list[QueueKey], Int32s]:
    numbers = np.empty(len(rows), np.int32)
    numbers[heads] = np.arange(len(heads), dtype=np.int32)
    topics = [view[int(rows.topic_begins[head]) : int(rows.topic_ends[head])].tobytes() for head in heads]
    queue_ids = rows.fields["queue_id"][heads].tolist()
    queues = [QueueKey(topic.decode("utf-8", "replace"), queue) for topic, queue in zip(topics, queue_ids, strict=True)]
    return queues, numbers[firsts]


def _one_by_one(view: memoryview, rows: RecordRows) -> tuple[list[QueueKey], Int32s]:
    numbers: dict[tuple[bytes, int], int] = {}
    number_of = numbers.setdefault
    places: Sequence[tuple[int, int, int]] = list(
        zip(rows.topic_begins.tolist(), rows.topic_ends.tolist(), rows.fields["queue_id"].tolist(), strict=True)
    )
    found = [number_of((view[begin:end].tobytes(), queue_id), len(numbers)) for begin, end, queue_id in places]
    queues = [QueueKey(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in numbers]
    return queues, np.array(found, np.int32)

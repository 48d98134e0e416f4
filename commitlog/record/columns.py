"""Converts records to columns for queues and index, vectorized.

The native module converts all but rare records, if it is in use. Here fields are gathered from all records at once
(`commitlog.record.rows`); the only work per record is copying its topic and its properties, which are joined and
searched together (`commitlog.record.batch_properties`).

Source of the rules: RocketMQ `CommitLog.checkMessageAndReturnSize`, `IndexService.buildIndex`,
`CommitLogDispatcherBuildConsumeQueue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from commitlog.record.batch_properties import BatchProperties
from commitlog.record.few_records import FEW_RECORDS_MAX, few_columns
from commitlog.record.properties import decode_properties
from commitlog.record.queue_numbers import queue_numbers
from commitlog.record.rows import RecordRows, bad_bodies, bad_property_crcs, good_rows
from commitlog.record.tags_code import scheduled_tags_code
from commitlog.record.timer_properties import timer_time_ms
from dledger import native
from store.model.dispatch_batch import DispatchBatch, Int32s, Int64s
from store.model.java_hash import key_prefix_hash
from store.model.java_hashes import TEXTS_SIZE_MAX, java_hashes, key_hashes
from store.model.message import DELAY, TAGS, QueueKey
from store.model.sys_flag import (
    INNER_BATCH,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC, TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Half of the limit of `java_hashes`, which leaves space for one more record and for rows of equal length.
_CHUNK_SIZE: Final = TEXTS_SIZE_MAX // 2


def columns(
    view: memoryview,
    starts: Sequence[int] | Int64s,
    sizes: Sequence[int] | Int64s,
    *,
    base_offset: int,
    is_body_checked: bool = False,
    is_property_crc_checked: bool = False,
    levels_ms: Sequence[int] = DELAY_LEVELS_MS,
) -> DispatchBatch:
    """Return the columns of records up to the first invalid one, whose fault `find_fault` returns.

    Magic, lengths and physical offset of each record are checked, and its checksums if requested.

    Args:
        view: contains the records.
        starts: positions of the records, ascending, from `commitlog.record.scan.walk`.
        sizes: of each.
        base_offset: of the view's first byte in the log.
        is_body_checked: compare bodies with their CRC.
        is_property_crc_checked: the same for property CRCs.
        levels_ms: the delay of each delay level.
    """
    if len(starts) and not (is_body_checked or is_property_crc_checked):
        found = _columns_in_c(view, starts, sizes, base_offset)
        if found is None and len(starts) <= FEW_RECORDS_MAX:
            found = few_columns(view, starts, sizes, base_offset, levels_ms)
        if found is not None:
            return found
    rows = _good_rows(
        view,
        (starts, sizes),
        base_offset=base_offset,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
    )
    return batch_of(view, rows, base_offset, int(starts[0]) if len(starts) else 0, levels_ms)


def _columns_in_c(
    view: memoryview, starts: Sequence[int] | Int64s, sizes: Sequence[int] | Int64s, base_offset: int
) -> DispatchBatch | None:
    """Return the columns of records; None if one is invalid or rare, or the native module is not in use.

    Rare are delayed messages, and topics, tags and keys that are not ASCII.
    """
    if native.kernels is None or not (isinstance(starts, list) and isinstance(sizes, list)):
        return None
    found = native.kernels.record_columns(view, starts, sizes, base_offset)
    if found is None:
        return None
    queues, offsets, record_sizes, queue_offsets, tags_codes, timestamps, numbers, is_queued, hashes, key_rows = found
    if any(topic == TIMER_TOPIC for topic, _ in queues):
        return None
    return DispatchBatch(
        begin_offset=base_offset + starts[0],
        next_offset=base_offset + starts[-1] + sizes[-1],
        physical_offsets=np.frombuffer(offsets, np.int64),
        sizes=np.frombuffer(record_sizes, np.int32),
        queue_offsets=np.frombuffer(queue_offsets, np.int64),
        tags_codes=np.frombuffer(tags_codes, np.int64),
        store_timestamps=np.frombuffer(timestamps, np.int64),
        queues=[QueueKey._make(queue) for queue in queues],
        queue_numbers=np.frombuffer(numbers, np.int32),
        is_queued=np.frombuffer(is_queued, np.bool_),
        key_hashes=np.frombuffer(hashes, np.int32),
        key_rows=np.frombuffer(key_rows, np.int64),
    )


def count_good(
    view: memoryview,
    starts: Sequence[int] | Int64s,
    sizes: Sequence[int] | Int64s,
    *,
    base_offset: int,
    is_body_checked: bool = False,
    is_property_crc_checked: bool = False,
) -> tuple[int, Int64s]:
    """Return the number of valid records before the first invalid one, and their store timestamps.

    Arguments and checks are those of `columns`.
    """
    rows = _good_rows(
        view,
        (starts, sizes),
        base_offset=base_offset,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
    )
    return len(rows), _store_timestamps(view, rows)


def _good_rows(
    view: memoryview,
    starts_and_sizes: tuple[Sequence[int] | Int64s, Sequence[int] | Int64s],
    *,
    base_offset: int,
    is_body_checked: bool,
    is_property_crc_checked: bool,
) -> RecordRows:
    begins, sizes = (np.asarray(column, np.int64) for column in starts_and_sizes)
    rows = good_rows(np.frombuffer(view, np.uint8), begins, begins + sizes, base_offset)
    if not (is_body_checked or is_property_crc_checked):
        return rows
    good = _count_unbroken(view, rows, is_body_checked=is_body_checked, is_property_crc_checked=is_property_crc_checked)
    return rows.select(slice(good))


def _count_unbroken(view: memoryview, rows: RecordRows, *, is_body_checked: bool, is_property_crc_checked: bool) -> int:
    """Return the number of records before the first one with a wrong checksum."""
    good = len(rows)
    if is_body_checked:
        is_bad = bad_bodies(view, rows)
        good = int(np.argmax(is_bad)) if is_bad.any() else good
    if is_property_crc_checked and good:
        bad = bad_property_crcs(view, rows.select(slice(good)))
        good = int(bad[0]) if len(bad) else good
    return good


def batch_of(
    view: memoryview,
    rows: RecordRows,
    base_offset: int,
    begin: int,
    levels_ms: Sequence[int] = DELAY_LEVELS_MS,
    *,
    has_keys: bool = True,
) -> DispatchBatch:
    """Return the columns of valid records.

    Args:
        view: contains the records.
        rows: of the records, ascending.
        base_offset: of the view's first byte in the log.
        begin: of the range, in the view.
        levels_ms: see `columns`.
        has_keys: extract keys; queues do not need them.
    """
    sys_flags = rows.fields["sys_flag"].astype(np.int32)
    queues, numbers = queue_numbers(view, rows)
    tags_codes, key_rows, hashes = _hashes(view, rows, queues, numbers, has_keys=has_keys)
    timestamps = _store_timestamps(view, rows)
    _set_delivery_times(tags_codes, view, rows, (queues, numbers), timestamps, levels_ms)
    if (sys_flags & TRANSACTION_MASK == TRANSACTION_ROLLBACK_TYPE).any():
        is_found = sys_flags[key_rows] & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE
        key_rows, hashes = key_rows[is_found], hashes[is_found]
    end = int(rows.ends[-1]) if len(rows.ends) else begin
    return DispatchBatch(
        begin_offset=base_offset + begin,
        next_offset=base_offset + end,
        physical_offsets=base_offset + rows.begins,
        sizes=(rows.ends - rows.begins).astype(np.int32),
        queue_offsets=rows.fields["queue_offset"].astype(np.int64),
        tags_codes=tags_codes,
        store_timestamps=timestamps,
        queues=queues,
        queue_numbers=numbers,
        is_queued=sys_flags & (TRANSACTION_PREPARED_TYPE | INNER_BATCH) == 0,
        key_hashes=hashes,
        key_rows=key_rows,
    )


def _store_timestamps(view: memoryview, rows: RecordRows) -> Int64s:
    return rows.column(np.frombuffer(view, np.uint8), "store_timestamp")


def _hashes(
    view: memoryview, rows: RecordRows, queues: Sequence[QueueKey], numbers: Int32s, *, has_keys: bool
) -> tuple[Int64s, Int64s, Int32s]:
    """Return the tags codes, and rows and hashes of all keys, if requested."""
    tags_codes = np.zeros(len(rows.begins), np.int64)
    # Topics are decoded once, because many queues belong to one topic.
    by_topic = {topic: key_prefix_hash(topic) for topic in {queue.topic for queue in queues}} if has_keys else {}
    prefixes = np.array([by_topic.get(queue.topic, 0) for queue in queues], np.uint32)
    all_rows, all_hashes = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for first, last in _chunks(rows):
        begins, ends = rows.properties_begins[first:last], rows.ends[first:last]
        text = BatchProperties.of(view, begins, ends)
        tag_rows, tag_begins, tag_ends = text.find(TAGS)
        tags_codes[first + tag_rows] = java_hashes(text.data, tag_begins, tag_ends).view(np.int32)
        if not has_keys:
            continue
        key_rows, key_begins, key_ends = text.keys()
        key_rows += first
        all_rows.append(key_rows)
        all_hashes.append(key_hashes(prefixes[numbers[key_rows]], text.data, key_begins, key_ends))
    return tags_codes, np.concatenate(all_rows), np.concatenate(all_hashes)


def _chunks(rows: RecordRows) -> Iterator[tuple[int, int]]:
    """Split the rows into ranges whose joined properties can be hashed at once."""
    sizes = np.cumsum(rows.ends - rows.properties_begins + 1)
    first, count, done = 0, len(sizes), 0
    while first < count:
        last = max(first + 1, int(np.searchsorted(sizes, done + _CHUNK_SIZE)))
        yield first, last
        first, done = last, int(sizes[last - 1])


def _set_delivery_times(
    tags_codes: Int64s,
    view: memoryview,
    rows: RecordRows,
    queues_and_numbers: tuple[Sequence[QueueKey], Int32s],
    store_timestamps: Int64s,
    levels_ms: Sequence[int],
) -> None:
    """Replace the tags code of each delayed message by its delivery time."""
    queues, queue_numbers = queues_and_numbers
    is_timed = np.array([queue.topic in (SCHEDULE_TOPIC, TIMER_TOPIC) for queue in queues], np.bool_)
    if not is_timed.any():
        return
    for row in np.flatnonzero(is_timed[queue_numbers]).tolist():
        raw = view[int(rows.properties_begins[row]) : int(rows.ends[row])]
        properties = decode_properties(raw)
        if queues[queue_numbers[row]].topic == TIMER_TOPIC:
            tags_codes[row] = timer_time_ms(properties)
            continue
        tags_codes[row] = scheduled_tags_code(
            properties.get(DELAY), int(store_timestamps[row]), int(tags_codes[row]), levels_ms
        )

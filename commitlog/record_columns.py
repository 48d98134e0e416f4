"""Records to columns: what many of them mean for queues and index, without a loop over messages in Python.

Fields are gathered from all records at once; the only work for each single record is to cut out its topic and its
properties. Those are joined, with 0x02 between them, and names are found by comparing the eight bytes behind each 0x02.

Source of the rules: RocketMQ `CommitLog.checkMessageAndReturnSize`, `IndexService.buildIndex`,
`CommitLogDispatcherBuildConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from commitlog.properties import CRC_NAME, CRC_SIZE, NAME_VALUE_SEPARATOR, decode_properties
from commitlog.record import CRC_MASK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, decode
from commitlog.tags_code import scheduled_tags_code
from store.dispatch_batch import Bools, DispatchBatch, Int32s, Int64s
from store.java_hash import TEXTS_SIZE_MAX, java_hashes, key_hashes, key_prefix_hash
from store.message import DELAY, KEYS, TAGS, UNIQUE_KEY, QueueKey
from store.sys_flag import (
    BORN_HOST_IPV6,
    INNER_BATCH,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from store.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC

Bytes = NDArray[np.uint8]

# The fields of a record up to its body length, with IPv4 hosts; see `commitlog.record`.
_FIELDS: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_size", ">i4"),
    ]
)
_FIELDS_SIZE: Final = 88
_BODY_SIZE_POSITION: Final = 84
_STORE_TIMESTAMP_POSITION: Final = 56
_IPV6_EXTRA: Final = 12
assert _FIELDS.itemsize == _FIELDS_SIZE

_SEPARATOR: Final = b"\x02"
# Behind the joined properties, so that a name can be compared with eight bytes anywhere.
_PADDING: Final = bytes(16)
_NAME_SIZE: Final = 8
_PROPERTIES_LENGTH_SIZE: Final = 2
# Room for the properties of one more record in what `java_hashes` takes.
_CHUNK_SIZE: Final = TEXTS_SIZE_MAX - 40_000
_SPACE: Final = ord(" ")


@dataclass(slots=True)
class _Rows:
    """Fields of good records, and where their variable parts are in the buffer."""

    fields: NDArray[Any]
    store_timestamps: Int64s
    begins: Int64s
    body_begins: Int64s
    body_ends: Int64s
    topic_begins: Int64s
    topic_ends: Int64s
    ends: Int64s

    @property
    def properties_begins(self) -> Int64s:
        return self.topic_ends + _PROPERTIES_LENGTH_SIZE

    def until(self, count: int) -> _Rows:
        """Return the first rows."""
        return _Rows(*(getattr(self, column)[:count] for column in self.__slots__))


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
    """Return what records mean, up to the first one that is no good one; `find_fault` says what is wrong with that.

    Checked of each record are its magic, its lengths, that its physical offset is its place, and, where asked for,
    its checksums.

    Args:
        view: holds the records.
        starts: where each begins, ascending; within the view with their sizes, as `commitlog.record_scan.walk` finds.
        sizes: of each.
        base_offset: of the view's first byte in the log.
        is_body_checked: whether bodies are compared with their CRC.
        is_property_crc_checked: the same for property CRCs.
        levels_ms: how long a message of each delay level waits.
    """
    rows = _good_rows(
        view,
        (starts, sizes),
        base_offset=base_offset,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
    )
    return _batch(view, rows, base_offset, int(starts[0]) if len(starts) else 0, levels_ms)


def count_good(
    view: memoryview,
    starts: Sequence[int] | Int64s,
    sizes: Sequence[int] | Int64s,
    *,
    base_offset: int,
    is_body_checked: bool = False,
    is_property_crc_checked: bool = False,
) -> tuple[int, Int64s]:
    """Return how many records are good up to the first that is not, and their store timestamps.

    The arguments are those of `columns`, which checks the same.
    """
    rows = _good_rows(
        view,
        (starts, sizes),
        base_offset=base_offset,
        is_body_checked=is_body_checked,
        is_property_crc_checked=is_property_crc_checked,
    )
    return len(rows.begins), rows.store_timestamps


def _good_rows(
    view: memoryview,
    starts_and_sizes: tuple[Sequence[int] | Int64s, Sequence[int] | Int64s],
    *,
    base_offset: int,
    is_body_checked: bool,
    is_property_crc_checked: bool,
) -> _Rows:
    begins, sizes = (np.asarray(column, np.int64) for column in starts_and_sizes)
    rows = _gather_rows(np.frombuffer(view, np.uint8), begins, begins + sizes, base_offset)
    if not (is_body_checked or is_property_crc_checked):
        return rows
    good = _count_unbroken(view, rows, is_body_checked=is_body_checked, is_property_crc_checked=is_property_crc_checked)
    return rows.until(good)


def _gather(data: Bytes, positions: Int64s, dtype: str) -> NDArray[Any]:
    """Return what stands at each of `positions`, aligned or not: one copy of a few bytes each."""
    item_size = np.dtype(dtype).itemsize
    windows = np.ndarray((len(data) - item_size + 1,), f"V{item_size}", data, strides=(1,))
    # Indexing copies just these; `take` would first make a copy of all windows.
    gathered: NDArray[Any] = windows[positions].view(dtype)
    return gathered


def _gather_rows(data: Bytes, begins: Int64s, ends: Int64s, base_offset: int) -> _Rows:
    """Return the rows up to the first bad one."""
    while True:
        rows, is_good = _try_rows(data, begins, ends, base_offset)
        if is_good.all():
            assert rows is not None
            return rows
        # What is found for a bad record may point anywhere, so all is done again without it.
        good = int(np.argmin(is_good))
        begins, ends = begins[:good], ends[:good]


def _try_rows(data: Bytes, begins: Int64s, ends: Int64s, base_offset: int) -> tuple[_Rows | None, Bools]:
    """Return rows, if all are good, and which are good, as far as was looked."""
    if not len(begins):
        return _Rows(np.empty(0, _FIELDS), *([begins] * 7)), np.ones(0, np.bool_)
    is_good: Bools = ends - begins >= RECORD_SIZE_MIN
    if not is_good.all():
        return None, is_good
    fields = _gather(data, begins, f"V{_FIELDS_SIZE}").view(_FIELDS)
    sys_flags, is_v2 = fields["sys_flag"], fields["magic"] == MAGIC_V2
    born_extras = np.where(sys_flags & BORN_HOST_IPV6, _IPV6_EXTRA, 0)
    extras = born_extras + np.where(sys_flags & STORE_HOST_IPV6, _IPV6_EXTRA, 0)
    is_good = (is_v2 | (fields["magic"] == MAGIC_V1)) & (fields["physical_offset"] == begins + base_offset)
    is_good &= (fields["size"] == ends - begins) & (ends - begins >= RECORD_SIZE_MIN + extras + is_v2)
    if not is_good.all():
        return None, is_good
    has_ipv6 = bool(extras.any())
    body_begins = begins + (_FIELDS_SIZE + extras)
    body_sizes = _gather(data, body_begins - 4, ">i4") if has_ipv6 else fields["body_size"]
    body_ends = body_begins + body_sizes
    is_good = (body_sizes >= 0) & (body_ends <= ends - 3 - is_v2)
    if not is_good.all():
        return None, is_good
    # As a short, what V1 has in one byte is the higher half, sign included.
    topic_sizes = _gather(data, body_ends, ">i2").astype(np.int64)
    topic_sizes = np.where(is_v2, topic_sizes, topic_sizes >> 8)
    topic_begins = body_ends + 1 + is_v2
    topic_ends = topic_begins + topic_sizes
    is_good = (topic_sizes >= 0) & (topic_ends <= ends - _PROPERTIES_LENGTH_SIZE)
    if not is_good.all():
        return None, is_good
    is_good = _gather(data, topic_ends, ">i2") == ends - topic_ends - _PROPERTIES_LENGTH_SIZE
    timestamps = fields["store_timestamp"]
    if has_ipv6:
        timestamps = _gather(data, begins + _STORE_TIMESTAMP_POSITION + born_extras, ">i8")
    rows = _Rows(fields, timestamps.astype(np.int64), begins, body_begins, body_ends, topic_begins, topic_ends, ends)
    return rows, is_good


def _count_unbroken(view: memoryview, rows: _Rows, *, is_body_checked: bool, is_property_crc_checked: bool) -> int:
    """Return how many records have right checksums, up to the first that has not."""
    good = len(rows.begins)
    if is_body_checked:
        places = zip(rows.body_begins.tolist(), rows.body_ends.tolist(), strict=True)
        checksums = np.array([crc32(view[begin:end]) for begin, end in places], np.int64) & CRC_MASK
        is_bad = (checksums != rows.fields["body_crc"]) & (rows.body_begins < rows.body_ends)
        good = int(np.argmax(is_bad)) if is_bad.any() else good
    if is_property_crc_checked and good:
        for row in _rows_with_property_crc(view, rows, good).tolist():
            record = decode(view, int(rows.begins[row]), int(rows.ends[row]))
            if record.check(is_body_checked=False, is_property_crc_checked=True):
                return int(row)
    return good


def _rows_with_property_crc(view: memoryview, rows: _Rows, count: int) -> Int64s:
    """Return which of the first `count` records end with the name of a property CRC, and so may have one."""
    # Never before the record, for the fields before its properties are longer.
    heads = _gather(np.frombuffer(view, np.uint8), rows.ends[:count] - CRC_SIZE, "<u8")
    found: Int64s = np.flatnonzero(heads == np.uint64(int.from_bytes(CRC_NAME.encode(), "little")))
    return found


def _batch(view: memoryview, rows: _Rows, base_offset: int, begin: int, levels_ms: Sequence[int]) -> DispatchBatch:
    sys_flags = rows.fields["sys_flag"].astype(np.int32)
    queues, queue_numbers = _queues(view, rows)
    tags_codes, key_rows, hashes = _hashes(view, rows, queues, queue_numbers)
    _set_delivery_times(tags_codes, view, rows, queues, queue_numbers, levels_ms)
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
        store_timestamps=rows.store_timestamps,
        queues=queues,
        queue_numbers=queue_numbers,
        is_queued=sys_flags & (TRANSACTION_PREPARED_TYPE | INNER_BATCH) == 0,
        key_hashes=hashes,
        key_rows=key_rows,
    )


def _queues(view: memoryview, rows: _Rows) -> tuple[list[QueueKey], Int32s]:
    """Return the queues that occur, in order of first occurrence, and each row's."""
    numbers: dict[tuple[bytes, int], int] = {}
    number_of = numbers.setdefault
    queue_numbers = [
        number_of((view[begin:end].tobytes(), queue_id), len(numbers))
        for begin, end, queue_id in zip(
            rows.topic_begins.tolist(), rows.topic_ends.tolist(), rows.fields["queue_id"].tolist(), strict=True
        )
    ]
    queues = [QueueKey(topic.decode("utf-8", "replace"), queue_id) for topic, queue_id in numbers]
    return queues, np.array(queue_numbers, np.int32)


def _hashes(
    view: memoryview, rows: _Rows, queues: Sequence[QueueKey], queue_numbers: Int32s
) -> tuple[Int64s, Int64s, Int32s]:
    """Return the tags codes, and rows and hashes of all keys."""
    tags_codes = np.zeros(len(rows.begins), np.int64)
    prefixes = np.array([key_prefix_hash(queue.topic) for queue in queues], np.uint32)
    all_rows, all_hashes = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for first, last in _chunks(rows):
        begins, ends = rows.properties_begins[first:last], rows.ends[first:last]
        text = _Texts(view, begins, ends)
        tag_rows, tag_begins, tag_ends = text.find(TAGS)
        tags_codes[first + tag_rows] = java_hashes(text.data, tag_begins, tag_ends).view(np.int32)
        key_rows, key_begins, key_ends = _keys(text)
        key_rows += first
        all_rows.append(key_rows)
        all_hashes.append(key_hashes(prefixes[queue_numbers[key_rows]], text.data, key_begins, key_ends))
    return tags_codes, np.concatenate(all_rows), np.concatenate(all_hashes)


def _chunks(rows: _Rows) -> Iterator[tuple[int, int]]:
    """Cut the rows into ranges whose properties, joined, can be hashed at once."""
    sizes = np.cumsum(rows.ends - rows.properties_begins + 1)
    first, count, done = 0, len(sizes), 0
    while first < count:
        last = max(first + 1, int(np.searchsorted(sizes, done + _CHUNK_SIZE)))
        yield first, last
        first, done = last, int(sizes[last - 1])


class _Texts:
    """The properties of many records, joined: 0x02, those of the first, 0x02, those of the second, and so on, 0x02.

    Attributes:
        data: all the bytes.
        row_begins: where each record's begin.
        part_begins: behind each 0x02 (but the last).
        part_ends: at each 0x02 (but the first): where the part ends that begins behind the one before it.
    """

    def __init__(self, view: memoryview, begins: Int64s, ends: Int64s) -> None:
        pieces = [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        joined = b"".join((_SEPARATOR, _SEPARATOR.join(pieces), _SEPARATOR, _PADDING))
        self.data: Bytes = np.frombuffer(joined, np.uint8)
        self.row_begins = np.concatenate(([1], 1 + np.cumsum(ends - begins + 1)[:-1]))
        separators = np.flatnonzero(self.data == _SEPARATOR[0])
        self.part_begins, self.part_ends = separators[:-1] + 1, separators[1:]
        self._heads = _gather(self.data, self.part_begins, "<u8")

    def find(self, name: str) -> tuple[Int64s, Int64s, Int64s]:
        """Return, for each row that has a property `name` that is not empty, row, begin and end of its value.

        Of several in one row the last one counts.
        """
        wanted = f"{name}{NAME_VALUE_SEPARATOR}".encode()
        head = wanted[:_NAME_SIZE]
        mask = (1 << 8 * len(head)) - 1
        is_found = self._heads & np.uint64(mask) == np.uint64(int.from_bytes(head, "little"))
        found = np.flatnonzero(is_found)
        if len(wanted) > _NAME_SIZE:
            found = found[self.data[self.part_begins[found] + _NAME_SIZE] == wanted[_NAME_SIZE]]
        begins, ends = self.part_begins[found] + len(wanted), self.part_ends[found]
        # The padding cannot be part of a value, but an empty value is none.
        begins, ends = begins[begins < ends], ends[begins < ends]
        rows = np.searchsorted(self.row_begins, begins, "right") - 1
        is_last = np.ones(len(rows), np.bool_)
        is_last[:-1] = rows[:-1] != rows[1:]
        return rows[is_last], begins[is_last], ends[is_last]


def _keys(text: _Texts) -> tuple[Int64s, Int64s, Int64s]:
    """Return rows, begins and ends of all keys: UNIQ_KEY as it is, then KEYS, split at each space."""
    unique_rows, unique_begins, unique_ends = text.find(UNIQUE_KEY)
    rows, begins, ends = text.find(KEYS)
    if len(rows):
        spaces = np.flatnonzero(text.data == _SPACE)
        places = np.searchsorted(begins, spaces, "right") - 1
        spaces = spaces[(places >= 0) & (spaces < ends[places])]
        if len(spaces):
            # The n-th begin and the n-th end belong together, for the values do not overlap.
            values, value_rows = begins, rows
            begins = np.sort(np.concatenate((begins, spaces + 1)))
            ends = np.sort(np.concatenate((ends, spaces)))
            begins, ends = begins[begins < ends], ends[begins < ends]
            rows = value_rows[np.searchsorted(values, begins, "right") - 1]
    rows = np.concatenate((unique_rows, rows))
    order = np.argsort(rows, kind="stable")
    begins, ends = np.concatenate((unique_begins, begins)), np.concatenate((unique_ends, ends))
    return rows[order], begins[order], ends[order]


def _set_delivery_times(
    tags_codes: Int64s,
    view: memoryview,
    rows: _Rows,
    queues: Sequence[QueueKey],
    queue_numbers: Int32s,
    levels_ms: Sequence[int],
) -> None:
    """Give each delayed message the time when it is due instead of the hash of its tags."""
    is_schedule = np.array([queue.topic == SCHEDULE_TOPIC for queue in queues], np.bool_)
    if not is_schedule.any():
        return
    for row in np.flatnonzero(is_schedule[queue_numbers]).tolist():
        raw = view[int(rows.properties_begins[row]) : int(rows.ends[row])]
        tags_codes[row] = scheduled_tags_code(
            decode_properties(raw).get(DELAY), int(rows.store_timestamps[row]), int(tags_codes[row]), levels_ms
        )

"""The fields of many records, and the positions of their variable parts, as NumPy columns.

The vectorized equivalent of the checks in `commitlog.record.record`. The columns for queues and index are computed in
`commitlog.record.columns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from commitlog.record.properties import CRC_NAME, CRC_SIZE
from commitlog.record.record import CRC_MASK, FIELDS, FIELDS_SIZE, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, decode
from dledger import native
from dledger.entries.format.entry import ENTRY_NORMAL, HEADER, HEADER_SIZE
from store.fs.struct_type import numpy_type
from store.model.sys_flag import BORN_HOST_IPV6, HOST_MASK, STORE_HOST_IPV6

if TYPE_CHECKING:
    from store.model.dispatch_batch import Bools, Int64s

Bytes = NDArray[np.uint8]

_FIELD_NAMES: Final = (
    *("size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host"),
    *("reconsume_times", "prepared_transaction_offset", "body_size"),
)
# The fields of a record up to its body length, by the two IPv6 bits of sys_flag; see `commitlog.record.record`.
FIELD_TYPES: Final = {bits: numpy_type(layout, _FIELD_NAMES) for bits, layout in FIELDS.items()}
_FIELDS: Final = FIELD_TYPES[0]
# The header of an entry; see `dledger.entries.format.entry`. The names differ from those of the record's fields.
HEADER_TYPE: Final = numpy_type(
    HEADER,
    (
        *("entry_magic", "entry_size", "index", "term", "position", "channel"),
        *("chain_crc", "entry_crc", "entry_body_size"),
    ),
)
ENTRY_FIELDS: Final = np.dtype([*HEADER_TYPE.descr, *_FIELDS.descr])
_IPV6_EXTRA: Final = 12
_PROPERTIES_LENGTH_SIZE: Final = 2
# The number of hosts before a field.
_BEHIND_BORN_HOST: Final = frozenset({"store_timestamp", "store_host"})
_BEHIND_BOTH_HOSTS: Final = frozenset({"reconsume_times", "prepared_transaction_offset", "body_size"})


@dataclass(slots=True)
class RecordRows:
    """Fields of valid records, and the positions of their variable parts in the buffer.

    Attributes:
        fields: as in `commitlog.record.record` for IPv4; see `column`. If the entries' headers were read, also theirs:
            `index`, `term`, `entry_crc` (0: none), ...
        begins: of each record, in the buffer.
        body_begins, body_ends, topic_begins, topic_ends, ends: of its parts; properties end with the record.
        born_extras, extras: bytes that an IPv6 born host, and both hosts, take beyond 8 each; None: no row has any.
    """

    fields: NDArray[Any]
    begins: Int64s
    body_begins: Int64s
    body_ends: Int64s
    topic_begins: Int64s
    topic_ends: Int64s
    ends: Int64s
    born_extras: Int64s | None = None
    extras: Int64s | None = None

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def properties_begins(self) -> Int64s:
        """Begins of the properties."""
        return self.topic_ends + _PROPERTIES_LENGTH_SIZE

    def select(self, rows: slice | Bools | Int64s) -> RecordRows:
        """Return the selected rows: by number, or those where a mask is true."""
        if isinstance(rows, np.ndarray) and rows.dtype == np.bool_ and rows.all():
            # Fast path: usually all rows of a batch are selected, which needs no copy.
            return self
        born_extras, extras = self.born_extras, self.extras
        return RecordRows(
            self.fields[rows],
            self.begins[rows],
            self.body_begins[rows],
            self.body_ends[rows],
            self.topic_begins[rows],
            self.topic_ends[rows],
            self.ends[rows],
            None if born_extras is None else born_extras[rows],
            None if extras is None else extras[rows],
        )

    def column(self, data: Bytes, name: str) -> NDArray[Any]:
        """Return one field of all rows in the machine's byte order; for hosts their (first) 8 bytes.

        Args:
            data: the buffer with the records.
            name: as in the table of `commitlog.record.record`; `body_size` is the body length.
        """
        found = self.fields[name]
        extras = self.born_extras if name in _BEHIND_BORN_HOST else self.extras if name in _BEHIND_BOTH_HOSTS else None
        assert _FIELDS.fields is not None
        dtype, position = _FIELDS.fields[name][:2]
        if extras is not None:
            found = gather(data, self.begins + (position + extras), dtype.str)
        return found.astype(dtype.newbyteorder("="))

    def host_positions(self, name: str) -> Int64s:
        """Return the positions of the `born_host` or `store_host` of each row in the buffer."""
        assert _FIELDS.fields is not None
        positions: Int64s = self.begins + _FIELDS.fields[name][1]
        return positions + self.born_extras if name == "store_host" and self.born_extras is not None else positions


def gather(data: Bytes, positions: Int64s, dtype: str) -> NDArray[Any]:
    """Return the values at `positions`, which need not be aligned: one copy of a few bytes each."""
    item_size = np.dtype(dtype).itemsize
    windows = np.ndarray((len(data) - item_size + 1,), f"V{item_size}", data, strides=(1,))
    # Indexing copies only these; `take` would first copy all windows.
    gathered: NDArray[Any] = windows[positions].view(dtype)
    return gathered


def good_rows(
    data: Bytes, begins: Int64s, ends: Int64s, base_offset: int | Int64s, *, has_headers: bool = False
) -> RecordRows:
    """Return the rows up to the first invalid record.

    Each record's magic, lengths and physical offset are checked, and kind, size and position of an entry's header.

    Args:
        data: the buffer with the records.
        begins: of each record, ascending.
        ends: of each record; within the buffer.
        base_offset: of the buffer's first byte in the log; for gathered records, the difference of physical offset and
            position of each.
        has_headers: each record is the body of an entry, whose header precedes it in the buffer and is also checked.
    """
    if native.kernels is not None and isinstance(base_offset, int):
        rows = _native_rows(native.kernels, data, begins, ends, base_offset, has_headers=has_headers)
        if rows is not None:
            return rows
    return good_rows_in_python(data, begins, ends, base_offset, has_headers=has_headers)


def good_rows_in_python(
    data: Bytes, begins: Int64s, ends: Int64s, base_offset: int | Int64s, *, has_headers: bool = False
) -> RecordRows:
    """Return the rows as `good_rows` does; the reference of the native module."""
    while True:
        rows, is_good = _try_rows(data, begins, ends, base_offset, has_headers=has_headers)
        if is_good.all():
            assert rows is not None
            return rows
        # The values of an invalid record may point anywhere, so the computation is repeated without it.
        good = int(np.argmin(is_good))
        begins, ends = begins[:good], ends[:good]
        base_offset = base_offset if isinstance(base_offset, int) else base_offset[:good]


def _native_rows(
    kernels: native.Kernels, data: Bytes, begins: Int64s, ends: Int64s, base_offset: int, *, has_headers: bool
) -> RecordRows | None:
    fields = np.empty(len(begins), ENTRY_FIELDS if has_headers else _FIELDS)
    positions = np.empty((4, len(begins)), np.int64)
    begins, ends = np.ascontiguousarray(begins), np.ascontiguousarray(ends)
    good = kernels.check_records(data, begins, ends, base_offset, int(has_headers), fields, positions)
    if good is None:
        return None
    body_begins, body_ends, topic_begins, topic_ends = positions[:, :good]
    return RecordRows(fields[:good], begins[:good], body_begins, body_ends, topic_begins, topic_ends, ends[:good])


def _try_rows(
    data: Bytes, begins: Int64s, ends: Int64s, base_offset: int | Int64s, *, has_headers: bool
) -> tuple[RecordRows | None, Bools]:
    """Return the rows, if all are valid, and a mask of the valid ones so far; arguments as in `good_rows`."""
    if not len(begins):
        dtype = ENTRY_FIELDS if has_headers else _FIELDS
        return RecordRows(np.empty(0, dtype), *([begins] * 6)), np.ones(0, np.bool_)
    # A damaged place may be anywhere, also before the buffer, where NumPy would count from its end.
    is_good: Bools = (begins >= (HEADER_SIZE if has_headers else 0)) & (ends <= len(data))
    is_good &= ends - begins >= RECORD_SIZE_MIN
    if not is_good.all():
        return None, is_good
    if has_headers:
        fields = gather(data, begins - HEADER_SIZE, f"V{ENTRY_FIELDS.itemsize}").view(ENTRY_FIELDS)
    else:
        fields = gather(data, begins, f"V{FIELDS_SIZE}").view(_FIELDS)
    sys_flags, is_v2 = fields["sys_flag"], fields["magic"] == MAGIC_V2
    has_ipv6, has_v2 = bool((sys_flags & HOST_MASK).any()), bool(is_v2.any())
    born_extras = np.where(sys_flags & BORN_HOST_IPV6, _IPV6_EXTRA, 0) if has_ipv6 else 0
    extras = born_extras + np.where(sys_flags & STORE_HOST_IPV6, _IPV6_EXTRA, 0) if has_ipv6 else 0
    is_good = (is_v2 | (fields["magic"] == MAGIC_V1)) & (fields["physical_offset"] == begins + base_offset)
    if has_headers:
        is_good &= _has_header(fields)
    is_good &= (fields["size"] == ends - begins) & (ends - begins >= RECORD_SIZE_MIN + extras + is_v2)
    if not is_good.all():
        return None, is_good
    body_begins = begins + (FIELDS_SIZE + extras)
    body_sizes = gather(data, body_begins - 4, ">i4") if has_ipv6 else fields["body_size"]
    body_ends = body_begins + body_sizes
    is_good = (body_sizes >= 0) & (body_ends <= ends - 3 - is_v2)
    if not is_good.all():
        return None, is_good
    topic_sizes = data.view(np.int8)[body_ends].astype(np.int64)
    if has_v2:
        topic_sizes = np.where(is_v2, gather(data, body_ends, ">i2"), topic_sizes)
    topic_begins = body_ends + 1 + is_v2
    topic_ends = topic_begins + topic_sizes
    is_good = (topic_sizes >= 0) & (topic_ends <= ends - _PROPERTIES_LENGTH_SIZE)
    if not is_good.all():
        return None, is_good
    is_good = gather(data, topic_ends, ">i2") == ends - topic_ends - _PROPERTIES_LENGTH_SIZE
    more = (born_extras, extras) if has_ipv6 else (None, None)
    return RecordRows(fields, begins, body_begins, body_ends, topic_begins, topic_ends, ends, *more), is_good


def _has_header(fields: NDArray[Any]) -> Bools:
    """Return a mask of the records preceded by the header of a client's entry with the correct position."""
    is_client = (fields["entry_magic"] == ENTRY_NORMAL) & (fields["channel"] == 0)
    is_there = fields["position"] == fields["physical_offset"] - HEADER_SIZE
    is_whole = (fields["entry_body_size"] == fields["size"]) & (fields["entry_size"] == fields["size"] + HEADER_SIZE)
    good: Bools = is_client & is_there & is_whole
    return good


def bad_bodies(view: memoryview, rows: RecordRows) -> Bools:
    """Return a mask of the records whose body has a wrong CRC-32; an empty body has none."""
    places = zip(rows.body_begins.tolist(), rows.body_ends.tolist(), strict=True)
    checksums = np.array([crc32(view[begin:end]) for begin, end in places], np.int64) & CRC_MASK
    is_bad: Bools = (checksums != rows.fields["body_crc"]) & (rows.body_begins < rows.body_ends)
    return is_bad


def bad_property_crcs(view: memoryview, rows: RecordRows) -> Int64s:
    """Return the numbers of the records with a wrong property CRC; records without one are correct."""
    # Never before the record, because the fields before its properties are longer.
    heads = gather(np.frombuffer(view, np.uint8), rows.ends - CRC_SIZE, "<u8")
    likely = np.flatnonzero(heads == np.uint64(int.from_bytes(CRC_NAME.encode(), "little")))
    is_wrong = [
        decode(view, int(rows.begins[row]), int(rows.ends[row])).check(
            is_body_checked=False, is_property_crc_checked=True
        )
        is not None
        for row in likely.tolist()
    ]
    wrong: Int64s = likely[np.array(is_wrong, np.bool_)]
    return wrong

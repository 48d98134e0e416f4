"""Records to Arrow: converts a range of a log to a batch of columns, vectorized.

Fixed fields are gathered with NumPy (`commitlog.record.rows`). Body, topic and properties are extracted with Arrow: one
array over the mapped file has all parts of all records as elements, and `take` copies the selected ones.

Bodies are returned as stored, including compressed ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.record.rows import HEADER_TYPE, Bytes, RecordRows, gather
from pipeline.columns.native_columns import ENTRY_NUMBERS, FIELDS, PROPERTY_NAMES, TIMES, RecordPlaces, decode_records
from pipeline.columns.property_columns import PropertyColumns
from pipeline.columns.schema import DEFAULT_NAMES, Column, chosen
from pipeline.columns.times import US_A_MS
from store.model.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from store.model.dispatch_batch import Int64s

_PARTS: Final = 6
_BODY, _TOPIC, _PROPERTIES = 0, 2, 4
_HOSTS: Final = {"bornHost": ("born_host", BORN_HOST_IPV6), "storeHost": ("store_host", STORE_HOST_IPV6)}


def decode_rows(
    view: memoryview, rows: RecordRows, names: Sequence[str] = DEFAULT_NAMES, *, header_size: int = 0
) -> pa.RecordBatch:
    """Return these columns of valid records.

    Args:
        view: contains the records; less than 2 GiB.
        rows: of the records, ascending.
        names: of the columns, in order.
        header_size: 48 in the replicated log, where each record follows an entry's header; else 0.

    Raises:
        pipeline.common.errors.UnknownColumn: there is no column of that name.
    """
    columns = chosen(names)
    found = decode_records(RecordPlaces(view, rows.begins, rows.ends, header_size), columns)
    if found is not None:
        return _batch(found, columns)
    decoding = _Decoding(view, rows, header_size)
    return _batch([decoding.column(column.name) for column in columns], columns)


def decode_places(places: RecordPlaces, names: Sequence[str] = DEFAULT_NAMES) -> pa.RecordBatch | None:
    """Return these columns of records that are not checked yet; None: a record is bad, or Python has to decode them.

    Args:
        places: of the records.
        names: as for `decode_rows`.
    """
    columns = chosen(names)
    found = decode_records(places, columns)
    return None if found is None else _batch(found, columns)


def _batch(arrays: list[pa.Array], columns: Sequence[Column]) -> pa.RecordBatch:
    schema = pa.schema([pa.field(column.name, column.type) for column in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def raw_topics(view: memoryview, rows: RecordRows) -> pa.Array:
    """Return the stored topics of records; arguments as for `decode_rows`."""
    return _Decoding(view, rows, 0).part(_TOPIC)


def raw_properties(view: memoryview, rows: RecordRows) -> pa.Array:
    """Return the stored properties of records; arguments as for `decode_rows`."""
    return _Decoding(view, rows, 0).part(_PROPERTIES)


def cut_out(view: memoryview, begins: Int64s, ends: Int64s) -> pa.Array:
    """Return copies of ranges of a buffer of less than 2 GiB."""
    borders = np.column_stack((begins, ends)).astype(np.int32)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(view)]
    around = pa.Array.from_buffers(pa.binary(), max(borders.size - 1, 0), buffers)
    return pc.take(around, pa.array(np.arange(0, borders.size, 2, dtype=np.int32)), boundscheck=False)


@dataclass
class _Decoding:
    view: memoryview
    rows: RecordRows
    header_size: int

    def part(self, number: int) -> pa.Array:
        if not len(self.rows):
            return pa.array([], pa.binary())
        places = pa.array(np.arange(number, _PARTS * len(self.rows), _PARTS, dtype=np.int32))
        return pc.take(self._parts, places, boundscheck=False)

    def column(self, name: str) -> pa.Array:
        if name in FIELDS:
            return pa.array(self.rows.column(self._data, FIELDS[name]))
        if name in TIMES:
            return _times(self.rows.column(self._data, TIMES[name]))
        if name in _HOSTS:
            return self._hosts(*_HOSTS[name])
        if name in PROPERTY_NAMES:
            return self._properties.values(PROPERTY_NAMES[name])
        if name in ENTRY_NUMBERS:
            return self._entry_field(name)
        return self._variable(name)

    @cached_property
    def _data(self) -> Bytes:
        return np.frombuffer(self.view, np.uint8)

    def _variable(self, name: str) -> pa.Array:
        if name == "body":
            return self.part(_BODY)
        if name == "topic":
            return _texts(self.part(_TOPIC))
        if name == "propertiesRaw":
            return self._raw_properties
        assert name == "properties", name
        return self._properties.maps()

    @cached_property
    def _parts(self) -> pa.Array:
        rows = self.rows
        borders = np.empty((len(rows), _PARTS), np.int32)
        for place, column in enumerate(
            (rows.body_begins, rows.body_ends, rows.topic_begins, rows.topic_ends, rows.properties_begins, rows.ends)
        ):
            borders[:, place] = column
        buffers = [None, pa.py_buffer(borders), pa.py_buffer(self.view)]
        return pa.Array.from_buffers(pa.binary(), borders.size - 1, buffers)

    @cached_property
    def _raw_properties(self) -> pa.Array:
        return self.part(_PROPERTIES)

    @cached_property
    def _properties(self) -> PropertyColumns:
        return PropertyColumns(self._raw_properties)

    def _entry_field(self, name: str) -> pa.Array:
        if not self.header_size:
            return pa.nulls(len(self.rows), pa.int64())
        if name in (self.rows.fields.dtype.names or ()):
            return pa.array(self.rows.fields[name].astype(np.int64))
        assert HEADER_TYPE.fields is not None
        dtype, position = HEADER_TYPE.fields[name][:2]
        at: Int64s = self.rows.begins + (position - self.header_size)
        return pa.array(gather(self._data, at, dtype.str).astype(np.int64))

    def _hosts(self, name: str, ipv6: int) -> pa.Array:
        raw = self.rows.column(self._data, name)
        is_ipv6 = self.rows.fields["sys_flag"] & ipv6 != 0
        if not is_ipv6.any():
            # As integers, which are faster to compare than bytes.
            hosts = np.ascontiguousarray(raw).view(np.int64)
            if len(hosts) and (hosts == hosts[0]).all():
                return pa.repeat(_host_text(hosts[0].tobytes()), len(hosts))
            known = pc.dictionary_encode(pa.array(hosts))
            texts = pa.array([_host_text(host.tobytes()) for host in known.dictionary.to_numpy()], pa.string())
            return pc.take(texts, known.indices, boundscheck=False)
        begins = self.rows.host_positions(name)
        known = pc.dictionary_encode(cut_out(self.view, begins, begins + np.where(is_ipv6, 20, 8)))
        texts = pa.array([_host_text(host) for host in known.dictionary.to_pylist()], pa.string())
        return pc.take(texts, known.indices, boundscheck=False)


# The same clients occur in every batch.
@lru_cache(maxsize=1 << 16)
def _host_text(raw: bytes) -> str:
    port = int.from_bytes(raw[-4:], "big", signed=True)
    return f"{IPv4Address(raw[:4])}:{port}" if len(raw) == 8 else f"[{IPv6Address(raw[:16])}]:{port}"


def _times(milliseconds: NDArray[Any]) -> pa.Array:
    """Return times; a time beyond 64-bit microseconds, from a wrong client clock, becomes null."""
    limit = np.iinfo(np.int64).max // US_A_MS
    if len(milliseconds) and -limit <= milliseconds.min() and milliseconds.max() <= limit:
        return pa.array(milliseconds * US_A_MS, pa.timestamp("us", "UTC"))
    is_out = (milliseconds > limit) | (milliseconds < -limit)
    scaled = np.where(is_out, 0, milliseconds) * US_A_MS
    return pa.array(scaled, pa.timestamp("us", "UTC"), mask=is_out if is_out.any() else None)


def _texts(raw: pa.Array) -> pa.Array:
    """Return bytes as text; invalid UTF-8 becomes U+FFFD."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in raw.to_pylist()], pa.string())

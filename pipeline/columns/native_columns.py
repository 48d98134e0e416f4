"""Records to columns by the native module (`dledger.native`), for records of the usual form.

The columns are those of `pipeline.columns.decoder`, which decodes every batch that has other records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from commitlog.record.record import RECORD_SIZE_MIN
from commitlog.record.rows import ENTRY_FIELDS, FIELD_TYPES
from dledger import native
from store.model.message import KEYS, TAGS, UNIQUE_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.columns.schema import Column
    from store.model.dispatch_batch import Int64s

Int32s = NDArray[np.int32]
Bytes = NDArray[np.uint8]

# Fields of columns that are numbers, times or hosts; names as in `commitlog.record.rows`.
FIELDS: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "bodyCrc": "body_crc",
    "bodySize": "body_size",
    "storeSize": "size",
    "magic": "magic",
    "bornTimestampMs": "born_timestamp",
}
TIMES: Final = {"bornTimestamp": "born_timestamp", "storeTimestamp": "store_timestamp"}
ENTRY_NUMBERS: Final = ("index", "term")
HOSTS: Final = {"bornHost": "born_host", "storeHost": "store_host"}
PROPERTY_NAMES: Final = {"tags": TAGS, "keys": KEYS, "uniqKey": UNIQUE_KEY}
_PARTS: Final = ("body", "topic", "propertiesRaw")

# Of the text of an IPv4 host.
_HOST_TEXT_MAX: Final = 27
# A property that counts has a name, a value, and a separator after each but the last of a message.
_PROPERTY_SIZE_MIN: Final = 4
# Space beyond what the batch before has used, relative to its size.
_SPARE: Final = 1.25
_SPARE_BYTES: Final = 4096


class RecordPlaces(NamedTuple):
    """Records in a buffer, and what is checked of them besides their form.

    Attributes:
        view: contains them.
        begins, ends: of each record.
        header_size: 48 if each follows an entry's header, else 0.
        base: offset of the buffer's first byte in the log; None: offsets and headers were checked before.
        first_index: of the first of consecutive entries; None: not checked.
        is_crc_checked: whether each must have the checksum of its entry.
        refused_topic: of records that are no messages.
    """

    view: memoryview
    begins: Int64s
    ends: Int64s
    header_size: int
    base: int | None = None
    first_index: int | None = None
    is_crc_checked: bool = False
    refused_topic: str = ""


def decode_records(places: RecordPlaces, columns: Sequence[Column]) -> list[pa.Array] | None:
    """Return columns of records; None: Python has to do it, because a record is bad or does not have the usual form."""
    kernels = native.kernels
    if kernels is None:
        return None
    for is_estimated in (True, False):
        outputs = _Outputs(places, [column.name for column in columns], is_estimated=is_estimated)
        sizes = kernels.decode_records(
            places.view,
            np.ascontiguousarray(places.begins),
            np.ascontiguousarray(places.ends),
            places.base,
            -1 if places.first_index is None else places.first_index,
            int(places.is_crc_checked),
            places.refused_topic.encode(),
            outputs.given(),
        )
        if sizes is not None:
            arrays = outputs.arrays(sizes)
            return [arrays[column.name] for column in columns]
        if not outputs.is_estimated:
            break
    return None


class _Texts(NamedTuple):
    """Where texts are written: their ends, and their bytes."""

    offsets: Int32s
    data: Bytes

    def array(self, kind: pa.DataType, used: int, validity: Bytes | None = None, null_count: int = 0) -> pa.Array:
        bitmap = None if validity is None else pa.py_buffer(validity)
        data = self.data[:used] if 2 * used >= len(self.data) else self.data[:used].copy()
        buffers = [bitmap, pa.py_buffer(self.offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, len(self.offsets) - 1, buffers, null_count)


# Bytes of a column of texts for each byte of records, in the batch before: most batches of a log are alike.
_used: dict[str, float] = {}


class _Outputs:
    """The memory of the columns of one batch."""

    def __init__(self, places: RecordPlaces, names: Sequence[str], *, is_estimated: bool) -> None:
        self._rows = len(places.begins)
        self._size = max(int((places.ends - places.begins).sum()), 0)
        self._header_size = places.header_size
        self._names = names
        self.is_estimated = False
        self._may_estimate = is_estimated
        type_ = ENTRY_FIELDS if places.header_size else FIELD_TYPES[0]
        assert type_.fields is not None
        self._positions = {name: field[1] for name, field in type_.fields.items()}
        self._numbers: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, _Texts] = {}
        self._validity: dict[str, Bytes] = {}
        self._firsts = np.empty(0, np.int32)

    def given(self) -> tuple[Any, ...]:
        """Return the outputs as the native module expects them."""
        names, rows = self._names, self._rows
        fields = {name: FIELDS[name] for name in names if name in FIELDS}
        ints = {name: field for name, field in fields.items() if _is_int(field)}
        longs = {name: field for name, field in fields.items() if name not in ints}
        if self._header_size:
            longs |= {name: name for name in names if name in ENTRY_NUMBERS}
        times = {name: TIMES[name] for name in names if name in TIMES}
        hosts = [name for name in HOSTS if name in names]
        wanted = [name for name in PROPERTY_NAMES if name in names]
        bodies = max(self._size - rows * RECORD_SIZE_MIN, 0)
        for name in _PARTS:
            if name in names:
                self._add_texts(name, bodies)
        for name in hosts:
            self._add_texts(name, rows * _HOST_TEXT_MAX)
        for name in wanted:
            self._add_texts(name, bodies)
            self._validity[name] = np.empty((rows + 7) // 8, np.uint8)
        return (
            int(self._header_size > 0),
            self._given_numbers(ints, np.int32),
            self._given_numbers(longs, np.int64),
            self._given_numbers(times, np.int64),
            tuple((self._positions[HOSTS[name]], *self._texts[name]) for name in hosts),
            tuple(tuple(self._texts.get(name, ())) for name in _PARTS),
            tuple((PROPERTY_NAMES[name].encode(), self._validity[name], *self._texts[name]) for name in wanted),
            self._given_map(bodies) if "properties" in names else (),
        )

    def _given_numbers(self, fields: dict[str, str], kind: type[np.generic]) -> tuple[tuple[int, NDArray[Any]], ...]:
        self._numbers |= {name: np.empty(self._rows, kind) for name in fields}
        return tuple((self._positions[field], self._numbers[name]) for name, field in fields.items())

    def _given_map(self, bytes_max: int) -> tuple[NDArray[Any], ...]:
        count_max = (bytes_max + self._rows) // _PROPERTY_SIZE_MIN
        self._firsts = np.empty(self._rows + 1, np.int32)
        for name in ("names", "values"):
            self._add_texts(name, bytes_max, self._room("properties", count_max))
        return self._firsts, *self._texts["names"], *self._texts["values"]

    def _add_texts(self, name: str, bytes_max: int, count: int | None = None) -> None:
        offsets = np.empty((self._rows if count is None else count) + 1, np.int32)
        self._texts[name] = _Texts(offsets, np.empty(self._room(name, bytes_max), np.uint8))

    def _room(self, name: str, most: int) -> int:
        if not self._may_estimate or name not in _used:
            return most
        capacity = int(_used[name] * self._size * _SPARE) + _SPARE_BYTES
        if capacity >= most:
            return most
        self.is_estimated = True
        return capacity

    def arrays(self, sizes: Sequence[int]) -> dict[str, pa.Array]:
        """Return the columns, by the sizes that the native module has returned."""
        names, rows, left = self._names, self._rows, iter(sizes)
        found: dict[str, pa.Array] = {}
        for name in HOSTS:
            if name in names:
                found[name] = self._array(name, pa.string(), next(left))
        for name in _PARTS:
            used = next(left)
            if name in names:
                found[name] = self._array(name, pa.string() if name == "topic" else pa.binary(), used)
        for name in PROPERTY_NAMES:
            if name in names:
                with_it, used = next(left), next(left)
                validity = None if with_it == rows else self._validity[name]
                found[name] = self._array(name, pa.string(), used, validity, rows - with_it)
        count, *used_bytes = left
        if "properties" in names:
            found["properties"] = self._map(count, *used_bytes)
        for name, numbers in self._numbers.items():
            kind = pa.timestamp("us", "UTC") if name in TIMES else pa.int32() if numbers.itemsize == 4 else pa.int64()
            found[name] = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)])
        for name in ENTRY_NUMBERS:
            if name in names and not self._header_size:
                found[name] = pa.nulls(rows, pa.int64())
        return found

    def _array(
        self, name: str, kind: pa.DataType, used: int, validity: Bytes | None = None, null_count: int = 0
    ) -> pa.Array:
        _used[name] = used / self._size if self._size else 0.0
        return self._texts[name].array(kind, used, validity, null_count)

    def _map(self, count: int, names_size: int, values_size: int) -> pa.Array:
        _used["properties"] = count / self._size if self._size else 0.0
        for name in ("names", "values"):
            texts = self._texts[name]
            offsets = texts.offsets[: count + 1]
            self._texts[name] = texts._replace(offsets=offsets if 2 * count >= len(texts.offsets) else offsets.copy())
        firsts = pa.Array.from_buffers(pa.int32(), self._rows + 1, [None, pa.py_buffer(self._firsts)])
        names = self._array("names", pa.string(), names_size)
        return pa.MapArray.from_arrays(firsts, names, self._array("values", pa.string(), values_size))


def _is_int(field: str) -> bool:
    type_ = FIELD_TYPES[0].fields
    assert type_ is not None
    return type_[field][0].itemsize == 4

"""Columns to records: the inverse of `pipeline.columns.decoder`, byte for byte, vectorized.

A frame with all `RECORD_COLUMNS` is *lossless*: records can be rebuilt from it. `properties`, `tags`, `keys`,
`uniqKey`, `bodySize` and `storeSize` are derived from these; `index` and `term` belong to the entry.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.record.record import MAGIC_V1, TOPIC_LENGTH_MAX_V2
from commitlog.record.rows import FIELD_TYPES
from pipeline.columns.times import milliseconds
from pipeline.common.errors import PipelineError
from store.model.sys_flag import BORN_HOST_IPV6, HOST_MASK, STORE_HOST_IPV6

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD_COLUMNS: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "body",
    "bornTimestamp",
    "storeTimestamp",
    "physicalOffset",
    "sysFlag",
    "flag",
    "reconsumeTimes",
    "bornHost",
    "storeHost",
    "preparedTransactionOffset",
    "bodyCrc",
    "magic",
    "propertiesRaw",
)
# A client's time may be out of the range of `bornTimestamp`.
BORN_MS: Final = "bornTimestampMs"
_LENGTHS_SIZE: Final = 2
_INTEGERS: Final = {
    "magic": "magic",
    "body_crc": "bodyCrc",
    "queue_id": "queueId",
    "flag": "flag",
    "queue_offset": "queueOffset",
    "physical_offset": "physicalOffset",
    "sys_flag": "sysFlag",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
}


class NotLossless(PipelineError):
    """Columns that are required to rebuild records are missing or contain nulls."""


def missing_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of `RECORD_COLUMNS` that a frame lacks."""
    return [name for name in RECORD_COLUMNS if name not in schema.names]


def build_records(batch: pa.RecordBatch) -> pa.Array:
    """Return the records of a batch, one per row, as in the log.

    Args:
        batch: lossless; the total size of its records is less than 2 GiB.

    Raises:
        NotLossless: the batch is not lossless.
    """
    if missing := missing_columns(batch.schema):
        remedy = "Write it with these columns: option columns of the source"
        raise NotLossless("frame", f"the columns {', '.join(missing)}", f"only {batch.schema.names}", remedy)
    for name in RECORD_COLUMNS:
        if batch.column(name).null_count and not (name == "bornTimestamp" and BORN_MS in batch.schema.names):
            remedy = f"Leave {name!r} as the source gave it"
            raise NotLossless(f"column {name!r}", "a value in each row", "null", remedy)
    kinds = _integers(batch, "sysFlag") & HOST_MASK
    found = np.unique(kinds)
    if len(found) <= 1:
        return _build(batch, int(found[0]) if len(found) else 0)
    rows = [np.flatnonzero(kinds == kind) for kind in found]
    parts = [_build(batch.take(pa.array(places)), int(kind)) for kind, places in zip(found, rows, strict=True)]
    order = np.argsort(np.concatenate(rows), kind="stable")
    return pc.take(pa.concat_arrays(parts), pa.array(order))


def _build(batch: pa.RecordBatch, kind: int) -> pa.Array:
    """Return the records of a batch whose hosts are of one kind."""
    body, properties = _bytes(batch.column("body")), _bytes(batch.column("propertiesRaw"))
    topics = _topics(batch.column("topic"), _integers(batch, "magic"))
    body_sizes, properties_sizes = _sizes(body), _sizes(properties)
    fields = np.empty(batch.num_rows, FIELD_TYPES[kind])
    fields["size"] = fields.itemsize + body_sizes + _sizes(topics) + _LENGTHS_SIZE + properties_sizes
    for field, column in _INTEGERS.items():
        fields[field] = _integers(batch, column)
    fields["born_timestamp"] = _born_ms(batch)
    fields["store_timestamp"] = milliseconds(batch.column("storeTimestamp"))
    for field, column, ipv6 in (
        ("born_host", "bornHost", BORN_HOST_IPV6),
        ("store_host", "storeHost", STORE_HOST_IPV6),
    ):
        fields[field] = _hosts(batch.column(column), fields.dtype[field], is_ipv6=bool(kind & ipv6))
    fields["body_size"] = body_sizes
    lengths = properties_sizes.astype(">i2")
    return pc.binary_join_element_wise(_cells(fields), body, topics, _cells(lengths), properties, b"")


def _integers(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False))


def _born_ms(batch: pa.RecordBatch) -> NDArray[Any]:
    return _integers(batch, BORN_MS) if BORN_MS in batch.schema.names else milliseconds(batch.column("bornTimestamp"))


def _bytes(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _sizes(column: pa.Array) -> NDArray[np.int32]:
    return np.asarray(pc.binary_length(column).to_numpy(zero_copy_only=False))


def _cells(values: NDArray[Any]) -> pa.Array:
    """Return each value's bytes."""
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())]).cast(pa.binary())


def _topics(column: pa.Array, magics: NDArray[Any]) -> pa.Array:
    """Return topics prefixed by their lengths: one byte in V1, two in V2."""
    known = pc.dictionary_encode(column.cast(pa.string()))
    names = [name.encode() for name in known.dictionary.to_pylist()]
    for name in names:
        if len(name) > TOPIC_LENGTH_MAX_V2:
            raise NotLossless(
                "column 'topic'", "names that a record can hold", f"{len(name)} bytes", "Correct the frame"
            )
    is_v1 = magics == MAGIC_V1
    forms = [
        pa.array([len(name).to_bytes(size, "big", signed=False)[-size:] + name for name in names], pa.binary())
        if all(len(name) < 1 << 8 * size for name in names)
        else None
        for size in (1, 2)
    ]
    if is_v1.all() and forms[0] is not None:
        return pc.take(forms[0], known.indices)
    if not is_v1.any() or forms[0] is None:
        return pc.take(forms[1], known.indices)
    return pc.if_else(pa.array(is_v1), pc.take(forms[0], known.indices), pc.take(forms[1], known.indices))


def _hosts(column: pa.Array, kind: np.dtype[Any], *, is_ipv6: bool) -> NDArray[Any]:
    known = pc.dictionary_encode(column.cast(pa.string()))
    raw = b"".join(_host_bytes(text, is_ipv6=is_ipv6) for text in known.dictionary.to_pylist())
    return np.frombuffer(raw, kind)[known.indices.to_numpy()] if raw else np.empty(0, kind)


def _host_bytes(text: str, *, is_ipv6: bool) -> bytes:
    address, _, port = text.rpartition(":")
    try:
        packed = IPv6Address(address.strip("[]")).packed if is_ipv6 else IPv4Address(address).packed
        return packed + int(port).to_bytes(4, "big", signed=True)
    except ValueError:
        expected = "[address]:port of IPv6" if is_ipv6 else "address:port of IPv4"
        raise NotLossless("a host", f"{expected}, as sysFlag says", repr(text), "Correct the frame") from None

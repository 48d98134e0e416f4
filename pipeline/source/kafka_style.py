"""The columns of Kafka's connector, computed from the native ones: to port a job, change only the format name.

| Kafka | here |
| --- | --- |
| `key` | KEYS of the message, separated by blanks; null if there are none |
| `value` | the body |
| `topic`, `partition`, `offset` | topic, queue id, queue offset |
| `timestamp`, `timestampType` | the store timestamp; always 1 (log append time) |
| `headers` | the properties; only with `includeHeaders=true` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_LOG_APPEND_TIME: Final = 1


def _headers(maps: pa.Array) -> pa.Array:
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], ["key", "value"])
    found = pa.ListArray.from_arrays(maps.offsets, pairs)
    return found if not maps.null_count else pc.if_else(pc.is_valid(maps), found, pa.scalar(None, _HEADERS))


# Kafka's column -> (its Spark type, the native columns, the conversion).
COLUMNS: Final[dict[str, tuple[str, str, Callable[[pa.Array], pa.Array]]]] = {
    "key": ("binary", "keys", lambda keys: keys.cast(pa.binary())),
    "value": ("binary", "body", lambda body: body),
    "topic": ("string", "topic", lambda topic: topic),
    "partition": ("int", "queueId", lambda queue_id: queue_id),
    "offset": ("bigint", "queueOffset", lambda offset: offset),
    "timestamp": ("timestamp", "storeTimestamp", lambda moment: moment),
    "timestampType": ("int", "queueId", lambda one: pa.repeat(pa.scalar(_LOG_APPEND_TIME, pa.int32()), len(one))),
    "headers": ("array<struct<key:string,value:binary>>", "properties", _headers),
}


def ddl(*, has_headers: bool) -> str:
    """Return the schema as Spark DDL."""
    names = [name for name in COLUMNS if has_headers or name != "headers"]
    return ", ".join(f"`{name}` {COLUMNS[name][0]}" for name in names)


def native_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the native columns that these columns need."""
    return tuple(dict.fromkeys(COLUMNS[name][1] for name in names))


def convert(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[pa.Array]:
    """Convert a batch of native columns to Kafka's columns."""
    return [COLUMNS[name][2](batch.column(COLUMNS[name][1])) for name in names]

"""The columns of Kafka's connector, made of ours: a job ports by changing the line that names the format.

| Kafka | here |
| --- | --- |
| `key` | KEYS of the message, all of them with blanks between; null without |
| `value` | the body |
| `topic`, `partition`, `offset` | topic, queue, offset in the queue |
| `timestamp`, `timestampType` | when the broker stored it; always 1 (log append time) |
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


# Kafka's column -> (its type in Spark's words, ours, how it is made of ours).
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
    """Return the schema in Spark's words."""
    names = [name for name in COLUMNS if has_headers or name != "headers"]
    return ", ".join(f"`{name}` {COLUMNS[name][0]}" for name in names)


def native_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the native columns that these are made of."""
    return tuple(dict.fromkeys(COLUMNS[name][1] for name in names))


def convert(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[pa.Array]:
    """Return Kafka's columns of a batch of native ones."""
    return [COLUMNS[name][2](batch.column(COLUMNS[name][1])) for name in names]

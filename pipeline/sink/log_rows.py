"""Converts rows of a data frame to messages of the log.

| column | type | meaning |
| --- | --- | --- |
| `body` | binary or string | the payload; required, never null |
| `topic` | string | required unless the option `topic` sets the topic of all rows; the option has precedence |
| `tags` | string | the tag |
| `keys` | string, or array of strings | keys for queries; in a string, separated by blanks |
| `properties` | map of strings | further properties; TAGS and KEYS are used if there is no column for them |
| `queueId` | integer | the queue of the message |
| `shardingKey` | string | rows with the same key go to the same queue, in order; `queueId` has precedence |
| `flag` | integer | 32 bits for the client's use |
| `bornTimestamp` | timestamp | creation time of the message; default: when the row is written |

The UNIQ_KEY is made from the position of a row (`unique_key_head`), so a retried task gives its rows the same keys.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cluster.client.producer.batch import Encoded
from cluster.client.producer.outgoing import BODY_SIZE_MAX
from commitlog.record.properties import encode_properties
from pipeline.common.errors import PipelineError
from store.errors import IllegalMessage
from store.model.message import KEYS, TAGS, UNIQUE_KEY
from store.model.topics import check_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_HEAD_BYTES: Final = 12
_ROW_END: Final = 1 << 32
_FLAG_END: Final = 1 << 31
# Texts with this many characters are below the limit for properties in any encoding to UTF-8.
_SURELY_SMALL: Final = 8_000
_TEXT: Final = "string"
_WHOLE: Final = "integer"
_TYPES: Final = {
    "body": "binary or string",
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": "string or array of strings",
    "properties": "map of strings",
    "queueId": _WHOLE,
    "shardingKey": _TEXT,
    "flag": _WHOLE,
    "bornTimestamp": "timestamp",
}


class UnfitFrame(PipelineError):
    """The columns or a row of a data frame cannot be converted to messages."""


class OutgoingRow(NamedTuple):
    """One row, ready to be sent.

    Attributes:
        topic: of the message.
        queue_id: the queue in the row; None: any.
        sharding_key: determines the queue; None: any.
        unique_key: its UNIQ_KEY.
        message: the message to store.
        row: number of the row in its partition.
    """

    topic: str
    queue_id: int | None
    sharding_key: str | None
    unique_key: str
    message: Encoded
    row: int


def unique_key_head(write_id: str, batch_id: int, partition: int) -> str:
    """Return the prefix of the UNIQ_KEYs of one partition of one batch; 8 digits of the row's number follow.

    Args:
        write_id: of the query, or of the batch write.
        batch_id: of the query's batch; 0 in a batch write.
        partition: number of the task's partition.
    """
    origin = f"{write_id}\0{batch_id}\0{partition}".encode()
    return hashlib.blake2b(origin, digest_size=_HEAD_BYTES).hexdigest().upper()


def check_schema(schema: pa.Schema, topic: str | None) -> None:
    """Check the columns of a frame.

    Args:
        schema: of the frame.
        topic: of all rows; None: the column `topic` is used.

    Raises:
        UnfitFrame: a column is missing, unknown, or has another type.
    """
    for field in schema:
        if field.name not in _TYPES:
            remedy = f"Leave it out: select({', '.join(repr(name) for name in schema.names if name in _TYPES)})"
            raise UnfitFrame(f"column {field.name!r}", f"one of {', '.join(_TYPES)}", "no such column to write", remedy)
        if not _fits(field.name, field.type):
            remedy = f"Cast the column {field.name!r}"
            raise UnfitFrame(f"column {field.name!r}", _TYPES[field.name], str(field.type), remedy)
    if "body" not in schema.names:
        raise UnfitFrame("column 'body'", "the payload, binary or string", f"only {schema.names}", "Add the column")
    if topic is None and "topic" not in schema.names:
        remedy = "Add the column, or name one topic for all rows with the option 'topic'"
        raise UnfitFrame("column 'topic'", "the topic of each row", f"only {schema.names}", remedy)


class RowEncoder:
    """Converts the batches of one partition to messages.

    Args:
        key_head: see `unique_key_head`.
        topic: of all rows; None: the column `topic` is used.
    """

    def __init__(self, key_head: str, topic: str | None) -> None:
        self._key_head = key_head
        self._topic = topic
        self._row = 0
        self._checked_topics: set[str] = set()

    def rows(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
        """Yield the messages of the partition's next rows.

        Raises: UnfitFrame: a row cannot be stored; the rows before it were yielded.
        """
        check_schema(batch.schema, self._topic)
        now_ms = time.time_ns() // 1_000_000
        columns = {name: _values(name, batch.column(name)) for name in batch.schema.names}
        nothing: Sequence[Any] = [None] * batch.num_rows
        topics = nothing if self._topic is not None else columns["topic"]
        wanted = (columns.get(name, nothing) for name in list(_TYPES)[2:])
        for body, topic, tags, keys, more, queue_id, sharding_key, flag, born in zip(
            columns["body"], topics, *wanted, strict=True
        ):
            unique_key = self._next_key()
            try:
                named = self._checked_topic(topic)
                properties = _properties(unique_key, tags, keys, more)
                _check_body(body)
                _check_flag(flag)
            except IllegalMessage as fault:
                raise self._unfit(fault.field, fault.expected, fault.found) from None
            message = Encoded(body, properties, flag or 0, 0, now_ms if born is None else born)
            yield OutgoingRow(named, queue_id, sharding_key, unique_key, message, self._row - 1)

    def _next_key(self) -> str:
        row = self._row
        if row == _ROW_END:
            raise UnfitFrame("partition", f"at most {_ROW_END} rows", "more", "Repartition the frame")
        self._row = row + 1
        return f"{self._key_head}{row:08X}"

    def _checked_topic(self, topic: str | None) -> str:
        name = self._topic if self._topic is not None else topic
        if name is None:
            raise IllegalMessage("topic", "the topic's name", "null")
        if name not in self._checked_topics:
            check_topic(name)
            self._checked_topics.add(name)
        return name

    def _unfit(self, field: str, expected: str, found: str) -> UnfitFrame:
        what = f"{field} of row {self._row - 1} of a partition"
        return UnfitFrame(
            what, expected, found, "Correct the row or filter it out; rows before it may be stored already"
        )


def _fits(name: str, kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if name == "body":
        return bool(is_text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    if name == "keys":
        return bool(is_text or (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)))
    if name == "properties":
        return bool(pa.types.is_map(kind) and pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type))
    if name == "bornTimestamp":
        return bool(pa.types.is_timestamp(kind))
    return bool(is_text if _TYPES[name] == _TEXT else pa.types.is_integer(kind))


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    if name == "body" and not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    if name == "bornTimestamp":
        return list(pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def _check_body(body: bytes | None) -> None:
    if body is None:
        raise IllegalMessage("body", "the payload", "null")
    if len(body) > BODY_SIZE_MAX:
        raise IllegalMessage("body", f"at most {BODY_SIZE_MAX} bytes", f"{len(body)}")


def _check_flag(flag: int | None) -> None:
    if flag is not None and not -_FLAG_END <= flag < _FLAG_END:
        raise IllegalMessage("flag", "32 bits, signed", str(flag))


def _words(keys: str | Sequence[str | None] | None) -> str:
    return (keys or "") if keys is None or isinstance(keys, str) else " ".join(filter(None, keys))


def _properties(
    unique_key: str,
    tags: str | None,
    keys: str | Sequence[str] | None,
    more: Sequence[tuple[str, str | None]] | Mapping[str, str | None] | None,
) -> bytes:
    if not more:
        # Fast path for most rows, without a dictionary.
        text = f"{UNIQUE_KEY}\x01{unique_key}\x02"
        if tags:
            text += f"{TAGS}\x01{tags}\x02"
        words = _words(keys)
        if words:
            text += f"{KEYS}\x01{words}\x02"
        is_plain = text.count("\x01") == text.count("\x02") == 1 + bool(tags) + bool(words)
        if is_plain and len(text) < _SURELY_SMALL:
            return text.encode()
    properties = {UNIQUE_KEY: unique_key}
    if tags:
        properties[TAGS] = tags
    if words := _words(keys):
        properties[KEYS] = words
    for name, value in dict(more or ()).items():
        if value is not None:
            properties.setdefault(name, value)
    return encode_properties(properties)

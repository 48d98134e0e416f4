"""The columns of a message: one table of names and types, from which the schemas of Arrow and Spark are derived.

All header fields of a record have a column, so that a record can be rebuilt byte for byte, with the optional columns
`magic` and `propertiesRaw`; `properties` is derived from the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from pipeline.common.errors import UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Sequence


class Column(NamedTuple):
    """One column.

    Attributes:
        name: for users.
        type: in Arrow.
        ddl: the same type in Spark's DDL.
        is_optional: present only on request.
    """

    name: str
    type: pa.DataType
    ddl: str
    is_optional: bool = False


_TEXT: Final = (pa.string(), "string")
_INT: Final = (pa.int32(), "int")
_LONG: Final = (pa.int64(), "bigint")
_BYTES: Final = (pa.binary(), "binary")
_TIME: Final = (pa.timestamp("us", "UTC"), "timestamp")
_MAP: Final = (pa.map_(pa.string(), pa.string()), "map<string,string>")

NATIVE: Final = (
    Column("topic", *_TEXT),
    Column("queueId", *_INT),
    Column("queueOffset", *_LONG),
    Column("body", *_BYTES),
    Column("tags", *_TEXT),
    Column("keys", *_TEXT),
    Column("uniqKey", *_TEXT),
    Column("properties", *_MAP),
    Column("bornTimestamp", *_TIME),
    Column("storeTimestamp", *_TIME),
    Column("physicalOffset", *_LONG),
    Column("index", *_LONG),
    Column("term", *_LONG),
    Column("sysFlag", *_INT),
    Column("flag", *_INT),
    Column("reconsumeTimes", *_INT),
    Column("bornHost", *_TEXT),
    Column("storeHost", *_TEXT),
    Column("preparedTransactionOffset", *_LONG),
    Column("bodyCrc", *_INT),
    Column("bodySize", *_INT),
    Column("storeSize", *_INT),
    Column("magic", *_INT, is_optional=True),
    Column("propertiesRaw", *_BYTES, is_optional=True),
    # The raw field: `bornTimestamp` is null if a client's time is out of range for microseconds.
    Column("bornTimestampMs", *_LONG, is_optional=True),
)
# Computed from other columns, and never stored (`pipeline.columns.waiting`); only on request, and not in `*`.
DERIVED: Final = (
    Column("waitKind", *_TEXT, is_optional=True),
    Column("realTopic", *_TEXT, is_optional=True),
    Column("realQueueId", *_INT, is_optional=True),
    Column("deliverAt", *_TIME, is_optional=True),
)
DERIVED_NAMES: Final = tuple(column.name for column in DERIVED)
DEFAULT_NAMES: Final = tuple(column.name for column in NATIVE if not column.is_optional)
ALL_NAMES: Final = tuple(column.name for column in NATIVE)
_BY_NAME: Final = {column.name: column for column in (*NATIVE, *DERIVED)}


def chosen(names: Sequence[str]) -> list[Column]:
    """Return the columns of these names, in order.

    Raises:
        pipeline.common.errors.UnknownColumn: there is none of that name.
    """
    for name in names:
        if name not in _BY_NAME:
            raise UnknownColumn(name, (*ALL_NAMES, *DERIVED_NAMES))
    return [_BY_NAME[name] for name in names]


def arrow_schema(names: Sequence[str] = DEFAULT_NAMES) -> pa.Schema:
    """Return the schema of batches with these columns; raises as `chosen`."""
    return pa.schema([pa.field(column.name, column.type) for column in chosen(names)])


def spark_ddl(names: Sequence[str] = DEFAULT_NAMES) -> str:
    """Return the same schema in Spark's DDL; raises as `chosen`."""
    return ", ".join(f"`{column.name}` {column.ddl}" for column in chosen(names))

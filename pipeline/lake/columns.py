"""The columns of a lake: the permitted types, and the comparison with a frame's columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pipeline.common.errors import PipelineError


class UnfitSchema(PipelineError):
    """The columns of a frame differ from those of the lake."""


def check_columns(root: str, known: pa.Schema, schema: pa.Schema) -> None:
    """Check that a frame has the columns of a lake.

    Args:
        root: of the lake, for the error.
        known: the lake's columns.
        schema: of the frame.

    Raises:
        UnfitSchema: they differ.
    """
    has, wants = [[(field.name, str(field.type)) for field in each] for each in (known, schema)]
    if wants == has:
        return
    only_known = [f"{name} {kind}" for name, kind in has if (name, kind) not in wants]
    only_given = [f"{name} {kind}" for name, kind in wants if (name, kind) not in has]
    expected = f"the columns with which it was created: {', '.join(only_known) or 'these in another order'}"
    remedy = "Select the same columns in the same order, or write to another directory"
    raise UnfitSchema(f"lake {root}", expected, ", ".join(only_given) or "another order", remedy)


_TYPES: Final = frozenset(
    str(kind)
    for kind in (
        pa.string(),
        pa.binary(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.list_(pa.string()),
        pa.map_(pa.string(), pa.string()),
    )
)
# Values of partitions.
_RESERVED: Final = ("date", "log")


def check_types(schema: pa.Schema) -> None:
    """Check that a lake supports the names and types of these columns.

    Raises:
        UnfitSchema: it does not.
    """
    for field in schema:
        if field.name in _RESERVED:
            remedy = "Give it another name"
            raise UnfitSchema(f"column {field.name!r}", "a name that is not that of a partition", "it", remedy)
        if str(field.type) not in _TYPES:
            expected = f"one of the types {', '.join(sorted(_TYPES))}"
            remedy = "Cast the column, or leave it out"
            raise UnfitSchema(f"column {field.name!r}", expected, str(field.type), remedy)

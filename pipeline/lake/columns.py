"""The columns of a lake: the permitted types, and the comparison with a frame's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pipeline.common.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Sequence


class UnfitSchema(PipelineError):
    """The columns of a frame differ from those of the lake."""


def check_columns(root: str, known: Sequence[Sequence[str]], schema: pa.Schema) -> None:
    """Check that a frame has the columns of a lake.

    Args:
        root: of the lake, for the error.
        known: name and type of each of the lake's columns.
        schema: of the frame.

    Raises:
        UnfitSchema: they differ.
    """
    given = [[field.name, str(field.type)] for field in schema]
    if given == [list(each) for each in known]:
        return
    only_known = [f"{name} {kind}" for name, kind in known if [name, kind] not in given]
    only_given = [f"{name} {kind}" for name, kind in given if [name, kind] not in [list(each) for each in known]]
    expected = f"the columns with which it was created: {', '.join(only_known) or 'these in another order'}"
    remedy = "Select the same columns in the same order, or write to another directory"
    raise UnfitSchema(f"lake {root}", expected, ", ".join(only_given) or "another order", remedy)


_TYPES: Final = {
    str(kind): kind
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
}


def type_of(text: str) -> pa.DataType:
    """Return the type with this name (the result of `str`)."""
    return _TYPES[text]


def check_types(schema: pa.Schema) -> None:
    """Check that a lake supports the types of these columns.

    Raises:
        UnfitSchema: it does not.
    """
    for field in schema:
        if str(field.type) not in _TYPES:
            expected = f"one of the types {', '.join(_TYPES)}"
            remedy = "Cast the column, or leave it out"
            raise UnfitSchema(f"column {field.name!r}", expected, str(field.type), remedy)

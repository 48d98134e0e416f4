"""The NumPy type of the layout of a `struct.Struct`, so that each layout is defined once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import struct
    from collections.abc import Iterator, Sequence

_FIELD = re.compile(r"(\d*)([iIqs])")
_TYPES = {"i": ">i4", "I": ">u4", "q": ">i8"}


def numpy_type(layout: struct.Struct, names: Sequence[str]) -> np.dtype[np.void]:
    """Return the type whose fields are those of a big-endian layout.

    Args:
        layout: of the codes i, I, q, and s for bytes.
        names: of its fields, in their order.
    """
    assert layout.format.startswith(">"), layout.format
    found = np.dtype(list(zip(names, _types(layout.format[1:]), strict=True)))
    assert found.itemsize == layout.size, (layout.format, names)
    return found


def _types(codes: str) -> Iterator[str]:
    for count, code in _FIELD.findall(codes):
        if code == "s":
            # Raw bytes, because NumPy's strings lose trailing zeros.
            yield f"V{count or 1}"
        else:
            yield from [_TYPES[code]] * int(count or 1)

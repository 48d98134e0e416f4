"""Properties of many messages as Arrow columns: all of them as a map, or the value of one.

The usual form is split with NumPy and Arrow: each property has a non-empty name and value, one 0x01 between them and
0x02 after, is UTF-8 without a zero, and no name is repeated. Any other batch, or one with hundreds of names, is read
message by message with `commitlog.record.properties.decode_properties`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commitlog.record.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, decode_properties

if TYPE_CHECKING:
    from commitlog.record.rows import Bytes

Int32s = NDArray[np.int32]

# Not `pa.array([])`, which loads pandas if it is installed.
_NO_TEXTS: Final = pa.nulls(0, pa.string())
_MAP: Final = pa.map_(pa.string(), pa.string())
_END: Final = ord(PROPERTY_SEPARATOR)
_PAIR: Final = np.frombuffer(f"{NAME_VALUE_SEPARATOR}{PROPERTY_SEPARATOR}".encode(), np.uint16)
# A batch with more names is read message by message, because the table of all would be large.
_NAMES_MAX: Final = 256
# Number of texts and separators of one property: name, 0x01, value, 0x02.
_TEXTS, _VALUE = 4, 2


class PropertyColumns:
    """The properties of a batch of messages.

    Args:
        raw: the stored properties: a binary array without nulls that begins at its buffer's first byte.
    """

    def __init__(self, raw: pa.Array) -> None:
        self._raw = raw
        self._parts = _split_properties(raw)

    def maps(self) -> pa.Array:
        """Return names and values of each message, as a map."""
        parts = self._parts
        if parts is None:
            return pa.array([list(row.items()) for row in self._decoded], _MAP)
        return pa.MapArray.from_arrays(
            pa.array(parts.firsts), parts.names, parts.values(np.arange(len(parts.names), dtype=np.int32))
        )

    def values(self, name: str) -> pa.Array:
        """Return the value of one property of each message; null if it has none."""
        parts = self._parts
        if parts is None:
            return pa.array([row.get(name) for row in self._decoded], pa.string())
        places = parts.places_of(name)
        if places is None:
            return pa.nulls(len(self._raw), pa.string())
        is_missing = places < 0
        return parts.values(np.maximum(places, 0), is_missing) if is_missing.any() else parts.values(places)

    @cached_property
    def _decoded(self) -> list[dict[str, str]]:
        return [decode_properties(raw) for raw in self._raw.to_pylist()]


@dataclass
class _Parts:
    """All properties of a batch, contiguous.

    Attributes:
        texts: name, separator, value, separator of the first property, then of the next.
        firsts: the first property of each message, and after the last one.
        names: of the properties.
    """

    texts: pa.Array
    firsts: Int32s
    names: pa.Array

    def values(self, places: Int32s, is_missing: NDArray[np.bool_] | None = None) -> pa.Array:
        """Return the values of these properties."""
        return _take(self.texts, _TEXTS * places + np.int32(_VALUE), is_missing)

    def places_of(self, name: str) -> Int32s | None:
        """Return the position of a named property in each message; -1: not in that message; None: in no message."""
        if self.pattern is not None:
            if name not in self.pattern:
                return None
            return np.arange(self.pattern.index(name), len(self.names), len(self.pattern), dtype=np.int32)
        number = self._known.dictionary.index(name).as_py()
        return None if number < 0 else self._places[:, number]

    def is_readable(self) -> bool:
        """Return whether no message repeats a name, and the number of names is within the limit."""
        if self.pattern is not None:
            return len(set(self.pattern)) == len(self.pattern)
        if len(self._known.dictionary) > _NAMES_MAX:
            return False
        return bool(np.count_nonzero(self._places >= 0) == len(self.names))

    @cached_property
    def pattern(self) -> list[str] | None:
        """The names of every message, if all have the same names in the same order, as those of one program do."""
        counts = np.diff(self.firsts)
        if not len(self.names) or (counts != counts[0]).any():
            return None
        width = int(counts[0])
        _, offsets, data = self.names.buffers()
        borders = np.frombuffer(offsets, np.int32, len(self.names) + 1)
        size = int(borders[width])
        content = np.frombuffer(data, np.uint8, int(borders[-1]))
        # If each message equals the previous one, all are equal.
        is_same = (borders[width:] - borders[:-width] == size).all() and (content[size:] == content[:-size]).all()
        return list(self.names[:width].to_pylist()) if is_same else None

    @cached_property
    def _places(self) -> Int32s:
        """The property of each message (rows) with each of the known names (columns); -1: none."""
        places = np.full((len(self.firsts) - 1, len(self._known.dictionary)), -1, np.int32)
        rows = np.repeat(np.arange(len(places)), np.diff(self.firsts))
        places[rows, self._known.indices.to_numpy()] = np.arange(len(self.names), dtype=np.int32)
        return places

    @cached_property
    def _known(self) -> pa.DictionaryArray:
        return self.names.dictionary_encode()


def _split_properties(raw: pa.Array) -> _Parts | None:
    """Return the properties; None if they do not have the usual form."""
    raw = _with_last_separators(raw)
    offsets, content = _buffers(raw)
    if not len(content):
        return _Parts(_NO_TEXTS, np.zeros_like(offsets), _NO_TEXTS)
    # Lower values are not separators, but must not occur.
    separators = np.flatnonzero(content <= _END)
    if len(separators) % 2 or not (content[separators].view(np.uint16) == _PAIR).all():
        return None
    if not separators[0] or not (np.diff(separators) > 1).all() or not _is_utf8(raw, content):
        return None
    borders = np.zeros(2 * len(separators) + 1, np.int32)
    ends = borders[1:].reshape(-1, 2)
    ends[:, 0] = ends[:, 1] = separators
    ends[:, 1] += 1
    texts = pa.Array.from_buffers(pa.string(), len(borders) - 1, [None, pa.py_buffer(borders), pa.py_buffer(content)])
    firsts = _firsts(borders[::_TEXTS], offsets)
    names = _take(texts, np.arange(0, len(texts), _TEXTS, dtype=np.int32))
    parts = _Parts(texts, firsts, names)
    return parts if parts.is_readable() else None


def _firsts(begins: Int32s, offsets: Int32s) -> Int32s:
    """Return the first property of each message; each message begins with one, or is empty."""
    width = (len(begins) - 1) // (len(offsets) - 1)
    if width and len(begins) == width * (len(offsets) - 1) + 1 and (begins[::width] == offsets).all():
        return np.arange(0, len(begins), width, dtype=np.int32)
    return np.searchsorted(begins, offsets).astype(np.int32)


def _with_last_separators(raw: pa.Array) -> pa.Array:
    """Return the properties of each message with 0x02 at the end, which some versions of RocketMQ omit."""
    offsets, content = _buffers(raw)
    ends = offsets[1:]
    is_cut = (np.diff(offsets) > 0) & (content[ends - 1] != _END) if len(content) else np.zeros(0, np.bool_)
    if not is_cut.any():
        return raw
    ending = pc.if_else(pa.array(is_cut), PROPERTY_SEPARATOR.encode(), b"")
    return pc.binary_join_element_wise(raw, ending, b"")


def _buffers(raw: pa.Array) -> tuple[Int32s, Bytes]:
    """Return the offsets of binary values, and the bytes of all."""
    if not len(raw):
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    _, offsets, data = raw.buffers()
    borders = np.frombuffer(offsets, np.int32, len(raw) + 1)
    size = int(borders[-1])
    return borders, np.frombuffer(data, np.uint8, size) if size else np.empty(0, np.uint8)


def _is_utf8(raw: pa.Array, content: Bytes) -> bool:
    if content.max() < 0x80:
        return True
    try:
        # Valid per message implies valid per property, because a separator is never inside a character.
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _take(texts: pa.Array, places: Int32s, is_missing: NDArray[np.bool_] | None = None) -> pa.Array:
    indices: Any = pa.array(places, mask=is_missing)
    return pc.take(texts, indices, boundscheck=False)

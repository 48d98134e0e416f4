"""The compact and unique encoding of numbers and texts in broker state.

| what | bytes |
| --- | --- |
| number from 0 to 2^64 - 1 | 7 bits per byte, lowest first; the highest bit marks continuation; minimal length |
| text | its length in bytes as a number, then UTF-8 |
| raw bytes | their length as a number, then the bytes |
| pairs of texts | their count as a number, then name and value of each |

ADR 71 has the reasons, and a comparison with protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MORE: Final = 0x80
_NUMBER_BYTES_MAX: Final = 10
_NUMBER_END: Final = 1 << 64
# Bytes that are read in one step of a stepwise decoder: some 1,000 items, a few milliseconds.
PIECE_SIZE_BYTES: Final = 8 << 10


class Unreadable(StoreError):
    """Bytes of broker state are invalid, or of an unknown version. The node must stop."""

    def __init__(self, what: str, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"{what}: expected {expected} at byte {position}, found {found}. The node must stop, because it would "
            "diverge from its group; start it with the version of the program that its leader runs"
        )
        self.position = position


class Writer:
    """Appends to `data`."""

    __slots__ = ("data",)

    def __init__(self, head: bytes = b"") -> None:
        self.data = bytearray(head)

    def number(self, value: int) -> None:
        """Append a number."""
        assert 0 <= value < _NUMBER_END, value
        while value >= _MORE:
            self.data.append(value & 0x7F | _MORE)
            value >>= 7
        self.data.append(value)

    def text(self, value: str) -> None:
        """Append a text."""
        raw = value.encode()
        self.number(len(raw))
        self.data += raw

    def raw(self, value: bytes) -> None:
        """Append raw bytes."""
        self.number(len(value))
        self.data += value

    def pairs(self, values: Sequence[tuple[str, str]]) -> None:
        """Append pairs of texts."""
        self.number(len(values))
        for name, value in values:
            self.text(name)
            self.text(value)


class Reader:
    """Reads the output of a `Writer`.

    Args:
        data: the bytes.
        what: description of the data for errors.
        position: position of the first read.
    """

    __slots__ = ("_data", "_piece_end", "_what", "position")

    def __init__(self, data: bytes, what: str, position: int = 0) -> None:
        self._data = data
        self._what = what
        self._piece_end = position + PIECE_SIZE_BYTES
        self.position = position

    def ends_piece(self) -> bool:
        """Return whether `PIECE_SIZE_BYTES` were read since this last returned True; the caller should then yield."""
        if self.position < self._piece_end:
            return False
        self._piece_end = self.position + PIECE_SIZE_BYTES
        return True

    def number(self) -> int:
        """Read a number.

        Raises:
            Unreadable: there is none, or its encoding is not minimal.
        """
        begin, value, shift = self.position, 0, 0
        if begin < len(self._data) and (byte := self._data[begin]) < _MORE:
            self.position = begin + 1
            return byte
        for byte in self._data[begin : begin + _NUMBER_BYTES_MAX]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < _MORE:
                if value >= _NUMBER_END or (byte == 0 and shift > 7):
                    break
                self.position = begin + shift // 7
                return value
        raise self.fault("a number", bytes(self._data[begin : begin + _NUMBER_BYTES_MAX]).hex(" ") or "the end", begin)

    def number_up_to(self, maximum: int, what: str, minimum: int = 0) -> int:
        """Read a number from `minimum` to `maximum`.

        Raises:
            Unreadable: there is none, or it is out of range, as in a newer version.
        """
        begin, value = self.position, self.number()
        if not minimum <= value <= maximum:
            raise self.fault(f"{what}: {minimum} to {maximum}", str(value), begin)
        return value

    def count(self) -> int:
        """Read the number of following items, each of at least one byte.

        Raises:
            Unreadable: there is no number, or an impossible one.
        """
        begin, value = self.position, self.number()
        left = len(self._data) - self.position
        if value > left:
            raise self.fault(f"at most {left} items", str(value), begin)
        return value

    def text(self) -> str:
        """Read a text.

        Raises:
            Unreadable: there is none.
        """
        length = self.count()
        begin = self.position
        self.position += length
        try:
            return str(self._data[begin : self.position], "utf-8")
        except UnicodeDecodeError as error:
            raise self.fault("UTF-8", str(error), begin) from error

    def raw(self) -> bytes:
        """Read raw bytes.

        Raises:
            Unreadable: there are none.
        """
        length = self.count()
        begin = self.position
        self.position += length
        return bytes(self._data[begin : self.position])

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Read pairs of texts.

        Raises:
            Unreadable: there are none.
        """
        return tuple((self.text(), self.text()) for _ in range(self.count()))

    def end(self) -> None:
        """Check that all bytes were read.

        Raises:
            Unreadable: bytes are left.
        """
        if self.position != len(self._data):
            raise self.fault("the end", f"{len(self._data) - self.position} bytes more")

    def fault(self, expected: str, found: str, position: int | None = None) -> Unreadable:
        """Return the error for unexpected content at a position; None: the current one."""
        return Unreadable(self._what, self.position if position is None else position, expected, found)

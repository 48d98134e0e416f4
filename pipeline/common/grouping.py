"""Joins neighbouring pieces into groups of about one size, each for one task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class Sized(Protocol):
    """What has a size."""

    @property
    def size_bytes(self) -> int:
        """Bytes, about."""
        ...


_Piece = TypeVar("_Piece", bound=Sized)


def grouped(pieces: Iterable[_Piece], size_bytes: int) -> list[list[_Piece]]:
    """Return pieces in groups of about this many bytes, in their order; a larger piece is a group of its own."""
    groups: list[list[_Piece]] = []
    room = 0
    for piece in pieces:
        if piece.size_bytes > room:
            groups.append([])
            room = size_bytes
        groups[-1].append(piece)
        room -= piece.size_bytes
    return groups

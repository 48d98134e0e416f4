"""Joins adjacent pieces into groups of similar size, one per task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class Sized(Protocol):
    """An object with a size."""

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        ...


_Piece = TypeVar("_Piece", bound=Sized)


def grouped(pieces: Iterable[_Piece], size_bytes: int) -> list[list[_Piece]]:
    """Return groups of pieces of about this size, in order; a larger piece is a separate group."""
    groups: list[list[_Piece]] = []
    space = 0
    for piece in pieces:
        if piece.size_bytes > space:
            groups.append([])
            space = size_bytes
        groups[-1].append(piece)
        space -= piece.size_bytes
    return groups

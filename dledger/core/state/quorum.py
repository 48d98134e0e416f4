"""Majorities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def quorum_of(voters: int) -> int:
    """Return the size of a majority of `voters`."""
    return voters // 2 + 1


def majority_value(values: Iterable[int]) -> int:
    """Return the greatest value that a majority of `values` (one per voter) has reached."""
    ordered = sorted(values, reverse=True)
    return ordered[quorum_of(len(ordered)) - 1]

"""Bytes of a log without a readable record, as reported by every reader of a log.

Without NumPy, unlike `store.model.dispatch_batch`, because clients use this module, too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes of the log without a readable record.

    Attributes:
        path: the file.
        position: within the file.
        offset: in the log.
        size: the number of skipped bytes; reading continues after them.
        expected: the expected content.
        found: the actual content.
    """

    path: str
    position: int
    offset: int
    size: int
    expected: str
    found: str

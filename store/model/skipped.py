"""Bytes of a log without a readable record: what every reader of a log reports.

NumPy is not needed here, unlike in `store.model.dispatch_batch`, because clients use this module, too.
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
        expected: what should be there.
        found: what is there.
    """

    path: str
    position: int
    offset: int
    size: int
    expected: str
    found: str

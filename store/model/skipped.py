"""Bytes of a log without a readable record: what every reader of a log reports.

NumPy is not needed here, unlike in `store.model.dispatch_batch`: clients know of what was skipped, too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes of the log that hold no readable record.

    Attributes:
        path: the file.
        position: within the file.
        offset: in the log.
        size: bytes left out; reading continues after them.
        expected: what should be there.
        found: what is there.
    """

    path: str
    position: int
    offset: int
    size: int
    expected: str
    found: str

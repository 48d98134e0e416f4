"""A damaged tail: the last entry of a log is invalid in a way that no power cut can cause (`dledger.entries.tail`).

Not here: the consequences for a node of a group (`dledger.node.lost_vote`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from store.errors import CorruptData

# The size of a truncated tail that is kept for inspection: that of the largest entry.
KEPT_SIZE_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class DamagedTail:
    """The damaged tail that recovery found. The entry was durable, and no valid entry follows it.

    Attributes:
        index: of the first invalid entry.
        log_position: its position in the log.
        path: of its file.
        position: within that file.
        expected: the expected content.
        found: the actual content.
        content: the bytes from `position` on, at most `KEPT_SIZE_BYTES_MAX` bytes.
    """

    index: int
    log_position: int
    path: str
    position: int
    expected: str
    found: str
    content: bytes

    def refusal(self, what_to_do: str = "") -> CorruptData:
        """Return the error for a node or program that must not continue without the entry."""
        found = f"{self.found} (the log's last entry, damaged after it was durable{what_to_do})"
        return CorruptData(self.path, self.position, self.expected, found)


# Called before a damaged tail is cut: returns a description of the measures taken, or raises `DamagedTail.refusal`.
GiveUp = Callable[[DamagedTail], str]


def keep_damaged_tail(damage: DamagedTail) -> str:
    """Refuse to open a log with a damaged tail: for programs that are not nodes of a group."""
    raise damage.refusal()

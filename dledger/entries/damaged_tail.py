"""A damaged tail: the last entry of a log is bad, although no power cut can have left it so (`dledger.entries.tail`).

Not here: the consequences for a node of a group (`dledger.node.lost_vote`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from store.errors import CorruptData

# The part of a cut tail that is kept for inspection: as large as the largest entry.
KEPT_SIZE_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class DamagedTail:
    """The damaged tail that recovery found. The entry was durable once, and no good entry follows it.

    Attributes:
        index: of the first entry that cannot be read.
        log_position: its begin in the log.
        path: of its file.
        position: within that file.
        expected: what should be stored there.
        found: what is stored there.
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
        """Return the error for a node, or a program, that must not continue without the entry."""
        found = f"{self.found} (the log's last entry, damaged after it was durable{what_to_do})"
        return CorruptData(self.path, self.position, self.expected, found)


# Called before a damaged tail is cut: returns, for people, what was done about it, or raises `DamagedTail.refusal`.
GiveUp = Callable[[DamagedTail], str]


def keep_damaged_tail(damage: DamagedTail) -> str:
    """Refuse to open a log with a damaged tail: for programs that are not nodes of a group."""
    raise damage.refusal()

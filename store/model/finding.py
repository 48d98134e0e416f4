"""A finding of a check of stored files: position, expected and actual content, and consequence.

Not here: errors that end an operation (`store.errors`). A check continues after a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from store.fs.printable import printable


class Area(StrEnum):
    """The part of a store that a finding belongs to."""

    FILES = "files"
    LOG = "log"
    ENTRIES = "entries"
    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Finding:
    """Wrong bytes in a file.

    Attributes:
        area: the part of the store.
        path: the file, or the directory.
        position: within the file, in bytes.
        expected: the expected content.
        found: the actual content.
        meaning: the consequence.
        remedy: the next action, as a sentence.
        is_unfinished: a crash or a running program left it, and the next start of the store repairs it; else it is
            damage.
        count: of records, units or items concerned.
        is_accepted: it is damage that an operator has accepted; no action is needed.
    """

    area: Area
    path: str
    position: int
    expected: str
    found: str
    meaning: str
    remedy: str
    is_unfinished: bool = False
    count: int = 1
    is_accepted: bool = False

    def __str__(self) -> str:
        # Names of files and topics may have any characters.
        return printable(
            f"{self.path}: at byte {self.position}: expected {self.expected}, found {self.found}; {self.meaning}. "
            f"{self.remedy}"
        )

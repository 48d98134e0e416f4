"""Settings of the audit log of one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AUDIT_FILE_SIZE_BYTES: Final = 16 << 20
AUDIT_FILES_MAX: Final = 8
AUDIT_KEEP_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is recorded, and where.

    Attributes:
        recorded: off; admin: administration, logins and refusals; all: also calls that read or write messages.
        directory: of the files; empty: `audit` in the directory of the store.
        file_size_bytes: of each file.
        files_max: of each of the three series.
        keep_days: a file that rotation deletes although it has a younger record is reported; 0: none is.
    """

    recorded: str = "admin"
    directory: str = ""
    file_size_bytes: int = AUDIT_FILE_SIZE_BYTES
    files_max: int = AUDIT_FILES_MAX
    keep_days: int = AUDIT_KEEP_DAYS

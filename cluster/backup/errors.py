"""Errors of backups. Each has what was expected and found; none of them means that a log or a group was changed."""

from __future__ import annotations


class BackupError(Exception):
    """Base of all errors of backups."""


class BackupDamaged(BackupError):
    """A file of a backup is missing, or differs from what was written. Nothing was changed.

    Attributes:
        path: the file.
        position: byte position of the damage in the file.
        expected: the expected content.
        found: the actual content.
    """

    def __init__(self, path: str, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: damaged at byte {position}: expected {expected}, found {found}. Nothing was changed. Restore the "
            "file from a copy of the backup, or begin a new backup in an empty folder"
        )
        self.path = path
        self.position = position
        self.expected = expected
        self.found = found


class BackupNotContinued(BackupError):
    """The log cannot be appended to this backup: it is another one, or has not the next entry.

    Attributes:
        expected: of the log, according to the backup.
        found: in the log.
    """

    def __init__(self, path: str, expected: str, found: str, advice: str) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}. Nothing was added. {advice}")
        self.expected = expected
        self.found = found


class NoBackup(BackupError):
    """A folder has no backup, or not the one that is asked for."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}")
        self.expected = expected
        self.found = found

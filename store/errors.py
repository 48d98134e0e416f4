"""Errors of stored files: each has the file, the position, the expected and the actual content.

Every message ends with advice for an operator. `Certainty` is shared by logs and stores. Not here: refusals that are
returned as data (`dledger.errors`).
"""

from __future__ import annotations

from enum import StrEnum


class Certainty(StrEnum):
    """Whether a put or an append was executed, as known from its status or code."""

    APPENDED = "Appended"
    NOT_APPENDED = "NotAppended"
    UNKNOWN = "AppendUnknown"


class StoreError(Exception):
    """Base of all errors of stored files."""


class CorruptData(StoreError):
    """Required bytes are missing or wrong. Nothing was truncated or repaired.

    Attributes:
        path: the file (or directory) with the fault.
        position: byte position of the fault within `path`.
        expected: the expected content.
        found: the actual content.
    """

    def __init__(self, path: str, position: int, expected: str, found: str, advice: str = "") -> None:
        super().__init__(
            f"{path}: corrupt at byte {position}: expected {expected}, found {found}. Nothing was changed. Keep a copy "
            f"of the directory, then restore the files from a backup or from another replica{advice}"
        )
        self.path = path
        self.position = position
        self.expected = expected
        self.found = found


class DiskFull(StoreError):
    """There is no disk space for a file; the log itself is unchanged."""

    def __init__(self, path: str, needed_bytes: int) -> None:
        super().__init__(f"{path}: no space for {needed_bytes} bytes. Free space on this file system, then try again")
        self.path = path
        self.needed_bytes = needed_bytes


class OutOfDescriptors(DiskFull):
    """No file descriptor is left for a file; callers handle it like a full disk.

    The disk has not failed: the operation changed nothing and may be retried.
    """

    def __init__(self, path: str, operation: str, limit: int) -> None:
        super().__init__(path, 0)
        reason = f"no file descriptor is left: {limit} for this process, or all of the machine, are in use"
        advice = "raise the limit (`ulimit -n`), or close connections, then try again"
        self.args = (f"{path}: {operation} changed nothing: {reason}; {advice}",)
        self.operation = operation
        self.limit = limit


class DirectoryLocked(StoreError):
    """Another process has the directory open."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path}: locked by process {holder}. Stop that process, or give this one its own directory")
        self.path = path
        self.holder = holder


class StorageFailed(StoreError):
    """The operating system refused an operation on a file. Fatal: the state of the disk is unknown.

    A failed sync must not be retried: the kernel may have dropped the pages that it could not write, so that a second
    sync succeeds without them.
    """

    def __init__(self, path: str, operation: str, reason: OSError) -> None:
        super().__init__(
            f"{path}: {operation} failed: {reason}. The node must stop; check the disk and the permissions, then start "
            "it again"
        )
        self.path = path
        self.operation = operation
        self.reason = reason


def how_to_cut(path: str, expected_bytes: int) -> str:
    """Return the advice for a file that is longer than `expected_bytes`; no program cuts it automatically."""
    cut = f"truncate -s {expected_bytes} {path}"
    return f"keep a copy of the file, then cut it with `{cut}` (--skip-damaged leaves it as it is)"


class WrongFileSize(StoreError):
    """A file of a queue does not have the configured size."""

    def __init__(self, path: str, expected_bytes: int, found_bytes: int) -> None:
        is_longer = found_bytes > expected_bytes
        longer = (
            f". If its neighbouring files have {expected_bytes} bytes, the bytes beyond do not belong to the store: "
            f"{how_to_cut(path, expected_bytes)}"
        )
        super().__init__(
            f"{path}: expected a size of {expected_bytes} bytes, found {found_bytes}. Start with the file size that "
            f"this directory was written with, or restore the file from a backup{longer if is_longer else ''}"
        )
        self.path = path
        self.expected_bytes = expected_bytes
        self.found_bytes = found_bytes


class ForeignFile(StoreError):
    """A name in a queue's directory is not that of a queue file."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: expected {expected}. Move what does not belong to the store out of its directory")
        self.path = path
        self.expected = expected


class MissingFile(StoreError):
    """A file between two others of a queue is missing."""

    def __init__(self, path: str, found_path: str) -> None:
        super().__init__(
            f"{path}: expected this file before {found_path}, found none. Restore it from a backup or from "
            "another replica"
        )
        self.path = path
        self.found_path = found_path


class IllegalMessage(StoreError):
    """A message or a name that the store refuses. Nothing was written; the caller must correct it.

    Attributes:
        field: the invalid
        field: "topic", "body", "properties", "properties size", ...
        expected: the valid values.
        found: the given value.
    """

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}. Nothing was written; correct the message")
        self.field = field
        self.expected = expected
        self.found = found


class IllegalRequest(StoreError):
    """An invalid request: a negative offset, an invalid tags expression. The caller must correct it.

    Attributes:
        field: the invalid
        field: "queue", "offset", "tags expression", ...
        expected: the valid values.
        found: the given value.
    """

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}. Nothing was read; correct the request")
        self.field = field
        self.expected = expected
        self.found = found


class IllegalExpression(IllegalRequest):
    """An SQL92 expression that cannot be compiled; no message was read by it, so none passed unfiltered.

    Attributes:
        position: of the first character that does not fit, from 0.
    """

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(f"SQL92 expression, at character {position}", expected, found)
        self.position = position


class TooManyWaiters(StoreError):
    """The limit of readers that wait for new messages is reached. Try again later, or raise `waiters_max`."""

    def __init__(self, waiters_max: int) -> None:
        super().__init__(
            f"{waiters_max} readers wait for new messages, which is the limit. Retry later, or raise waiters_max"
        )
        self.waiters_max = waiters_max


class NotCompactedYet(StoreError):
    """The index of a compacted topic is being built, and older messages are only found by it. Try again later."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"this node still builds the index of the compacted topic {topic!r} from its log; retry later, or ask "
            "another node"
        )
        self.topic = topic


class StoreStopped(StoreError):
    """The store has stopped: it was closed, or a write or a sync failed.

    Attributes:
        reason: as a sentence.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store has stopped: {reason}. Nothing was done; open it again")
        self.reason = reason

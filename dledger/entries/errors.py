"""Errors of the log on disk that are caused by a request; errors of the files are in `store.errors`."""

from __future__ import annotations

from dledger.errors import DLedgerError


class CorruptPush(DLedgerError):
    """Entries of a peer contradict their headers, or the push. Nothing was written: drop the push.

    The bytes were damaged on the peer's disk or in transit; the peer will send them again.
    """

    def __init__(self, index: int, expected: str, found: str) -> None:
        super().__init__(f"push of entry {index}: expected {expected}, found {found}; the push was dropped")
        self.index = index
        self.expected = expected
        self.found = found


class EntryNotFound(DLedgerError):
    """The log has no such entry: it was not written yet, was deleted, or no entry begins at that position."""

    def __init__(self, asked: str, begin_index: int, last_index: int) -> None:
        super().__init__(f"no entry {asked}; the log holds [{begin_index}, {last_index}]")
        self.begin_index = begin_index
        self.last_index = last_index


class EntryTooLarge(DLedgerError):
    """A body is larger than the largest body of an entry; nothing was written."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"a body of {size} bytes; an entry of this log holds at most {size_max}")
        self.size = size
        self.size_max = size_max

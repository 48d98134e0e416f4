"""The archive mark: a small file with the offset up to which a log is archived, so that a broker may delete files.

`{"format":1,"log":"n0","begin":0,"end":123,"crc32c":456}` (`store.fs.sealed_json`): all messages of the log `log` at
physical offsets in [begin, end) are durable in an archive. The archiver writes it (`pipeline.archive.archive`); a
broker with the option `archive_mark` deletes only files that end at or before `end`.

If the mark is missing, damaged, unreadable, or of another log than the broker's, no file is deleted: the broker's disk
may fill up, and puts are then refused, but no data is lost. If its disk hangs, the last value is used.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from store.errors import StorageFailed
from store.fs.sealed_json import seal, unseal

if TYPE_CHECKING:
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

_FORMAT = 1
_FOLDER = "_archived"


class ArchiveMark(NamedTuple):
    """The content of a mark; see the module's docstring."""

    log: str
    begin: int
    end: int


class UnreadableMark(Exception):
    """A mark that cannot be used; the message has the reason."""


def mark_path(root: str, log: str) -> str:
    """Return the path of a log's mark in an archive."""
    return f"{root}/{_FOLDER}/{log}.json"


def encode_mark(mark: ArchiveMark) -> bytes:
    """Return the content of a mark's file."""
    return seal({"format": _FORMAT, **mark._asdict()})


def decode_mark(raw: bytes) -> ArchiveMark:
    """Return the mark in a file's content.

    Raises:
        UnreadableMark: the content is damaged or has another format.
    """
    try:
        found = unseal(raw)
    except ValueError as error:
        raise UnreadableMark(str(error)) from error
    if found.get("format") != _FORMAT:
        raise UnreadableMark(f"expected format {_FORMAT}, found {found.get('format')}")
    log, begin, end = (found.get(name) for name in ArchiveMark._fields)
    if not (isinstance(log, str) and isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end):
        raise UnreadableMark(f"expected a log and a range of offsets, found {log!r}, {begin!r} to {end!r}")
    return ArchiveMark(log, begin, end)


class ArchiveFloor:
    """Gives retention the offset of the last mark that was read; before the first read no file may be deleted.

    Args:
        files: the file system.
        path: of the mark; empty: there is no archive.
        log: name of the broker's log in the archive.

    Attributes:
        fault: the reason why no more may be deleted; empty while the mark is current.
    """

    def __init__(self, files: Files, path: str, log: str) -> None:
        self._files = files
        self._path = path
        self._log = log
        # The mark, or the reason why there is none; None: no read has ended yet. The reader's thread writes it by one
        # assignment, and the loop reads it, so it needs no lock.
        self._found: ArchiveMark | str | None = None
        # At most one reader at a time.
        self._checking: threading.Thread | None = None
        # Whether the last read had not ended when the next one was due.
        self._is_late = False
        self.fault = ""

    def check(self) -> None:
        """Read the mark; may block on its disk."""
        if self._path:
            self._found = self._read_mark()

    def check_in_thread(self) -> None:
        """Read the mark in a separate thread; returns at once.

        The mark may be on a file server, where a read can hang: at most one read is running, the result of the last one
        stays valid, and no code waits for it, not even at the end of the process.
        """
        if not self._path:
            return
        self._is_late = self._checking is not None and self._checking.is_alive()
        if self._is_late:
            return
        self._checking = threading.Thread(target=self.check, name="archive-mark", daemon=True)
        self._checking.start()

    def lowered(self, floor: int, begin: int) -> int:
        """Return `floor`, or the lower offset of the mark.

        Args:
            floor: the offset below which the log may be deleted without an archive.
            begin: of the log; returned if the mark allows no deletion.
        """
        if not self._path:
            return floor
        found = self._found
        if found is None:
            self._set_fault("does not answer; nothing is deleted before it does" if self._is_late else "")
            return begin
        if isinstance(found, ArchiveMark) and found.begin > begin:
            gap = f"begins at {found.begin}, after the log, which begins at {begin}"
            found = f"{gap}: bytes {begin} to {found.begin} of this node's log are not archived"
        if isinstance(found, str):
            self._set_fault(f"{found}; no file of the log is deleted")
            return begin
        self._set_fault("does not answer; its last content is used" if self._is_late else "")
        return min(floor, found.end)

    def _set_fault(self, fault: str) -> None:
        if fault != self.fault:
            self.fault = fault
            logger.warning("archive_mark path=%s %s", self._path, fault or "is read again")

    def _read_mark(self) -> ArchiveMark | str:
        """Return the mark, or the reason why there is none."""
        try:
            raw = self._files.read_bytes(self._path)
            if raw is None:
                return "does not exist yet"
            mark = decode_mark(raw)
        except StorageFailed as error:
            # The mark may be on another disk or machine than the store, whose failure must not stop the store.
            return f"cannot be read ({error.reason})"
        except UnreadableMark as error:
            return f"is invalid: {error}"
        if mark.log != self._log:
            return f"is that of the log {mark.log!r}, expected that of {self._log!r}"
        return mark

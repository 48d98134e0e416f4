"""The archive mark: a small file that says up to where a log is archived, and so what a broker may delete.

`{"format":1,"log":"n0","begin":0,"end":123,"crc32c":456}` (`store.sealed_json`): all messages of the log `log` at
physical offsets of [begin, end) are in an archive, durably. Who archives writes it (`pipeline.archive.archive`); a
broker whose option `archive_mark` names it deletes only files that end at or before `end`.

A mark that is missing, damaged, on a disk that cannot be read, or of a log that is not the broker's deletes nothing:
the broker's disk may fill up, and then puts are refused, but nothing is lost that was to be kept.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from store.errors import StorageFailed
from store.files import Files
from store.sealed_json import seal, unseal

logger = logging.getLogger(__name__)

_FORMAT = 1
_FOLDER = "_archived"


class ArchiveMark(NamedTuple):
    """What a mark says; see the module's text."""

    log: str
    begin: int
    end: int


class UnreadableMark(Exception):
    """A mark that says nothing; the message says why, for people."""


def mark_path(root: str, log: str) -> str:
    """Return where the mark of a log is in an archive."""
    return f"{root}/{_FOLDER}/{log}.json"


def encode_mark(mark: ArchiveMark) -> bytes:
    """Return the content of a mark's file."""
    return seal({"format": _FORMAT, **mark._asdict()})


def decode_mark(raw: bytes) -> ArchiveMark:
    """Return what a mark's file says.

    Raises:
        UnreadableMark: it is not what was written.
    """
    try:
        found = unseal(raw)
    except ValueError as error:
        raise UnreadableMark(str(error)) from error
    if found.get("format") != _FORMAT:
        raise UnreadableMark(f"expected format {_FORMAT}, found {found.get('format')}")
    return ArchiveMark(found["log"], found["begin"], found["end"])


class ArchiveFloor:
    """Tells a broker's retention up to where it may delete.

    Args:
        files: the file system.
        path: of the mark; empty: there is none, and nothing is kept for an archive.
        log: name of the broker's log in the archive.

    Attributes:
        trouble: why nothing may be deleted, for people; empty when the mark was read.
    """

    def __init__(self, files: Files, path: str, log: str) -> None:
        self._files = files
        self._path = path
        self._log = log
        self.trouble = ""

    def read(self, begin: int) -> int | None:
        """Return the offset below which the log may be deleted; None: all of it, as far as an archive is concerned.

        Args:
            begin: of the log; what is returned when the mark allows nothing.
        """
        if not self._path:
            return None
        try:
            mark = self._read_mark(begin)
        except UnreadableMark as error:
            self._tell(f"{self._path}: {error}; nothing is deleted before it is archived")
            return begin
        self._tell("")
        return mark.end

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            logger.warning("archive_mark %s", trouble or "is read again")

    def lowered(self, floor: int, begin: int) -> int:
        """Return `floor`, or what an archive lowers it to; `begin` is that of the log."""
        archived = self.read(begin)
        return floor if archived is None else min(floor, archived)

    def _read_mark(self, begin: int) -> ArchiveMark:
        try:
            raw = self._files.read_bytes(self._path)
        except StorageFailed as error:
            # It may be on another disk than the store, or on another machine's: that one fails, and not the store.
            raise UnreadableMark(f"it cannot be read ({error.reason})") from error
        if raw is None:
            raise UnreadableMark("no such file yet")
        mark = decode_mark(raw)
        if mark.log != self._log:
            raise UnreadableMark(f"expected the mark of the log {self._log!r}, found that of {mark.log!r}")
        if mark.begin > begin:
            found = f"it begins at {mark.begin}, behind the log, which begins at {begin}"
            raise UnreadableMark(f"{found}: what this node has in front of it is in no archive")
        return mark

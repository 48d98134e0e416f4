"""The memberships in the log: the small file `membership`, saved before an entry with a membership is written.

    dledger-membership 1 89abcdef
    [{"index":-1,"membership":{...}},{"index":41,"membership":{...}}]

The number in the first line is the CRC-32C of the second. Spaces, which are ignored, pad the file to a fixed size,
which is reserved when the file is opened, so that it can be saved on a full disk. A file that cannot be read stops the
node: if old entries are deleted, the membership may be in this file only.

Because the file is saved first, it may contain a membership whose entry was truncated, or not written because of a
crash: `drop_unheld` finds these when the node starts, and the file is saved without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from crc32c import crc32c

from dledger.storage.membership_codec import (
    MembershipUnreadable,
    membership_from_object,
    membership_to_object,
    to_json,
)
from dledger.storage.properties import describe_fault
from dledger.types import MembershipEntry
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.entries.format.codec import EntryCodec
    from dledger.entries.format.entry import Entry
    from store.fs.ports import Files

FILE_NAME = "membership"
FILE_SIZE_BYTES = 64 << 10
_TITLE = b"dledger-membership 1"
# One that is committed and one that is not: a log never needs more, because changes are made one at a time.
_ENTRIES_MIN = 2


class MembershipFile:
    """Loads and saves the memberships of one log."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    @classmethod
    def open(cls, files: Files, directory: str) -> Self:
        """Prepare the file in `directory`, which is created, and reserve space for the next save.

        Raises:
            store.errors.DiskFull: a node without space for a membership must not start; free some.
        """
        files.make_directory(directory)
        path = f"{directory}/{FILE_NAME}"
        # A process that was killed inside `save` may have left a file in the page cache only.
        files.sync_directory(directory)
        files.prepare_replace(path, FILE_SIZE_BYTES)
        return cls(files, path)

    @property
    def exists(self) -> bool:
        """Whether memberships were ever saved, which means that a node ran in this directory."""
        return self._files.exists(self._path)

    def load(self) -> tuple[MembershipEntry, ...] | None:
        """Return the saved memberships, at least one, ascending in index; None if none were saved.

        Raises:
            MembershipUnreadable: do not start.
        """
        content = self._files.read_bytes(self._path)
        if content is None:
            return None
        try:
            title, text, _ = content.split(b"\n", 2)
            if title != b"%s %08x" % (_TITLE, crc32c(text)):
                raise ValueError(f"the first line {title[:80].decode(errors='replace')!a}")  # noqa: TRY301  (one place says what to do)
            return _entries_from(foreign_json(text))
        except (ValueError, KeyError, TypeError) as error:
            expected = f"'{_TITLE.decode()}' with the checksum of the next line, and memberships in JSON"
            raise MembershipUnreadable(self._path, expected, describe_fault(error)) from error

    def save(self, entries: Sequence[MembershipEntry]) -> None:
        """Make `entries` (ascending in index, at least one) durable before returning; it works on a full disk, too.

        If they do not all fit, the oldest are omitted: a committed one is not needed after a later committed one.

        Raises:
            store.errors.StorageFailed: the node must stop without writing the entry.
        """
        assert entries
        kept = list(entries)
        while len(content := _content_of(kept)) > FILE_SIZE_BYTES and len(kept) > _ENTRIES_MIN:
            del kept[0]
        self._files.replace(self._path, content.ljust(FILE_SIZE_BYTES))


class HeldEntries(Protocol):
    """The port of the log for the check of memberships."""

    codec: EntryCodec
    begin_index: int
    last_index: int

    def read_entries(self, first_index: int, last_index: int) -> list[Entry]:
        """Return these entries, checked and decoded."""


def drop_unheld(entries: Sequence[MembershipEntry], log: HeldEntries) -> tuple[MembershipEntry, ...]:
    """Return the valid ones of `entries`: the newest committed one, and later ones whose entry is in the log.

    The first one is committed, whatever its index: a node that was reset, or crashed before a reset, may have a
    membership from beyond its log. Entries before the log's start are committed, too.

    Args:
        entries: those in the file, ascending in index.
        log: recovered.

    Raises:
        MembershipUnreadable, store.errors.CorruptData: an entry of the log cannot be read; do not start.
    """
    first, *later = entries
    before = [entry for entry in later if entry.index < log.begin_index]
    inside = [entry for entry in later if log.begin_index <= entry.index <= log.last_index]
    return ((first, *before)[-1], *(entry for entry in inside if _is_held(entry, log)))


def _is_held(entry: MembershipEntry, log: HeldEntries) -> bool:
    (found,) = log.read_entries(entry.index, entry.index)
    return log.codec.decode(found.magic, found.channel, found.body) == entry.membership


def _content_of(entries: Sequence[MembershipEntry]) -> bytes:
    values = [{"index": entry.index, "membership": membership_to_object(entry.membership)} for entry in entries]
    text = to_json(values).encode()
    return b"%s %08x\n%s\n" % (_TITLE, crc32c(text), text)


def _entries_from(values: Any) -> tuple[MembershipEntry, ...]:
    entries = tuple(
        MembershipEntry(int(value["index"]), membership_from_object(value["membership"])) for value in values
    )
    indexes = [entry.index for entry in entries]
    if not entries or indexes != sorted(set(indexes)):
        raise ValueError(f"entries {indexes} that do not ascend")
    return entries

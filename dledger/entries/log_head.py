"""The start of the log: the small file `loghead`, written before old files are deleted; opening completes a deletion.

    beginIndex=1000
    beginPosition=1073741824
    prevTerm=7
    prevChainCrc=305419896

Entries below `beginIndex` are not part of the log, even if their files are left; its first entry is, or will be, at
`beginPosition`, or at the start of the next data file if it does not fit. `prevTerm` is the term of the entry before
(-1: not known) and `prevChainCrc` its chain checksum (no such line: not known). They are stored nowhere else once that
entry is deleted, and without them the header of the first entry could not be verified. `isReset=true` is present while
the whole log is replaced. The lines have a checksum (`dledger.storage.properties`). Without the file, the log begins
with its first data file, as in DLedger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from dledger.entries.format.entry import BLANK_SIZE_MIN, HEADER_SIZE, INDEX_UNIT_SIZE, encode_blank
from dledger.entries.format.walk import UNKNOWN, chain_before
from dledger.storage.properties import describe_fault, format_checked, parse_checked
from dledger.types import NO_TERM, decoded_term, encoded_term
from store.errors import CorruptData, DiskFull, StoreError

if TYPE_CHECKING:
    from dledger.entries.aside import Aside, AsideRecord
    from store.fs.mapped.mapped_file_queue import MappedFileQueue
    from store.fs.ports import Files

FILE_NAME = "loghead"
_INDEX_KEY = "beginIndex"
_POSITION_KEY = "beginPosition"
_TERM_KEY = "prevTerm"
_CHAIN_KEY = "prevChainCrc"
_RESET_KEY = "isReset"


@dataclass(frozen=True, slots=True)
class LogHead:
    """The start of a log; the module's docstring describes each field."""

    begin_index: int
    begin_position: int
    prev_term: int = NO_TERM
    is_reset: bool = False
    prev_chain_crc: int = UNKNOWN

    @property
    def chain_crc(self) -> int:
        """The chain checksum of the entry before the first one; UNKNOWN (-1) if it is not known."""
        return chain_before(self.begin_index) if self.prev_chain_crc == UNKNOWN else self.prev_chain_crc


class LogHeadUnreadable(StoreError):
    """The file with the start of the log exists and cannot be read."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            f"{path}: expected lines {_INDEX_KEY}, {_POSITION_KEY}, {_TERM_KEY} and their checksum, found "
            f"{found}. Nothing was changed. Keep a copy of the directory, then restore the file from a backup, or give "
            "the node an empty directory: it is re-synced"
        )
        self.path = path
        self.found = found


class LogHeadFile:
    """Loads and saves the head of one log."""

    __slots__ = ("_directory", "_files", "_path")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"

    @classmethod
    def open(cls, files: Files, directory: str) -> Self:
        """Prepare the file in `directory`, which exists, and reserve space for the next save.

        Raises:
            store.errors.DiskFull: without that space, old files could not be deleted when the disk is full.
        """
        head_file = cls(files, directory)
        files.prepare_replace(head_file._path)
        return head_file

    def load(self) -> LogHead | None:
        """Return the saved head; None if there is none.

        Raises:
            LogHeadUnreadable: do not start.
        """
        content = self._files.read_bytes(self._path)
        if content is None:
            return None
        try:
            properties = parse_checked(content)
            head = LogHead(
                begin_index=int(properties[_INDEX_KEY]),
                begin_position=int(properties[_POSITION_KEY]),
                prev_term=decoded_term(int(properties[_INDEX_KEY]) - 1, int(properties[_TERM_KEY])),
                is_reset=_RESET_KEY in properties,
                prev_chain_crc=int(properties.get(_CHAIN_KEY, UNKNOWN)),
            )
        except (ValueError, KeyError) as error:
            raise LogHeadUnreadable(self._path, describe_fault(error)) from error
        if (
            content != _content_of(head)
            or min(head.begin_index, head.begin_position, encoded_term(head.prev_term) - NO_TERM) < 0
        ):
            raise LogHeadUnreadable(self._path, f"{properties}, which is not what was written")
        return head

    def save(self, head: LogHead) -> None:
        """Make `head` durable before returning; it works on a full disk, too.

        Raises:
            store.errors.StorageFailed: the node must stop, and must delete nothing.
        """
        self._files.replace(self._path, _content_of(head))

    def restore(self, head: LogHead | None) -> None:
        """Save again, durably, the head that `load` returned.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if head is not None:
            self.save(head)
        elif self._files.exists(self._path):
            self._files.remove(self._path)
            self._files.sync_directory(self._directory)


def is_begin_position(position: int, file_size: int) -> bool:
    """Return whether a log may begin at a position: of a file's start, or with a header before and a blank after it."""
    offset = position % file_size
    return offset == 0 or HEADER_SIZE <= offset <= file_size - BLANK_SIZE_MIN


def replace_log(
    head_file: LogHeadFile,
    data: MappedFileQueue,
    index: MappedFileQueue,
    head: LogHead,
    aside: Aside,
    kept: AsideRecord | None,
) -> None:
    """Begin an empty log at `head` in place of the one that is there.

    Args:
        head_file: of this log.
        data: its data files.
        index: its index files.
        head: of the empty log.
        aside: of this node.
        kept: the entries that are to be set aside; None: there are none.

    Raises:
        store.errors.DiskFull: as `restart_log`; if there were no files, nothing was changed.
        store.errors.StorageFailed: the node must stop.
    """
    is_without_files, old_head = not data.mapped_files, head_file.load()
    if kept is not None:
        aside.prepare(kept, old_head)
    try:
        restart_log(head_file, data, index, head, aside)
    except DiskFull:
        if is_without_files:
            head_file.restore(old_head)
        raise


def restart_log(
    head_file: LogHeadFile, data: MappedFileQueue, index: MappedFileQueue, head: LogHead, aside: Aside
) -> None:
    """Set all data files aside, or delete them, and begin an empty log at `head`.

    After a crash, `complete` finishes this. The old files are set aside if `aside` awaits them. The file of the start
    position is created at once, so a log without it is recognised as damaged.

    Raises:
        store.errors.DiskFull: the new log does not fit even without the old one, which is deleted; the next opening
            creates it when space is free.
        store.errors.StorageFailed: the node must stop.
    """
    head_file.save(replace(head, is_reset=True))
    data.remove_cut_short()
    if aside.is_awaited:
        aside.take(data)
    else:
        data.remove_all()
    index.remove_all()
    while True:
        try:
            _make_first_file(data, head)
            break
        except DiskFull:
            if not aside.free_one():
                raise
    head_file.save(replace(head, is_reset=False))


def _make_first_file(data: MappedFileQueue, head: LogHead) -> None:
    """Create the log's first file durably.

    Raises:
        store.errors.DiskFull: nothing was changed.
        store.errors.StorageFailed: the node must stop.
    """
    blank_size = head.begin_position % data.file_size
    file_begin = head.begin_position - blank_size
    data.reserve(file_begin, head.begin_position + BLANK_SIZE_MIN)
    if blank_size:
        data.write(file_begin, encode_blank(blank_size))
    data.sync_all()


def note_beginning(head_file: LogHeadFile, found: LogHead) -> None:
    """Save the start of a log whose first entries another program deleted without recording it.

    `dledger verify` treats a log without the file as one that lost it. Only a caller that has verified that the
    directory is its own may call this.

    Raises:
        store.errors.StorageFailed: the node must stop.
    """
    known = head_file.load()
    if found.begin_index > 0 and (known is None or known.begin_index != found.begin_index):
        head_file.save(found)


def complete(
    head_file: LogHeadFile, data: MappedFileQueue, index: MappedFileQueue, aside: Aside, notes: list[str]
) -> LogHead | None:
    """Complete a reset or a deletion that a crash interrupted; return the start of the log, None if not known.

    Args:
        head_file: of this log.
        data: the loaded data files.
        index: the loaded index files.
        aside: of this node.
        notes: receives one sentence per repair.

    Raises:
        LogHeadUnreadable: do not start.
        store.errors.CorruptData: the file in which the log begins is missing.
        store.errors.DiskFull: no space for the first file of a restarted log.
        store.errors.StorageFailed: a file cannot be removed, written or synced.
    """
    head = head_file.load()
    aside.sync_renames()
    if head is None or not head.is_reset:
        aside.remove_remnant()
    if head is None:
        return None
    if head.is_reset:
        restart_log(head_file, data, index, head, aside)
        notes.append(f"{data.directory}: a crash interrupted a reset; the log now begins at entry {head.begin_index}")
        return replace(head, is_reset=False)
    old_begin = data.begin_offset
    data.remove_before(head.begin_position)
    index.remove_before(head.begin_index * INDEX_UNIT_SIZE)
    if data.begin_offset != old_begin:
        notes.append(f"{data.directory}: a crash interrupted a deletion; files before {data.begin_offset} are removed")
    if data.end_offset <= head.begin_position:
        expected = f"the file that holds position {head.begin_position}, where the log begins"
        raise CorruptData(data.directory, 0, expected, f"files up to {data.end_offset}")
    if data.begin_offset > head.begin_position:
        notes.append(f"{data.directory}: another program deleted what was stored before position {data.begin_offset}")
        return None
    return head


def _content_of(head: LogHead) -> bytes:
    lines = {
        _INDEX_KEY: str(head.begin_index),
        _POSITION_KEY: str(head.begin_position),
        _TERM_KEY: str(encoded_term(head.prev_term)),
    }
    if head.prev_chain_crc != UNKNOWN:
        lines[_CHAIN_KEY] = str(head.prev_chain_crc)
    if head.is_reset:
        lines[_RESET_KEY] = "true"
    return format_checked(lines)

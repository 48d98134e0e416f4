"""The log that a reset replaced, kept until the new one has caught up: the folder `aside` in a node's directory.

| file | content |
| --- | --- |
| `aside/data/` | the data files, unchanged; the index is derived from them and not kept |
| `aside/loghead` | the start of that log; without it, that of the first data file |
| `aside/record` | its first and last entry, and the index up to which the new log must be committed and durable |

If a reset deleted the log at once, one message of a faulty or false leader would destroy this machine's only copy
before its replacement arrived. So a reset renames the data directory, and the files are deleted, one at a time, once
the new log has everything that was committed on the leader at the reset.

- The record is written before the reset begins, and is removed, durably, before the first file is deleted. So a record
  without files means that the reset never began, and files without a record mean that a crash interrupted the deletion.
- At most one log is kept. While it is kept, the log that replaced it has not caught up: a second reset deletes that
  incomplete log.
- When the disk is full, this folder is deleted first: no guarantee depends on it.

Other programs ignore the folder. `docs/operations.md` describes how to read it and how to return to it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from dledger.entries.log_head import LogHead, LogHeadFile
from dledger.storage.properties import format_checked, parse_checked
from store.errors import DiskFull

if TYPE_CHECKING:
    from store.fs.mapped.mapped_file_queue import MappedFileQueue
    from store.fs.ports import Files

FOLDER_NAME: Final = "aside"
RECORD_NAME: Final = "record"
# Freeing the blocks of a large file takes a fraction of a second in another thread; this interval is longer.
_DELETE_INTERVAL_MS: Final = 500
_KEYS: Final = ("beginIndex", "lastIndex", "caughtUpIndex")


class Aside:
    """The folder of one node. Construct it by `open`. Loop thread only.

    Attributes:
        record: None: the folder is absent, or being deleted, or its record cannot be read (see `is_kept`).
        freed_count: number of files, and of logs not set aside, that were deleted because the disk was full.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.record: AsideRecord | None = None
        self.freed_count = 0
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FOLDER_NAME}"
        self._data_path = f"{self._path}/data"
        self._record_path = f"{self._path}/{RECORD_NAME}"
        # The remaining data files, ascending.
        self._names: list[str] = []
        # Whether the record file exists; without it `record` is None, and the rest of the folder may be deleted.
        self._has_record = False
        # `advance` deletes nothing before this time, so that the disk has time for other work.
        self._next_ms = 0

    @classmethod
    def open(cls, files: Files, directory: str) -> Self:
        """Read the folder `aside` in the directory of a node.

        Raises:
            store.errors.StorageFailed: it cannot be read.
        """
        aside = cls(files, directory)
        aside.check()
        return aside

    def check(self) -> None:
        """Read the folder again.

        Raises:
            store.errors.StorageFailed: it cannot be read.
        """
        self._names = self._files.list_directory(self._data_path)
        self._has_record, self.record = self._files.exists(self._record_path), None
        if self._has_record:
            # A damaged record has no goal: the folder is kept until the disk is full or the operator removes it.
            with suppress(ValueError, KeyError):
                self.record = AsideRecord.parse(self._files.read_bytes(self._record_path) or b"")

    @property
    def path(self) -> str:
        """The path of the folder."""
        return self._path

    @property
    def files_count(self) -> int:
        """The number of remaining data files."""
        return len(self._names)

    @property
    def is_kept(self) -> bool:
        """Whether the folder contains a log that must not be deleted yet."""
        return self._has_record and bool(self._names)

    @property
    def is_awaited(self) -> bool:
        """Whether the record announces data files that are not in the folder yet."""
        return self._has_record and not self._names

    # ------------------------------------------------------------------------------------------------ setting aside

    def prepare(self, record: AsideRecord, head: LogHead | None) -> None:
        """Write the record of the log that will be set aside, durably; an existing folder is kept instead.

        If the record does not fit on the disk, the reset deletes the old log at once.

        Args:
            record: of the log to be replaced.
            head: the start of that log; None: that of its first data file.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if self.is_kept:
            kept = self.record
            if kept is not None:
                record = AsideRecord(kept.begin_index, kept.last_index, record.caught_up_index)
        else:
            self.delete()
        try:
            self._files.make_directory(self._path)
            if head is not None and not self.is_kept:
                LogHeadFile(self._files, self._path).save(head)
            self._files.replace(self._record_path, record.content)
        except DiskFull:
            self.freed_count += 1
            if not self.is_kept:
                self.delete()
        self.check()

    def take(self, data: MappedFileQueue) -> None:
        """Rename the directory of data files into the folder, durably, and create an empty one in its place.

        Raises:
            store.errors.StorageFailed: the node must stop; opening the log again completes the move.
        """
        assert self.is_awaited, self._path
        data.close()
        self._files.rename(data.directory, self._data_path)
        self._files.sync_directory(self._path)
        self._files.sync_directory(self._directory)
        self._files.make_directory(data.directory)
        self._names = self._files.list_directory(self._data_path)

    def sync_renames(self) -> None:
        """Make the renames of an interrupted `prepare` or `take` durable.

        Each start calls this: files that it has read must survive a later power cut.

        Raises:
            store.errors.StorageFailed: the node must not start.
        """
        if self._names or self._has_record:
            self._files.sync_directory(self._path)
            self._files.sync_directory(self._directory)

    # ----------------------------------------------------------------------------------------------------- deleting

    def advance(self, held_index: int, now_ms: int) -> None:
        """Delete the next file if the new log has caught up: it is committed and durable up to `held_index`.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if now_ms >= self._next_ms and self.is_due(held_index):
            self._next_ms = now_ms + _DELETE_INTERVAL_MS
            self._delete_one(is_waiting=False)

    def is_due(self, held_index: int) -> bool:
        """Return whether a file may be deleted when the new log is committed and durable up to `held_index`."""
        if self.record is not None:
            return held_index >= self.record.caught_up_index
        return bool(self._names) and not self._has_record

    def free_one(self) -> bool:
        """Delete a file because the disk is full; False if there is none.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if not self._names:
            return False
        self._delete_one(is_waiting=True)
        self.freed_count += 1
        return True

    def delete(self) -> None:
        """Delete the whole folder, without waiting for the new log.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        while self._names:
            self._delete_one(is_waiting=False)
        self._remove_folder()

    def remove_remnant(self) -> None:
        """Remove a folder without data files, left by a reset that never began, or by an interrupted deletion.

        Raises:
            store.errors.StorageFailed: the node must not start.
        """
        if not self._names:
            self._remove_folder()

    def _delete_one(self, *, is_waiting: bool) -> None:
        """Delete the newest file, with the folder if it was the last one.

        Args:
            is_waiting: True: return after its blocks are free; False: another thread frees them.
        """
        if self._has_record:
            self._files.remove(self._record_path)
            self._files.sync_directory(self._path)
            self._has_record, self.record = False, None
        if self._names:
            path = f"{self._data_path}/{self._names.pop()}"
            file = None if is_waiting else self._files.open(path)
            self._files.remove(path)
            self._files.sync_directory(self._data_path)
            if file is not None:
                file.discard()
        if not self._names:
            self._remove_folder()

    def _remove_folder(self) -> None:
        """Remove the folder after its last data file."""
        files = self._files
        if files.is_directory(self._data_path):
            files.remove_directory(self._data_path)
        if not files.is_directory(self._path):
            return
        for name in files.list_directory(self._path):
            files.remove(f"{self._path}/{name}")
        files.sync_directory(self._path)
        files.remove_directory(self._path)
        files.sync_directory(self._directory)
        self._has_record, self.record = False, None


@dataclass(frozen=True, slots=True)
class AsideRecord:
    """The record of a log that was set aside.

    Attributes:
        begin_index, last_index: its first and last entry.
        caught_up_index: it may be deleted once the new log is committed and durable up to this entry.
    """

    begin_index: int
    last_index: int
    caught_up_index: int

    @property
    def content(self) -> bytes:
        """The bytes of the record file."""
        values = (self.begin_index, self.last_index, self.caught_up_index)
        return format_checked(dict(zip(_KEYS, map(str, values), strict=True)))

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the record in the file's content.

        Raises:
            ValueError, KeyError: it is damaged.
        """
        pairs = parse_checked(content)
        return cls(*(int(pairs[key]) for key in _KEYS))

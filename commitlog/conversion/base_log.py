"""The base log: files of a plain log that a replicated log continues. They are read, and deleted when they expire.

They contain the log below the divide. The last one is full: a blank fills it after its last record
(`commitlog.conversion.divide`). So none of them needs recovery.

Source: RocketMQ `DLedgerCommitLog.setRecoverPosition`.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Self

from commitlog.plain.reader import PlainLogReader
from commitlog.plain.recovery import NO_TIMESTAMP, RecoveredLog
from commitlog.record.record import END_SIZE_MIN, BadRecord, decode
from commitlog.record.scan import walk
from store.errors import CorruptData
from store.fs.mapped.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from store.fs.ports import Files


class BaseLog(PlainLogReader):
    """The part of a log below its divide. Construct it by `open`."""

    @classmethod
    def open(
        cls, files: Files, directory: str, file_size: int, divide: int, *, is_property_crc_checked: bool = False
    ) -> Self | None:
        """Open the files for reading and deleting; None if there are none.

        Args:
            files: the file system.
            directory: of the files.
            file_size: bytes of each.
            divide: the offset at which the replicated log began.
            is_property_crc_checked: the files were written with property CRCs.

        Raises:
            store.errors.ForeignFile, WrongFileSize, MissingFile: see their messages.
            store.errors.CorruptData: they reach beyond the divide, where the replicated log begins.
        """
        if not files.is_directory(directory):
            return None
        with ExitStack() as on_failure:
            queue = MappedFileQueue(files, directory, file_size)
            on_failure.callback(queue.close)
            # Entries begin at the end of these files, so each of them was once complete.
            notes = queue.load(is_read_only=True, durable_end=divide)
            if not queue.mapped_files:
                return None
            if queue.end_offset > divide:
                expected, found = f"files up to {divide}, where the replicated log begins", f"up to {queue.end_offset}"
                raise CorruptData(directory, 0, expected, found)
            on_failure.pop_all()
        log = RecoveredLog(queue.end_offset, NO_TIMESTAMP, tuple(notes))
        return cls(queue, log, is_property_crc_checked=is_property_crc_checked)

    @cached_property
    def _last_timestamp(self) -> int:
        for file in reversed(self._queue.mapped_files):
            view = file.view()
            for start in reversed(_starts(view)):
                # A record that was damaged later is skipped here; a read of it raises an error.
                with suppress(BadRecord):
                    return decode(view, start).store_timestamp
        return NO_TIMESTAMP

    @property
    def last_store_timestamp(self) -> int:
        """Store timestamp of the last readable record; -1 when there is none."""
        return self._last_timestamp

    def old_files(self, count_max: int) -> list[tuple[str, int]]:
        """Return (path, end) of the oldest files, at most `count_max`; all may be deleted, including the last one."""
        return [(file.path, file.end_offset) for file in self._queue.mapped_files[:count_max]]

    def delete_before(self, offset: int) -> None:
        """Delete, durably and oldest first, the files that end at or before `offset`, including the last one.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        # Read before the last file is deleted.
        _ = self._last_timestamp
        if offset >= self._queue.end_offset:
            self._queue.remove_before(offset)
            self._queue.remove_all()
        else:
            self._queue.remove_before(offset)

    @property
    def is_gone(self) -> bool:
        """Whether all its files were deleted."""
        return not self._queue.mapped_files


def _starts(view: memoryview) -> list[int]:
    return walk(view, 0, len(view) - END_SIZE_MIN, count_max=len(view)).starts

"""Restores an archive to a new store directory: a plain commit log with the archived records.

All bytes of a record are kept except its physical offset and its property CRC, if it has one, which also covers that
offset. Queue offsets, both timestamps and both hosts are kept. Queues and index are built from the log afterwards
(`dledger rebuild`), or by the broker that opens it.

Only an empty directory is written to. After an interrupted restore, remove the directory and start again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from isal.isal_zlib import crc32

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.record.properties import CRC_SIZE, encode_property_crc, find_property_crc
from commitlog.record.record import BLANK_MAGIC, CRC_MASK, END_SIZE_MIN, HEAD, PHYSICAL_OFFSET_POSITION
from pipeline.columns.record_builder import build_records
from pipeline.common.errors import BadOption
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from store.fs.ports import File, Files

MAPPED_FILE_SIZE: Final = CommitLogConfig().mapped_file_size
_FLUSH_SIZE_BYTES: Final = 8 << 20


class StoreRestore:
    """Writes records into a new store.

    Args:
        root: of the store: a missing or empty directory.
        mapped_file_size: of the files of its log; the broker that opens it must use the same.

    Attributes:
        rows: number of rows restored.
        end_offset: current end of the log.

    Raises:
        BadOption: the directory is not empty.
    """

    def __init__(self, root: str, mapped_file_size: int = MAPPED_FILE_SIZE, files: Files | None = None) -> None:
        self._files: Files = OsFiles() if files is None else files
        self._folder = f"{root}/commitlog"
        self._size = mapped_file_size
        if self._files.is_directory(root) and self._files.list_directory(root):
            raise BadOption("path", "a new directory", f"{root}, which is not empty", "Name another directory")
        self._end = 0
        self._file: File | None = None
        # Bytes that are not written yet, and their position.
        self._waiting = bytearray()
        self._waiting_begin = 0
        self.rows = 0

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self._end

    def add(self, batch: pa.RecordBatch) -> None:
        """Append the records of a lossless batch.

        Raises:
            pipeline.columns.record_builder.NotLossless: the batch is not lossless.
            store.errors.DiskFull, StorageFailed: a file could not be written.
        """
        records = build_records(batch)
        offsets = np.frombuffer(records.buffers()[1], np.int32, len(records) + 1, records.offset * 4).tolist()
        data = memoryview(records.buffers()[2]) if len(records) else memoryview(b"")
        for begin, end in pairwise(offsets):
            self._add_record(bytearray(data[begin:end]))
        self.rows += len(records)

    def finish(self) -> None:
        """Write the rest, durably; without any row the store is empty."""
        self._files.make_directory(self._folder)
        self._flush()
        self._close()

    def _add_record(self, record: bytearray) -> None:
        needed = len(record) + END_SIZE_MIN
        if needed > self._size:
            raise BadOption("mappedFileSize", f"at least {needed} bytes, for the largest record", self._size)
        left = -self._end % self._size
        if self._file is not None and left < needed:
            # A file may end with a record and a blank of eight bytes, so `left` is never 0 here.
            self._append(HEAD.pack(left, BLANK_MAGIC))
            self._flush()
            self._close()
            self._end += left - HEAD.size
            self._waiting_begin = self._end
        if self._file is None:
            # Not earlier, so that rows that cannot be restored leave no directory.
            self._files.make_directory(self._folder)
            self._file = self._files.create(f"{self._folder}/{self._end:020d}", self._size)
        _place(record, self._end)
        self._append(record)

    def _append(self, data: bytes | bytearray) -> None:
        self._waiting += data
        self._end += len(data)
        if len(self._waiting) >= _FLUSH_SIZE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            assert self._file is not None
            self._file.write(bytes(self._waiting), self._waiting_begin % self._size)
            self._waiting_begin += len(self._waiting)
            self._waiting.clear()

    def _close(self) -> None:
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._files.sync_directory(self._folder)
            self._file = None


def restore_store(
    batches: Iterable[pa.RecordBatch],
    root: str,
    *,
    mapped_file_size: int = MAPPED_FILE_SIZE,
    transform: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> StoreRestore:
    """Write rows to a new store, in order; return the result.

    Args:
        batches: lossless, in log order, because the broker finds times by bisection.
        root: of the new store.
        mapped_file_size: of the files of its log.
        transform: changes or drops rows; changed columns must be consistent, for example `bodyCrc` with the body.

    Raises:
        pipeline.common.errors.PipelineError, store.errors.StoreError: see `StoreRestore`.
    """
    restore = StoreRestore(root, mapped_file_size)
    for batch in batches:
        restore.add(batch if transform is None else transform(batch))
    restore.finish()
    return restore


def _place(record: bytearray, offset: int) -> None:
    """Write a record's new position into it."""
    record[PHYSICAL_OFFSET_POSITION : PHYSICAL_OFFSET_POSITION + 8] = offset.to_bytes(8, "big")
    crc = find_property_crc(bytes(record[-CRC_SIZE:]))
    if crc is not None and crc >= 0:
        record[-CRC_SIZE:] = encode_property_crc(crc32(record[:-CRC_SIZE]) & CRC_MASK)

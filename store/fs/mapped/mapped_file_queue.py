"""A sequence of files of equal size that form one contiguous range of bytes.

A file's name is the offset of its first byte, in 20 decimal digits; the next file begins where it ends. Every file has
its full size from the start. The owner tracks the used part of the queue, and ensures that all bytes after it are zero.

Source: RocketMQ `MappedFileQueue`, DLedger `MmapFileList`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from store.errors import ForeignFile, MissingFile, StorageFailed, WrongFileSize
from store.fs.mapped.mapped_file import MappedFile
from store.fs.mapped.preallocation import NextFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.fs.ports import File, QueueFiles

_NAME_DIGITS = 20
_ZEROS = bytes(64 << 10)


class MappedFileQueue:
    """The files of one directory.

    Args:
        files: the file system.
        directory: of the files; it must exist.
        file_size: bytes of each file.
        is_sparse: new files get their blocks when they are written, and neither they nor their names are durable before
            the owner syncs them; for thousands of files that can be rebuilt.
    """

    __slots__ = (
        "_cut_short",
        "_directory",
        "_dirty",
        "_file_size",
        "_files",
        "_has_new_name",
        "_is_sparse",
        "_mapped_files",
        "_next",
        "_reserved_end",
    )

    def __init__(self, files: QueueFiles, directory: str, file_size: int, *, is_sparse: bool = False) -> None:
        assert file_size > 0, file_size
        self._files = files
        self._directory = directory
        self._is_sparse = is_sparse
        self._has_new_name = False
        self._file_size = file_size
        self._mapped_files: list[MappedFile] = []
        self._dirty: list[MappedFile] = []
        self._reserved_end = 0
        self._next: NextFile | None = None
        self._cut_short: MappedFile | None = None

    @property
    def directory(self) -> str:
        """The path of the directory."""
        return self._directory

    @property
    def file_size(self) -> int:
        """Bytes of each file."""
        return self._file_size

    @property
    def mapped_files(self) -> Sequence[MappedFile]:
        """All files, oldest first."""
        return self._mapped_files

    @property
    def begin_offset(self) -> int:
        """Offset of the first byte of the first file; 0 without files."""
        return self._mapped_files[0].begin_offset if self._mapped_files else 0

    @property
    def end_offset(self) -> int:
        """Offset after the last byte of the last file; 0 without files."""
        return self._mapped_files[-1].end_offset if self._mapped_files else 0

    def load(self, *, is_read_only: bool = False, durable_end: int = 0) -> list[str]:
        """Open the existing files, except a last one whose creation a crash interrupted.

        Creating a file creates its name first and then sets its size, so after a crash in between the last file is too
        short and contains only zeros. The owner must call `remove_cut_short` after it has validated the other files,
        because a log that is refused is not changed. Any other wrong size is an error: the directory was written with
        another file size, or the file was damaged.

        Args:
            is_read_only: keep such a last file.
            durable_end: bytes below this offset were synced, so their files were complete.

        Returns:
            The repairs, one sentence each.

        Raises:
            store.errors.ForeignFile: a name that is not a multiple of the file size in 20 digits.
            store.errors.WrongFileSize: see above.
            store.errors.MissingFile: a file between two others is missing, or its name is not its offset.
        """
        assert not self._mapped_files
        # A killed process may have created names that are not durable.
        self._has_new_name = self._is_sparse
        notes: list[str] = []
        names = sorted(self._files.list_directory(self._directory))
        for name in names:
            file = self._open(name)
            if file.file.size == self._file_size:
                self._mapped_files.append(file)
                continue
            is_cut_short = name == names[-1] and file.file.size < self._file_size and file.begin_offset >= durable_end
            if not is_cut_short or file.find_data(file.begin_offset) < file.end_offset:
                file.file.close()
                raise WrongFileSize(file.path, self._file_size, file.file.size)
            if is_read_only:
                file.file.close()
                notes.append(f"{file.path}: left out; a crash cut its creation short at {file.file.size} bytes")
                continue
            self._cut_short = file
            notes.append(f"{file.path}: removed; a crash cut its creation short at {file.file.size} bytes")
        return notes

    def remove_cut_short(self) -> None:
        """Remove, durably, the incomplete last file that `load` has skipped, if there is one."""
        file, self._cut_short = self._cut_short, None
        if file is not None:
            self._drop(file)

    def use_files(self, files: Sequence[File]) -> None:
        """Use these files of the directory, which must be all files, complete, in order, without a gap."""
        assert not self._mapped_files
        self._has_new_name = self._is_sparse
        for file in files:
            self._mapped_files.append(MappedFile(file, int(file.path[-_NAME_DIGITS:]), is_allocated=False))

    def attach(self, begin: int, end: int) -> None:
        """Open the existing files of `[begin, end)` that another process has created after the known ones.

        Args:
            begin: of the first file, if none is known.
            end: files at or after it are not searched for.
        """
        at = self.end_offset if self._mapped_files else begin
        while at < end and self._files.exists(self._path(at)):
            self._mapped_files.append(MappedFile(self._files.open(self._path(at)), at, is_allocated=False))
            at += self._file_size

    def find(self, offset: int) -> MappedFile | None:
        """Return the file of the byte at `offset`, if there is one."""
        mapped_files = self._mapped_files
        if not mapped_files:
            return None
        number = (offset - mapped_files[0].begin_offset) // self._file_size
        return mapped_files[number] if 0 <= number < len(mapped_files) else None

    def reserve(self, begin: int, end: int) -> None:
        """Ensure that the files of `[begin, end)` exist and have blocks, so that writes do not fail on a full disk.

        A queue without files begins with the file of `begin`.

        Raises:
            store.errors.DiskFull: nothing was changed, except that empty files may have been added.
        """
        if begin < end <= self._reserved_end:
            return
        if not self._mapped_files:
            self._create(begin - begin % self._file_size)
        while self.end_offset < end:
            self._create(self.end_offset)
        at = begin
        while at < end:
            file = self.find(at)
            assert file is not None, (self._directory, at)
            file.allocate(at, min(end, file.end_offset))
            at = file.end_offset
        # Fast path: the blocks are already known to be allocated.
        last = self.find(end - 1)
        assert last is not None, (self._directory, end)
        self._reserved_end = last.allocated_end

    def prepare_next(self) -> NextFile | None:
        """Return the job that creates the next file, for any thread; None if it already exists.

        The queue uses the file when it is needed, or after `adopt_next`. Not for sparse files, whose creation is fast.
        """
        assert not self._is_sparse, self._directory
        if not self._mapped_files or self._next is not None:
            return None
        self._next = NextFile(self._files, self._directory, self._path(self.end_offset), self._file_size)
        return self._next

    def adopt_next(self) -> None:
        """Add the file that the job of `prepare_next` has created, if the job has ended.

        Raises:
            store.errors.StorageFailed: it could not be created; the node must stop.
        """
        if self._next is not None and self._next.is_made:
            self._take_up_next()

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write `data` at `offset`, into the page cache; it must lie within one existing file.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        mapped_files = self._mapped_files
        file = mapped_files[(offset - mapped_files[0].begin_offset) // self._file_size]
        if not file.is_dirty:
            self.mark_dirty(file)
        file.file.write(data, offset - file.begin_offset)

    def mark_dirty(self, file: MappedFile) -> None:
        """Mark a file dirty without a write, so that `take_dirty` returns it."""
        if not file.is_dirty:
            file.is_dirty = True
            self._dirty.append(file)

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of `size` bytes from `offset`; they must lie within one existing file."""
        mapped_files = self._mapped_files
        file = mapped_files[(offset - mapped_files[0].begin_offset) // self._file_size]
        return file.file.read(offset - file.begin_offset, size)

    def truncate(self, offset: int, data_end: int, *, is_durable: bool) -> None:
        """Truncate at `offset`: later files are deleted, the rest of this file's data becomes zero.

        All data is overwritten, not only its first bytes: remaining bytes could be aligned with later writes and be
        read as data after a crash. Files are removed from the last to the first, each durably before the next, so that
        a crash leaves no gap. The first file is never removed.

        Args:
            offset: the first byte to remove.
            data_end: offset after the last non-zero byte, from the owner.
            is_durable: sync the zeros before returning.
        """
        self._take_up_next()
        while len(self._mapped_files) > 1 and self._mapped_files[-1].begin_offset >= offset:
            self._drop(self._mapped_files.pop())
        self._reserved_end = min(self._reserved_end, self.end_offset)
        holder = self.find(offset)
        if holder is None:
            return
        zeros_end = min(data_end, holder.end_offset)
        while offset < zeros_end:
            # Chunk ends are aligned, so that after a crash each sector is old or zero.
            chunk_end = min(zeros_end, offset - offset % len(_ZEROS) + len(_ZEROS))
            self.write(offset, _ZEROS[: chunk_end - offset])
            offset = chunk_end
        if is_durable:
            holder.file.sync()

    def remove_before(self, offset: int) -> None:
        """Remove the files that end at or before `offset`, oldest first; the last file is never removed."""
        while len(self._mapped_files) > 1 and self._mapped_files[0].end_offset <= offset:
            self._drop(self._mapped_files.pop(0))

    def remove_all(self) -> None:
        """Remove every file, last first; the queue is then empty."""
        self._take_up_next()
        while self._mapped_files:
            self._drop(self._mapped_files.pop())
        self._reserved_end = 0

    def take_dirty(self) -> list[File]:
        """Return the files written since the last call, oldest first; the caller syncs them, in any thread."""
        dirty, self._dirty = self._dirty, []
        for file in dirty:
            file.is_dirty = False
        return [file.file for file in dirty]

    def take_new_name(self) -> bool:
        """Return whether a file was created whose name is not durable yet; the caller syncs the directory."""
        has_new_name, self._has_new_name = self._has_new_name, False
        return has_new_name

    def sync(self, begin: int, end: int) -> None:
        """Sync the files of the bytes `[begin, end)`, which must exist, and mark them clean.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        while begin < end:
            file = self.find(begin)
            assert file is not None, (self._directory, begin)
            file.file.sync()
            if file.is_dirty:
                file.is_dirty = False
                self._dirty.remove(file)
            begin = file.end_offset

    def sync_all(self) -> None:
        """Sync every file, including data that an earlier process left in the page cache.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        self.take_dirty()
        for file in self._mapped_files:
            file.file.sync()

    def close(self) -> None:
        """Close all files without syncing them; the queue is then empty."""
        with suppress(StorageFailed):  # the next file is not used yet
            self._take_up_next()
        if self._cut_short is not None:
            self._cut_short.file.close()
            self._cut_short = None
        for file in self._mapped_files:
            file.file.close()
        self._mapped_files.clear()
        self._dirty.clear()
        self._reserved_end = 0

    def _open(self, name: str) -> MappedFile:
        path = f"{self._directory}/{name}"
        if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
            raise ForeignFile(path, f"a name of {_NAME_DIGITS} digits")
        offset = int(name)
        if self._mapped_files and offset != self.end_offset:
            raise MissingFile(self._path(self.end_offset), path)
        file = MappedFile(self._files.open(path), offset, is_allocated=False)
        if offset % self._file_size and file.file.size == self._file_size:
            file.file.close()
            raise ForeignFile(path, f"a name that is a multiple of the file size {self._file_size}")
        return file

    def _create(self, offset: int) -> None:
        self._take_up_next()
        if self._mapped_files and self.end_offset > offset:
            return
        if self._is_sparse and self._mapped_files:
            # Name and size of a file before the next one is created, so that a crash leaves no gap between files. Data
            # that may be wrong after a crash is then only in the last file, or after the owner's durable end.
            self._mapped_files[-1].file.sync()
            self._files.sync_directory(self._directory)
        file = self._files.create(self._path(offset), self._file_size, is_sparse=self._is_sparse)
        self._has_new_name = self._is_sparse
        if not self._is_sparse:
            self._files.sync_directory(self._directory)
        self._mapped_files.append(MappedFile(file, offset, is_allocated=not self._is_sparse))

    def _take_up_next(self) -> None:
        """Add the file of `prepare_next` if it is created."""
        job, self._next = self._next, None
        file = None if job is None else job.make()
        if file is not None:
            self._mapped_files.append(MappedFile(file, self.end_offset, is_allocated=True))

    def _drop(self, file: MappedFile) -> None:
        if file.is_dirty:
            self._dirty.remove(file)
        self._files.remove(file.path)
        self._files.sync_directory(self._directory)
        file.file.discard()

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{name_of(offset)}"


def name_of(offset: int) -> str:
    """Return the name of the file that begins at an offset."""
    return f"{offset:0{_NAME_DIGITS}d}"

"""Replaces missing files of a plain log, and missing parts of files, by zeros, if an operator accepts the loss.

A log is a sequence of files without gaps. Zeros in place of the lost bytes keep every later record at its offset;
recovery skips the zeros like any other damage. Zeros are added only where the other files prove the loss:

* a file between two others is missing, according to their names;
* a file is shorter than the configured size, and another file follows it, or records after its end were durable
  according to the checkpoint.

Left to the operator is a file that is too long, with the command that shortens it (`store.errors.WrongFileSize`): its
last bytes may be needed, and with a wrong file size in the settings every file is too long. So is a log that lacks more
files than it has: probably one of them belongs to another store (`store.errors.MissingFile`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.fs.mapped.mapped_file_queue import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.fs.ports import File, Files

_NEW_SUFFIX: Final = ".new"
_CHUNK_SIZE_BYTES: Final = 4 << 20
# That many files may be missing, also if fewer are there.
_MISSING_FILES_MIN: Final = 8


def replace_lost_files(files: Files, directory: str, file_size: int, durable_end: int) -> list[str]:
    """Complete the files of a log in number and size; return a sentence for each change.

    Args:
        files: the file system.
        directory: of the log's files.
        file_size: bytes of each file.
        durable_end: records up to this offset were durable; 0: unknown.

    Raises:
        store.errors.DiskFull, StorageFailed: some of the files may have been changed.
    """
    names = sorted(files.list_directory(directory))
    for name in [name for name in names if name.endswith(_NEW_SUFFIX)]:
        files.remove(f"{directory}/{name}")
        names.remove(name)
    if not names or not all(name.isdecimal() and name == name_of(int(name)) for name in names):
        return []  # foreign files are refused later
    offsets = [int(name) for name in names]
    missing_count = (offsets[-1] - offsets[0]) // file_size + 1 - len(offsets)
    if any(offset % file_size for offset in offsets) or missing_count > max(len(offsets), _MISSING_FILES_MIN):
        return []  # so is a gap
    notes: list[str] = []
    for offset in range(offsets[0], offsets[-1] + file_size, file_size):
        path = f"{directory}/{name_of(offset)}"
        if not files.exists(path):
            files.create(path, file_size, is_sparse=True).close()
            notes.append(f"{path}: was missing; a file of zeros was created")
        elif not files.is_directory(path):
            durable_size = file_size if offset < offsets[-1] else durable_end - offset
            notes += _lengthened(files, path, file_size, durable_size)
    if notes:
        files.sync_directory(directory)
    return notes


def _lengthened(files: Files, path: str, file_size: int, durable_size: int) -> Iterator[str]:
    """Extend a file with zeros, durably, if it is shorter than `durable_size`."""
    file = files.open(path)
    size = file.size
    try:
        if size >= min(durable_size, file_size):
            return
        files.create_from(f"{path}{_NEW_SUFFIX}", _chunks(file, file_size))
    finally:
        file.close()
    files.rename(f"{path}{_NEW_SUFFIX}", path)
    yield f"{path}: had only {size} bytes; {file_size - size} zeros were added"


def _chunks(file: File, file_size: int) -> Iterator[bytes]:
    for begin in range(0, file.size, _CHUNK_SIZE_BYTES):
        yield file.read(begin, min(_CHUNK_SIZE_BYTES, file.size - begin))
    for begin in range(file.size, file_size, _CHUNK_SIZE_BYTES):
        yield bytes(min(_CHUNK_SIZE_BYTES, file_size - begin))

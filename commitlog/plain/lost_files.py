"""Replaces missing files of a plain log, and missing parts of files, by zeros, if an operator accepts the loss.

A log is a sequence of files without gaps. Zeros in place of the lost bytes keep every later record at its offset;
recovery skips the zeros like any other damage. Zeros are added only where the other files prove the loss:

* a file between two others is missing, according to their names;
* a file is shorter than the configured size, and another file follows it, or records after its end were durable
  according to the checkpoint.

A file that is too long is left to the operator, with the command that shortens it (`store.errors.WrongFileSize`): its
last bytes may be needed, and with a wrong file size in the settings every file is too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.fs.mapped_file_queue import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.fs.ports import Files

_NEW_SUFFIX: Final = ".new"
_CHUNK_SIZE_BYTES: Final = 4 << 20


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
    if not names or not all(name.isdecimal() and not int(name) % file_size for name in names):
        return []  # foreign files are refused later
    offsets = [int(name) for name in names]
    notes: list[str] = []
    for offset in range(offsets[0], offsets[-1] + file_size, file_size):
        path = f"{directory}/{name_of(offset)}"
        if not files.exists(path):
            files.create(path, file_size, is_sparse=True).close()
            notes.append(f"{path}: was missing; replaced by zeros")
        elif not files.is_directory(path):
            durable_size = file_size if offset < offsets[-1] else durable_end - offset
            notes += _lengthened(files, path, file_size, durable_size)
    if notes:
        files.sync_directory(directory)
    return notes


def _lengthened(files: Files, path: str, file_size: int, durable_size: int) -> Iterator[str]:
    """Extend a file with zeros, durably, unless it contains all of its `durable_size` bytes."""
    file = files.open(path)
    size = file.size
    try:
        if size >= min(durable_size, file_size):
            return
        files.create_from(f"{path}{_NEW_SUFFIX}", _chunks(file.read(0, size), file_size - size))
    finally:
        file.close()
    files.rename(f"{path}{_NEW_SUFFIX}", path)
    yield f"{path}: had only {size} bytes; {file_size - size} zeros were added"


def _chunks(content: bytes, zero_count: int) -> Iterator[bytes]:
    yield content
    for begin in range(0, zero_count, _CHUNK_SIZE_BYTES):
        yield bytes(min(_CHUNK_SIZE_BYTES, zero_count - begin))

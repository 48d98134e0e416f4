"""Files of a plain log that are gone, or are cut short, replaced by zeros: only when an operator does without them.

A log is a run of files without gaps. Zeros in the place of what is lost keep every later record at its offset; recovery
then passes over the zeros like over any other damage. Only what the other files prove is made:

* a file between two others is missing: their names say so;
* a file is shorter than the size that files have here: another file follows it, or the checkpoint says that records
  after its end were durable.

A file that is too long is left to the operator, with the command that cuts it (`store.errors.WrongFileSize`): what its
last bytes are is not known, and where the settings name another file size every file is too long.
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
    """Make the files of a log whole in number and size; return a sentence for each that was made.

    Args:
        files: the file system.
        directory: of the log's files.
        file_size: bytes of each file.
        durable_end: records up to this offset were durable; 0: not known.

    Raises:
        store.errors.DiskFull, StorageFailed: some of the files may have been made.
    """
    names = sorted(files.list_directory(directory))
    for name in [name for name in names if name.endswith(_NEW_SUFFIX)]:
        files.remove(f"{directory}/{name}")
        names.remove(name)
    if not names or not all(name.isdecimal() and not int(name) % file_size for name in names):
        return []  # what does not belong there is refused later
    offsets = [int(name) for name in names]
    notes: list[str] = []
    for offset in range(offsets[0], offsets[-1] + file_size, file_size):
        path = f"{directory}/{name_of(offset)}"
        if not files.exists(path):
            files.create(path, file_size, is_sparse=True).close()
            notes.append(f"{path}: was missing; zeros were put in its place")
        elif not files.is_directory(path):
            durable_size = file_size if offset < offsets[-1] else durable_end - offset
            notes += _lengthened(files, path, file_size, durable_size)
    if notes:
        files.sync_directory(directory)
    return notes


def _lengthened(files: Files, path: str, file_size: int, durable_size: int) -> Iterator[str]:
    """Add the zeros that a file lacks, durably; not where all of its `durable_size` bytes are there."""
    file = files.open(path)
    size = file.size
    try:
        if size >= min(durable_size, file_size):
            return
        files.create_from(f"{path}{_NEW_SUFFIX}", _chunks(file.read(0, size), file_size - size))
    finally:
        file.close()
    files.rename(f"{path}{_NEW_SUFFIX}", path)
    yield f"{path}: had {size} bytes only; {file_size - size} zeros were added"


def _chunks(content: bytes, zero_count: int) -> Iterator[bytes]:
    yield content
    for begin in range(0, zero_count, _CHUNK_SIZE_BYTES):
        yield bytes(min(_CHUNK_SIZE_BYTES, zero_count - begin))

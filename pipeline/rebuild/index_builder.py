"""Builds the key index of a store from slices of its log: tasks extract keys, one process joins them in log order.

An index file is a sequence of items in log order, so its start depends on all earlier items. Extracting and hashing
keys takes most of the time. Joining is fast; one process does it file by file, so that memory does not grow with the
store.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pipeline.common.errors import NotWritable
from store.fs.linux.files import OsFiles
from store.index.key_index import KeyIndex
from store.model.dispatch_batch import DispatchBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pipeline.log.slice import Slice
    from store.index.layout import IndexLayout

# key hash, offset of its message, store timestamp of its message
_KEY: Final = np.dtype([("key_hash", np.int32), ("offset", np.int64), ("timestamp", np.int64)])


class KeyFile(NamedTuple):
    """A file with the keys of one slice.

    Attributes:
        offset: begin of the slice in the log.
        path: of the file.
        key_count: number of keys.
    """

    offset: int
    path: str
    key_count: int


class KeyExtractor:
    """Collects the keys of one slice's messages, batch by batch; `finish` writes them. A retry writes the same file.

    Args:
        part: of a plan of the whole log.
        folder: for temporary files of the build.
    """

    def __init__(self, part: Slice, folder: str) -> None:
        self._part = part
        self._folder = folder
        self._found = [np.empty(0, _KEY)]

    def add(self, batch: DispatchBatch) -> None:
        """Add the keys of the slice's next messages."""
        keys = np.empty(len(batch.key_hashes), _KEY)
        keys["key_hash"] = batch.key_hashes
        keys["offset"] = batch.physical_offsets[batch.key_rows]
        keys["timestamp"] = batch.store_timestamps[batch.key_rows]
        self._found.append(keys)

    def finish(self) -> KeyFile:
        """Write all keys to the slice's file.

        Raises: pipeline.common.errors.NotWritable: the file cannot be written.
        """
        keys = np.concatenate(self._found)
        path = Path(self._folder, f"{self._part.begin:020d}.keys")
        begun = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            begun.write_bytes(keys.data)
            begun.replace(path)
        except OSError as error:
            raise NotWritable(self._folder, str(error)) from error
        return KeyFile(self._part.begin, str(path), len(keys))


def build_index(target: str, extracted: Iterable[KeyFile], layout: IndexLayout) -> int:
    """Write the index below `target`/index from the keys of all slices; return the number of keys.

    Args:
        target: the folder to build in.
        extracted: of all slices, in any order; their files are not deleted.
        layout: of the index files.

    Raises:
        store.errors.DiskFull, store.errors.StorageFailed: a file cannot be written.
    """
    files = OsFiles()
    index = KeyIndex(files, target, layout)
    files.make_directory(f"{target}/index")
    count = 0
    try:
        for one in sorted(extracted, key=lambda one: one.offset):
            keys = np.fromfile(one.path, _KEY)
            assert len(keys) == one.key_count, one
            count += len(keys)
            if len(keys):
                index.append(_as_batch(keys))
        index.flush()
    finally:
        index.close()
    return count


def _as_batch(keys: np.ndarray[tuple[int], np.dtype[np.void]]) -> DispatchBatch:
    """Return keys as a dispatch batch with one message per key."""
    count = len(keys)
    ints, longs = np.zeros(count, np.int32), np.zeros(count, np.int64)
    offsets = keys["offset"].astype(np.int64)
    return DispatchBatch(
        begin_offset=int(offsets[0]),
        next_offset=int(offsets[-1]) + 1,
        physical_offsets=offsets,
        sizes=ints,
        queue_offsets=longs,
        tags_codes=longs,
        store_timestamps=keys["timestamp"].astype(np.int64),
        queues=(),
        queue_numbers=ints,
        is_queued=np.zeros(count, np.bool_),
        key_hashes=keys["key_hash"].astype(np.int32),
        key_rows=np.arange(count),
    )

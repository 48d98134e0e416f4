"""Checks the files of compacted topics: the manifest, and each index that it names.

Not here: whether an index agrees with the log. A reader compares each row with its record, and nothing of it is lost:
without these files everything is built again from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store.compaction.index_file import decoded
from store.compaction.manifest import MANIFEST, decode_manifest, file_path, folder_of
from store.errors import CorruptData, StorageFailed
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.fs.read_only_files import ReadOnlyFiles

_MEANING: Final = "the broker builds the indexes of compacted topics again from the log; no message is lost"
_REMEDY: Final = "Nothing needs to be done, but a disk that changes bytes should be replaced"


def check_compacted(files: ReadOnlyFiles, root: str) -> Iterator[Finding]:
    """Yield the faults of the files of compacted topics in a store that no process has open.

    Args:
        files: the file system.
        root: the store's directory.
    """
    path = f"{folder_of(root)}/{MANIFEST}"
    try:
        raw = files.read_bytes(path)
        manifest = None if raw is None else decode_manifest(raw)
    except (StorageFailed, ValueError) as error:
        yield Finding(Area.FILES, path, 0, "a manifest with its checksum", str(error), _MEANING, _REMEDY)
        return
    for key, name in () if manifest is None else manifest.files.items():
        index_path = file_path(root, key, name)
        try:
            rows = decoded(index_path, files.open(index_path).view()).rows
        except CorruptData as error:
            yield Finding(Area.FILES, index_path, error.position, error.expected, error.found, _MEANING, _REMEDY)
        except StorageFailed as error:
            yield Finding(Area.FILES, index_path, 0, "the index of a queue", str(error.reason), _MEANING, _REMEDY)
        else:
            if not (np.diff(rows["offset"]) > 0).all():
                found = "others"
                yield Finding(Area.FILES, index_path, 0, "ascending queue offsets", found, _MEANING, _REMEDY)

"""The committed part of a replicated log that was closed, by the checkpoint of its node.

A node stops with entries of which it does not know whether they are committed: no queue and no index has their
messages. The next start adds them when they are committed, or they are truncated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dledger.entries.format.entry import INDEX_UNIT, INDEX_UNIT_SIZE
from dledger.storage.checkpoint import FILE_NAME, parse_checkpoint
from dledger.storage.properties import is_checked
from store.errors import StorageFailed

if TYPE_CHECKING:
    from store.fs.read_only_files import ReadOnlyFiles

_INDEX_NAME: Final = "index"


def committed_end(files: ReadOnlyFiles, node_directory: str) -> int | None:
    """Return the offset in the log of the first entry that is not known to be committed.

    Args:
        files: the file system.
        node_directory: `dledger-<id>` of a node that was closed.

    Returns:
        None if all entries are known to be committed, or if it is not known: the checkpoint cannot be read, or it is
        of DLedger, whose checkpoint is older than the log; or the index has no unit of that entry.
    """
    try:
        content = files.read_bytes(f"{node_directory}/{FILE_NAME}") or b""
        checkpoint = parse_checkpoint(content) if is_checked(content) else None
        if checkpoint is None or checkpoint.committed_index >= checkpoint.end_index:
            return None
        return _position_of(files, f"{node_directory}/{_INDEX_NAME}", checkpoint.committed_index + 1)
    except StorageFailed:
        # The check of the node's files reports it.
        return None


def _position_of(files: ReadOnlyFiles, folder: str, index: int) -> int | None:
    """Return the position of an entry by its index unit; None without one."""
    place = index * INDEX_UNIT_SIZE
    begins = [int(name) for name in files.list_directory(folder) if name.isascii() and name.isdecimal()]
    begin = max((each for each in begins if each <= place), default=None)
    if begin is None:
        return None
    content = files.open(f"{folder}/{begin:020d}").view()
    if place - begin + INDEX_UNIT_SIZE > len(content):
        return None
    _, position, _, found, _ = INDEX_UNIT.unpack_from(content, place - begin)
    return position if found == index else None

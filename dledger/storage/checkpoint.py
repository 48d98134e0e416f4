"""The durable part of the log: the file `checkpoint`, in the text form of DLedger 0.3.

    committedIndex=149
    endIndex=149
    isFlushSync=true

with a checksum (see `dledger.storage.properties`). Java's has the first two lines and no checksum.

`endIndex`: entries up to it were synced here, so if one of them is missing or invalid, it was damaged, not lost in a
crash. It also bounds the work of recovery. The index may be too low, but never too high: before a truncation below it,
it is lowered, or the file is removed. A missing or unreadable checkpoint is ignored.

`committedIndex`: entries up to it are committed, but only if entries are acknowledged after a sync: else a power cut of
a majority can revoke a commit. So only a checkpoint of this program with `isFlushSync` forbids the truncation of
entries up to it (`commit_floor`, ADR 29).

Source: DLedger 0.3 `DLedgerMmapFileStore.persistCheckPoint` (whose endIndex is written, not synced).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.storage.properties import format_checked, is_checked, parse_checked
from dledger.types import NO_INDEX
from store.errors import DiskFull

if TYPE_CHECKING:
    from store.fs.ports import Files

FILE_NAME = "checkpoint"
_COMMITTED_KEY = "committedIndex"
_END_KEY = "endIndex"
_SYNC_KEY = "isFlushSync"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        end_index: entries up to this one were durable here; -1: unknown.
        committed_index: entries up to this one were known to be committed; at most `end_index`.
        commit_floor: `committed_index`, if the file has a checksum and entries were acknowledged only after they were
            durable: nothing up to it may ever be truncated; else -1. Set by `load`.
    """

    end_index: int = NO_INDEX
    committed_index: int = NO_INDEX
    commit_floor: int = NO_INDEX


def parse_checkpoint(content: bytes) -> Checkpoint | None:
    """Return the checkpoint in the content of a file; None if it is none."""
    try:
        properties = parse_checked(content)
        end_index = int(properties[_END_KEY])
        committed_index = int(properties.get(_COMMITTED_KEY, NO_INDEX))
    except (ValueError, KeyError):
        return None
    committed_index = min(committed_index, end_index)
    is_floor = is_checked(content) and properties.get(_SYNC_KEY) == "true"
    return Checkpoint(end_index, committed_index, committed_index if is_floor else NO_INDEX)


class CheckpointFile:
    """Loads, saves and revokes the checkpoint. `save` may run in another thread than `withdraw`.

    Args:
        files, directory: the file system and the directory of the file.
        is_flush_sync: entries are acknowledged only when they are durable.
    """

    __slots__ = ("_directory", "_files", "_generation", "_is_flush_sync", "_lock", "_path", "_saved")

    def __init__(self, files: Files, directory: str, *, is_flush_sync: bool = False) -> None:
        self._is_flush_sync = is_flush_sync
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        # Held while the file is replaced or removed, and, after `load`, while the next two fields change.
        self._lock = threading.Lock()
        # Only grows; a save of an earlier generation is dropped.
        self._generation = 0
        # The content of the file that this process loaded or saved last.
        self._saved = Checkpoint()

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._path

    @property
    def generation(self) -> int:
        """The number of withdrawals: a save that was prepared before a withdrawal must not be executed after it."""
        return self._generation

    def load(self) -> Checkpoint:
        """Return the saved checkpoint; an empty one if there is none, or if it cannot be read."""
        found = parse_checkpoint(self._files.read_bytes(self._path) or b"")
        if found is None:
            return Checkpoint()
        self._saved = found
        return found

    def save(self, checkpoint: Checkpoint, generation: int) -> None:
        """Save `checkpoint`, unless one was withdrawn since `generation` was read.

        Raises:
            store.errors.DiskFull: harmless; the older checkpoint stays valid.
            store.errors.StorageFailed: the node must stop.
        """
        with self._lock:
            if generation == self._generation:
                self._replace(checkpoint.end_index, checkpoint.committed_index)

    def withdraw(self, first_index: int) -> None:
        """Lower the checkpoint durably below `first_index`, because entries from there on are to be truncated.

        The commit floor is kept: the node may crash before the next checkpoint.

        Raises:
            store.errors.StorageFailed: the node must stop, and must not truncate.
        """
        with self._lock:
            self._generation += 1
            saved = self._saved
            if saved.end_index < first_index:
                return
            if saved.commit_floor != NO_INDEX and first_index > 0:
                try:
                    self._replace(first_index - 1, min(saved.commit_floor, first_index - 1))
                except DiskFull:
                    pass
                else:
                    return
            # Removing needs no space, so it also works on a full disk; the next save follows soon.
            self._files.remove(self._path)
            self._files.sync_directory(self._directory)
            self._saved = Checkpoint()

    def _replace(self, end_index: int, committed_index: int) -> None:
        lines = {_COMMITTED_KEY: str(committed_index), _END_KEY: str(end_index)}
        if self._is_flush_sync:
            lines[_SYNC_KEY] = "true"
        self._files.replace(self._path, format_checked(lines))
        self._saved = Checkpoint(end_index, committed_index, committed_index if self._is_flush_sync else NO_INDEX)


class CheckpointTicket:
    """A checkpoint to be saved, in any thread."""

    __slots__ = ("_checkpoint", "_file", "_generation")

    def __init__(self, file: CheckpointFile, checkpoint: Checkpoint) -> None:
        self._file = file
        self._checkpoint = checkpoint
        self._generation = file.generation

    def save(self) -> bool:
        """Save it, unless the log was truncated since; False: the disk is full, and the older one stays valid.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        try:
            self._file.save(self._checkpoint, self._generation)
        except DiskFull:
            return False
        return True

"""The file `checkpoint` of a store: how far log, queues and index are durable.

| offset | size | type | field | everything is durable up to |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | i64 | physic_msg_timestamp | the last record of this store time |
| 8 | 8 | i64 | logics_msg_timestamp | the queue units of messages of this store time |
| 16 | 8 | i64 | index_msg_timestamp | the index items of messages of this store time |
| 24 | 8 | i64 | master_flushed_offset | kept as it is found: for RocketMQ's replication |
| 32 | 8 | i64 | confirm_physical_offset | where the last record begins that was there when the store was opened |

The rest of the 4096 bytes is zero. Times are milliseconds since 1970. The five numbers lie in one sector, which a disk
writes whole or not at all, so the file is written in place, as RocketMQ does; it may lag behind, and promises nothing
that was not synced before.

Source: RocketMQ `StoreCheckpoint`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from store.errors import WrongFileSize
from store.files import File, Files

FILE_SIZE_BYTES = 4096
NAME = "checkpoint"
_CHECKPOINT = struct.Struct(">qqqqq")
# RocketMQ's allowance for times that were noted before what they stand for was durable.
_ALLOWANCE_MS = 3000


class StoreCheckpoint(NamedTuple):
    """What the file says; 0: nothing."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """The store time up to which RocketMQ counts on log and queues (`getMinTimestamp`)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _ALLOWANCE_MS)


def read_checkpoint(files: Files, root: str) -> StoreCheckpoint:
    """Return the checkpoint of a store without changing anything; one that is missing or empty promises nothing.

    Raises:
        store.errors.WrongFileSize: what is there is no checkpoint.
    """
    path = f"{root}/{NAME}"
    content = files.read_bytes(path)
    if not content:
        return StoreCheckpoint()
    if len(content) != FILE_SIZE_BYTES:
        raise WrongFileSize(path, FILE_SIZE_BYTES, len(content))
    return StoreCheckpoint._make(_CHECKPOINT.unpack_from(content))


class CheckpointFile:
    """The open file. Construct it by `open`.

    Attributes:
        checkpoint: as last written.
    """

    __slots__ = ("_file", "checkpoint")

    def __init__(self, file: File, checkpoint: StoreCheckpoint) -> None:
        self._file = file
        self.checkpoint = checkpoint

    @classmethod
    def open(cls, files: Files, root: str) -> CheckpointFile:
        """Open or create the checkpoint of a store.

        Raises:
            store.errors.WrongFileSize: what is there is no checkpoint.
            store.errors.DiskFull: there is no room for it.
        """
        path = f"{root}/{NAME}"
        checkpoint = read_checkpoint(files, root)
        content = files.read_bytes(path)
        if content == b"":  # a crash cut its creation short
            files.remove(path)
        if not content:
            files.create(path, FILE_SIZE_BYTES).close()
            files.sync_directory(root)
        return cls(files.open(path), checkpoint)

    def write(self, checkpoint: StoreCheckpoint) -> None:
        """Write the checkpoint, into the page cache; what it promises must be durable already.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        self._file.write(_CHECKPOINT.pack(*checkpoint), 0)
        self.checkpoint = checkpoint

    def sync(self) -> None:
        """Make what was written durable; any thread may call it.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        self._file.sync()

    def close(self) -> None:
        """Close the file without syncing it."""
        self._file.close()

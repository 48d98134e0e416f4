"""The file `checkpoint` of a store: the times up to which log, queues and index are durable.

| offset | size | type | field | everything is durable up to |
| ---: | ---: | --- | --- | --- |
| 0 | 8 | i64 | physic_msg_timestamp | the last record of this store time |
| 8 | 8 | i64 | logics_msg_timestamp | the queue units of messages of this store time |
| 16 | 8 | i64 | index_msg_timestamp | the index items of messages of this store time |
| 24 | 8 | i64 | master_flushed_offset | for RocketMQ's replication; kept unchanged |
| 32 | 8 | i64 | confirm_physical_offset | offset of the last record when the store was opened |

RocketMQ writes these five numbers and never reads the rest of the page. We store our *seal* there:

| offset | size | type | field | meaning |
| ---: | ---: | --- | --- | --- |
| 256 | 8 | bytes | magic | `dlseal1` and a line feed |
| 264 | 8 | i64 | log_end | all records of a plain log below this offset are durable; 0: unknown |
| 272 | 8 | i64 | queues_digest | CRC-32C of the end of each queue when the store was closed cleanly; -1: unknown |
| 280 | 8 | i64 | index_digest | the same for the files of the index; 0, also while it is open: there is none |
| 288 | 4 | u32 | numbers_crc | CRC-32C of the 40 bytes at 0 |
| 292 | 4 | u32 | crc | CRC-32C of the 36 bytes at 256 |

A checkpoint whose seal does not match was written by another program (RocketMQ, or an older version of this one), or
damaged. RocketMQ records times of units that it has not synced, so such a checkpoint is ignored for queues and index
after an unclean exit (`store.dispatch.recovery`).

All other bytes are zero. Times are milliseconds since 1970. Numbers and seal are in one sector, which a disk writes
atomically, so the file is written in place, as in RocketMQ; it may be outdated, but never exceeds the synced part.

Source: RocketMQ `StoreCheckpoint`.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from store.errors import WrongFileSize

if TYPE_CHECKING:
    from store.fs.ports import File, Files

FILE_SIZE_BYTES = 4096
NAME = "checkpoint"
LOGICS_POSITION: Final = 8
SEAL_POSITION: Final = 256
NO_DIGEST: Final = -1
_CHECKPOINT = struct.Struct(">qqqqq")
NUMBERS_SIZE: Final = _CHECKPOINT.size
_SEAL = struct.Struct(">8sqqqI")
_CRC = struct.Struct(">I")
SEAL_SIZE: Final = _SEAL.size + _CRC.size
_SEAL_MAGIC: Final = b"dlseal1\n"
# A disk writes this number of bytes atomically; a power cut must not separate numbers and seal.
_WRITTEN_SIZE: Final = 512


class StoreCheckpoint(NamedTuple):
    """The content of the file; 0: unknown. See the module's tables; `is_sealed`: the seal exists and matches."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    log_end: int = 0
    queues_digest: int = NO_DIGEST
    index_digest: int = NO_DIGEST
    is_sealed: bool = False

    @property
    def java_derived_timestamp(self) -> int:
        """Store time of the last message that RocketMQ dispatched or indexed; 0: the checkpoint is sealed or missing.

        For our own checkpoints the seal has more precise data: the end of the log.
        """
        return 0 if self.is_sealed else max(self.logics_msg_timestamp, self.index_msg_timestamp, 0)


class StoreCheckpointFile:
    """The open file. Construct it by `open`.

    Attributes:
        checkpoint: the last written content.
    """

    __slots__ = ("_file", "_files", "_root", "checkpoint")

    def __init__(self, files: Files, root: str, file: File | None, checkpoint: StoreCheckpoint) -> None:
        self._files = files
        self._root = root
        # None: the file does not exist yet.
        self._file = file
        self.checkpoint = checkpoint

    @classmethod
    def open(cls, files: Files, root: str) -> StoreCheckpointFile:
        """Open the checkpoint of a store; a missing file is created by the first `write`.

        Raises:
            store.errors.WrongFileSize: the file is not a checkpoint.
        """
        checkpoint = read_checkpoint(files, root)
        path = f"{root}/{NAME}"
        return cls(files, root, files.open(path) if files.read_bytes(path) else None, checkpoint)

    def _create(self) -> File:
        path = f"{self._root}/{NAME}"
        if self._files.exists(path):  # a crash interrupted its creation
            self._files.remove(path)
        self._files.create(path, FILE_SIZE_BYTES).close()
        self._files.sync_directory(self._root)
        return self._files.open(path)

    def write(self, checkpoint: StoreCheckpoint) -> None:
        """Write the sealed checkpoint to the page cache; the data that it covers must already be durable.

        Raises:
            store.errors.DiskFull: there is no space to create it.
            store.errors.StorageFailed: the node must stop.
        """
        if self._file is None:
            self._file = self._create()
        self._file.write(encode_checkpoint(checkpoint), 0)
        self.checkpoint = checkpoint._replace(is_sealed=True)

    def sync(self) -> None:
        """Make the last write durable; any thread may call it.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file without syncing it."""
        if self._file is not None:
            self._file.close()


class SealState(Enum):
    """Whether the seal of a page matches its numbers."""

    NONE = "there is none"
    FITS = "it was written with these numbers"
    OTHER_NUMBERS = "the numbers were written later, by another program, or are damaged"
    DAMAGED = "these bytes are not a seal"


def seal_state(content: bytes) -> SealState:
    """Return the state of a page's seal; the page contains at least the five numbers."""
    seal = content[SEAL_POSITION : SEAL_POSITION + SEAL_SIZE]
    if not any(seal):
        return SealState.NONE
    if len(seal) < SEAL_SIZE or not seal.startswith(_SEAL_MAGIC) or seal[-_CRC.size :] != _crc_of(seal[: -_CRC.size]):
        return SealState.DAMAGED
    is_fitting = _SEAL.unpack_from(seal)[-1] == crc32c(content[: _CHECKPOINT.size])
    return SealState.FITS if is_fitting else SealState.OTHER_NUMBERS


def decode_checkpoint(content: bytes) -> StoreCheckpoint:
    """Return the checkpoint in a page of at least the five numbers; a seal that does not match is ignored."""
    found = StoreCheckpoint(*_CHECKPOINT.unpack_from(content))
    if seal_state(content) is not SealState.FITS:
        return found
    _, log_end, queues_digest, index_digest, _ = _SEAL.unpack_from(content, SEAL_POSITION)
    return found._replace(log_end=log_end, queues_digest=queues_digest, index_digest=index_digest, is_sealed=True)


def encode_checkpoint(checkpoint: StoreCheckpoint) -> bytes:
    """Return the sealed bytes for the start of the page."""
    numbers = _CHECKPOINT.pack(*checkpoint[:5])
    fields = (checkpoint.log_end, checkpoint.queues_digest, checkpoint.index_digest)
    seal = _SEAL.pack(_SEAL_MAGIC, *fields, crc32c(numbers))
    return (numbers.ljust(SEAL_POSITION, b"\0") + seal + _crc_of(seal)).ljust(_WRITTEN_SIZE, b"\0")


def _crc_of(content: bytes) -> bytes:
    return _CRC.pack(crc32c(content))


def read_checkpoint(files: Files, root: str) -> StoreCheckpoint:
    """Return the checkpoint of a store, read-only; for a missing or empty file all values are unknown.

    Raises:
        store.errors.WrongFileSize: the file is not a checkpoint.
    """
    path = f"{root}/{NAME}"
    content = files.read_bytes(path)
    if not content:
        return StoreCheckpoint()
    if len(content) != FILE_SIZE_BYTES:
        raise WrongFileSize(path, FILE_SIZE_BYTES, len(content))
    return decode_checkpoint(content)

"""What a stretch of the log means for queues and index: columns, one row a message.

A `CommitLog` makes it from records (`commitlog.record_scan`), consume queues and the index are built from it; so that
neither loops over messages one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from store.message import QueueKey

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes of the log that hold no readable record.

    Attributes:
        path: the file.
        position: within the file.
        offset: in the log.
        size: bytes left out; reading goes on behind them.
        expected: what should stand there.
        found: what stands there.
    """

    path: str
    position: int
    offset: int
    size: int
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class DispatchBatch:
    """Consecutive records of the log. All columns have one row a message, in the order of the log.

    Attributes:
        begin_offset: where the stretch begins in the log.
        next_offset: where the next one begins; also behind blanks and what was skipped.
        physical_offsets: of each record.
        sizes: bytes of each record.
        queue_offsets: as stored.
        tags_codes: what the queue's unit holds: the hash of TAGS, or a delivery time.
        store_timestamps: milliseconds since 1970.
        queues: the queues that occur, in order of first occurrence.
        queue_numbers: each message's queue, as a place in `queues`.
        is_queued: whether it stands in its queue (not so: prepared and rolled-back messages).
        key_hashes: of the keys to be indexed, of all messages one behind the other: abs(Java's hash of `topic#key`),
            UNIQ_KEY before KEYS in their order; repeated keys are there repeatedly.
        key_rows: the message (its row) that each key belongs to, ascending.
        skipped: what could not be read.
    """

    begin_offset: int
    next_offset: int
    physical_offsets: Int64s
    sizes: Int32s
    queue_offsets: Int64s
    tags_codes: Int64s
    store_timestamps: Int64s
    queues: Sequence[QueueKey]
    queue_numbers: Int32s
    is_queued: Bools
    key_hashes: Int32s
    key_rows: Int64s
    skipped: Sequence[Skipped] = ()

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.physical_offsets)

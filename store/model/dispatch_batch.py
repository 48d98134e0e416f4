"""The messages of a range of the log as columns for queues and index, one row per message.

A `CommitLog` creates it from records (`commitlog.record.scan`), and consume queues and the index are built from it, so
that neither processes messages one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from store.model.skipped import Skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.message import QueueKey

__all__ = ["Bools", "DispatchBatch", "Int32s", "Int64s", "Skipped", "first_rows", "rows_from"]

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DispatchBatch:
    """Consecutive records of the log. All columns have one row per message, in the order of the log.

    Attributes:
        begin_offset: of the range in the log.
        next_offset: begin of the next range, after blanks and skipped bytes.
        physical_offsets: of each record.
        sizes: bytes of each record.
        queue_offsets: as stored.
        tags_codes: for the queue's unit: the hash of TAGS, or a delivery time.
        store_timestamps: milliseconds since 1970.
        queues: the distinct queues, in order of first occurrence.
        queue_numbers: each message's queue, as an index of `queues`.
        is_queued: whether it is in its queue (False for prepared and rolled-back messages).
        key_hashes: of the keys to be indexed, of all messages one after the other: abs(Java's hash of `topic#key`),
            UNIQ_KEY before KEYS in their order; duplicates are kept.
        key_rows: the row of each key's message, ascending.
        skipped: the unreadable ranges.
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

    @property
    def last_store_timestamp(self) -> int | None:
        """Store timestamp of the last message; None: there is none."""
        return int(self.store_timestamps[-1]) if len(self) else None


def rows_from(batch: DispatchBatch, offset: int) -> DispatchBatch:
    """Return the rows of a batch for the records at `offset` and after it."""
    if offset <= batch.begin_offset:
        return batch
    first = int(np.searchsorted(batch.physical_offsets, offset))
    keys_from = int(np.searchsorted(batch.key_rows, first))
    return replace(
        batch,
        begin_offset=offset,
        physical_offsets=batch.physical_offsets[first:],
        sizes=batch.sizes[first:],
        queue_offsets=batch.queue_offsets[first:],
        tags_codes=batch.tags_codes[first:],
        store_timestamps=batch.store_timestamps[first:],
        queue_numbers=batch.queue_numbers[first:],
        is_queued=batch.is_queued[first:],
        key_hashes=batch.key_hashes[keys_from:],
        key_rows=batch.key_rows[keys_from:] - first,
    )


def first_rows(batch: DispatchBatch, count: int) -> DispatchBatch:
    """Return the first `count` messages of a larger batch, with their queues."""
    end = int(batch.physical_offsets[count])
    numbers, places = np.unique(batch.queue_numbers[:count], return_inverse=True)
    keys_end = int(np.searchsorted(batch.key_rows, count))
    return replace(
        batch,
        next_offset=end,
        physical_offsets=batch.physical_offsets[:count],
        sizes=batch.sizes[:count],
        queue_offsets=batch.queue_offsets[:count],
        tags_codes=batch.tags_codes[:count],
        store_timestamps=batch.store_timestamps[:count],
        queues=[batch.queues[number] for number in numbers.tolist()],
        queue_numbers=places.astype(np.int32),
        is_queued=batch.is_queued[:count],
        key_hashes=batch.key_hashes[:keys_end],
        key_rows=batch.key_rows[:keys_end],
        skipped=[skipped for skipped in batch.skipped if skipped.offset < end],
    )

"""The rows of a compacted queue's index, and the rule for those that are kept. Pure functions of arrays.

One row for each key: its latest message. Of two rows with one key the one with the higher queue offset is kept; of two
records of one message (the original and a copy, see `store.compaction.compaction`) the one later in the log. A row
whose message has an empty body (a *tombstone*) is kept for a time, then dropped. The result does not depend on the
order in which rows are merged, or on how often.

Keys are compared by digests of 16 bytes. A message without keys, or whose record is damaged, has a key of its own.

Source: RocketMQ `CompactionLog`; there a tombstone is dropped at once.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Rows = NDArray[np.void]

ROW_SIZE_BYTES: Final = 48
TOMBSTONE: Final = 1
# The columns: queue offset; offset and size of the record in the log; its store timestamp (milliseconds since 1970);
# the digest of the key; TOMBSTONE or 0.
ROW: Final = np.dtype(
    [
        ("offset", "<i8"),
        ("place", "<i8"),
        ("time", "<i8"),
        ("key", "S16"),
        ("size", "<i4"),
        ("flags", "<i4"),
    ]
)
assert ROW.itemsize == ROW_SIZE_BYTES
# Rows that are examined together: about a millisecond.
_CHUNK_ROWS: Final = 16_384


def key_digest(keys: str) -> bytes:
    """Return the digest of a message's keys, 16 bytes; the whole text is one key, as in RocketMQ."""
    return blake2b(keys.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def own_digest(queue_offset: int) -> bytes:
    """Return the digest of a message without keys: no other message of its queue has it."""
    return blake2b(queue_offset.to_bytes(8, "big"), digest_size=16, person=b"own").digest()


def no_rows() -> Rows:
    """Return an empty array of rows."""
    return np.empty(0, ROW)


class Merge:
    """Merges the rows of an index with new ones.

    Its arrays have one byte for each old row, and at most three times the size of the new rows.

    Args:
        old: of the index, ascending by offset, each key once; may be mapped from a file.
        new: in any order.
        log_begin: rows with an older place are dropped: the log has deleted their records.
        tombstones_before_ms: tombstones stored before this time are dropped.

    Attributes:
        lost_count: rows that were dropped because the log has deleted their records.
    """

    def __init__(self, old: Rows, new: Rows, *, log_begin: int, tombstones_before_ms: int) -> None:
        self._old = old
        self._log_begin = log_begin
        self._tombstones_before_ms = tombstones_before_ms
        self.lost_count = 0
        newest = _latest_of(new)
        is_kept = np.ones(len(newest), np.bool_)
        self._is_old_kept = np.empty(len(old), np.bool_)
        keys = newest["key"].copy()
        for begin in range(0, len(old), _CHUNK_ROWS):
            part = old[begin : begin + _CHUNK_ROWS]
            self._is_old_kept[begin : begin + _CHUNK_ROWS] = _beats(part, newest, keys, is_kept) & self._needed(part)
        newest = newest[is_kept]
        newest = newest[self._needed(newest)]
        self._new = newest[np.argsort(newest["offset"], kind="stable")]

    @property
    def count(self) -> int:
        """The number of rows of the result."""
        return int(np.count_nonzero(self._is_old_kept)) + len(self._new)

    def chunks(self) -> Iterator[Rows]:
        """Yield the result, ascending by offset."""
        new, done = self._new, 0
        offsets = new["offset"].copy()
        for begin in range(0, len(self._old), _CHUNK_ROWS):
            part = self._old[begin : begin + _CHUNK_ROWS]
            kept = part[self._is_old_kept[begin : begin + _CHUNK_ROWS]]
            end = int(np.searchsorted(offsets, part["offset"][-1], side="right"))
            joined = np.concatenate((kept, new[done:end]))
            done = end
            yield joined[np.argsort(joined["offset"], kind="stable")]
        yield new[done:]

    def _needed(self, rows: Rows) -> NDArray[np.bool_]:
        is_lost = rows["place"] < self._log_begin
        self.lost_count += int(np.count_nonzero(is_lost))
        is_expired = (rows["flags"] == TOMBSTONE) & (rows["time"] < self._tombstones_before_ms)
        needed: NDArray[np.bool_] = ~(is_lost | is_expired)
        return needed


def _latest_of(rows: Rows) -> Rows:
    """Return the latest row of each key, ascending by key."""
    ordered = rows[np.lexsort((rows["place"], rows["offset"], rows["key"]))]
    is_last = np.ones(len(ordered), np.bool_)
    is_last[:-1] = ordered["key"][1:] != ordered["key"][:-1]
    return ordered[is_last]


def _beats(rows: Rows, newest: Rows, keys: NDArray[Any], is_kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the rows that no new row replaces; clear `is_kept` of the new rows that an old one replaces."""
    if not len(newest):
        return np.ones(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(keys, rows["key"]), len(newest) - 1)
    is_same = keys[at] == rows["key"]
    rival = newest[at]
    is_later = (rows["offset"] > rival["offset"]) | (
        (rows["offset"] == rival["offset"]) & (rows["place"] >= rival["place"])
    )
    is_kept[at[is_same & is_later]] = False
    stays: NDArray[np.bool_] = ~is_same | is_later
    return stays

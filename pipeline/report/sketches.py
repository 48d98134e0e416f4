"""Mergeable summaries of many values in little memory: the parts of a report.

| sketch | answers | error |
| --- | --- | --- |
| buckets of values | percentiles, histograms | the answer is at most 1/32 above the value |
| `HeavyHitters` | the most frequent names | each count is at most `error` too low |
| `KeySample` | number of repeated keys | none up to its limit; then a sample of 1 in 2^level, chosen by hash |
| `OffsetRuns` | missing queue offsets | none up to its limit of runs |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commitlog.record.rows import gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.model.dispatch_batch import Int64s

UInt64s = NDArray[np.uint64]

_SUB_BITS: Final = 5
_SUBS: Final = 1 << _SUB_BITS
_VALUE_BITS: Final = 40
VALUE_MAX: Final = (1 << _VALUE_BITS) - 1
BUCKETS: Final = (_VALUE_BITS - _SUB_BITS + 1) * _SUBS


def buckets_of(values: Int64s) -> Int64s:
    """Return the bucket of each value: its five highest bits, and the number of lower bits.

    Values below 0 count as 0, those of 2^40 and more as 2^40 - 1.
    """
    values = np.clip(values, 0, VALUE_MAX)
    # Exact, because 40 bits fit into the 53 bits of a float.
    shifts = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1 - _SUB_BITS, 0)
    found: Int64s = shifts * _SUBS + (values >> shifts)
    return found


def bucket_begins() -> Int64s:
    """Return the smallest value of each bucket, and the end of the last bucket."""
    numbers = np.arange(BUCKETS + 1, dtype=np.int64)
    shifts = np.maximum(numbers // _SUBS - 1, 0)
    begins: Int64s = (numbers - shifts * _SUBS) << shifts
    return begins


_BEGINS: Final = bucket_begins()


def percentile(counts: Int64s, share: float) -> int | None:
    """Return the percentile for a share of 0 to 1, as the largest value of its bucket; None: no values."""
    total = int(counts.sum())
    if not total:
        return None
    rank = max(int(np.ceil(share * total)), 1)
    bucket = int(np.searchsorted(np.cumsum(counts), rank))
    return int(_BEGINS[bucket + 1]) - 1


@dataclass(slots=True)
class HeavyHitters:
    """The most frequent names in a stream of any length (Misra and Gries).

    Attributes:
        size_max: most names to keep.
        counts: by name; each is at most `error` below the true count, never above it.
        error: at most the length of the stream divided by `size_max`.
    """

    size_max: int
    counts: dict[str, int] = field(default_factory=dict)
    error: int = 0

    def add(self, values: pa.Array) -> None:
        """Count texts; nulls are skipped."""
        counted = pc.value_counts(values)
        counts: Int64s = counted.field("counts").to_numpy()
        names = counted.field("values")
        if names.null_count:
            is_name = np.asarray(names.is_valid())
            places = np.flatnonzero(is_name)
            counts, names = counts[places], names.take(pa.array(places))
        if len(counts) > self.size_max:
            # The amount that a merge subtracts from all counts is subtracted here, before conversion to Python objects.
            cut = int(np.partition(counts, -self.size_max - 1)[-self.size_max - 1])
            places = np.flatnonzero(counts > cut)
            counts, names = counts[places] - cut, names.take(pa.array(places))
            self.error += cut
        self._take(dict(zip(names.to_pylist(), counts.tolist(), strict=True)))

    def merge(self, other: HeavyHitters) -> None:
        """Add the counts of another one."""
        self.error += other.error
        self._take(other.counts)

    def top(self, count: int) -> list[tuple[str, int]]:
        """Return the most frequent names, in descending order."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:count]

    def _take(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        if len(self.counts) <= self.size_max:
            return
        cut = sorted(self.counts.values(), reverse=True)[self.size_max]
        self.counts = {name: count - cut for name, count in self.counts.items() if count > cut}
        self.error += cut


@dataclass(slots=True)
class KeySample:
    """Hashes of keys, to count repeated keys.

    Attributes:
        size_max: most hashes to keep; with more, `level` rises.
        level: only hashes that end with this many zero bits are kept: 1 key in 2^level.
        hashes: sorted, with one item for each occurrence of a key.
    """

    size_max: int
    level: int = 0
    hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))

    def add(self, hashes: UInt64s) -> None:
        """Add the hashes of some keys."""
        self._take([hashes[_is_kept(hashes, self.level)]])

    def merge(self, other: KeySample) -> None:
        """Add the hashes of another sample."""
        level = max(self.level, other.level)
        mine = self.hashes[_is_kept(self.hashes, level)] if level > self.level else self.hashes
        self.hashes, self.level = mine, level
        self._take([other.hashes[_is_kept(other.hashes, level)]])

    def repeats(self) -> int:
        """Return the number of repeated keys in the sample."""
        return int((self.hashes[1:] == self.hashes[:-1]).sum())

    def estimate(self) -> int:
        """Return an estimate of the number of repeated keys; exact at level 0."""
        return self.repeats() << self.level

    def _take(self, more: Sequence[UInt64s]) -> None:
        merged = np.concatenate((self.hashes, *more))
        while len(merged) > self.size_max:
            self.level += 1
            merged = merged[_is_kept(merged, self.level)]
        merged.sort()
        self.hashes = merged


def _is_kept(hashes: UInt64s, level: int) -> NDArray[np.bool_]:
    kept: NDArray[np.bool_] = hashes & np.uint64((1 << level) - 1) == 0
    return kept


_WORD: Final = 8
_MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_LOW_BYTES: Final[UInt64s] = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
# Of a longer key only the length and this many leading bytes are hashed.
_HASHED_MAX: Final = 256


def hash_texts(texts: pa.Array) -> UInt64s:
    """Return a 64-bit hash of each text, eight bytes of all of them at a time; a null is hashed as an empty text."""
    texts = pc.fill_null(texts, "")
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets: Int64s = np.frombuffer(offsets_buffer, np.int32, len(texts) + texts.offset + 1)[texts.offset :].astype(
        np.int64
    )
    size = int(offsets[-1]) if len(texts) else 0
    data = np.concatenate((np.frombuffer(data_buffer, np.uint8, size) if size else _NOTHING, _PADDING))
    sizes = np.diff(offsets)
    hashes: UInt64s = mix(sizes.astype(np.uint64) + _MIX_1)
    for begin in range(0, min(int(sizes.max(initial=0)), _HASHED_MAX), _WORD):
        rows = np.flatnonzero(sizes > begin)
        words = gather(data, offsets[:-1][rows] + begin, "<u8") & _LOW_BYTES[np.minimum(sizes[rows] - begin, _WORD)]
        hashes[rows] = mix(hashes[rows] ^ words)
    return hashes


_NOTHING: Final = np.empty(0, np.uint8)
_PADDING: Final = np.zeros(_WORD, np.uint8)


def mix(values: UInt64s) -> UInt64s:
    """Return mixed values: each bit depends on each bit of the input (the finaliser of xxHash64)."""
    values = (values ^ (values >> np.uint64(33))) * _MIX_2
    values = (values ^ (values >> np.uint64(29))) * _MIX_1
    mixed: UInt64s = values ^ (values >> np.uint64(32))
    return mixed


@dataclass(slots=True)
class OffsetRuns:
    """The offsets of one queue as disjoint ascending runs `[begin, end)`.

    Attributes:
        runs: at most `RUNS_MAX`.
        repeated: number of repeated offsets.
        is_cut: there were more runs, and the smallest gaps were dropped.
    """

    RUNS_MAX = 1000

    runs: list[tuple[int, int]] = field(default_factory=list)
    repeated: int = 0
    is_cut: bool = False

    def add(self, begin: int, end: int) -> None:
        """Add the offsets `[begin, end)`."""
        if self.runs and self.runs[-1][1] == begin:
            self.runs[-1] = (self.runs[-1][0], end)
            return
        if not self.runs or self.runs[-1][1] < begin:
            self.runs.append((begin, end))
        else:
            self._insert(begin, end)
        if len(self.runs) > self.RUNS_MAX:
            self._forget_a_gap()

    def merge(self, other: OffsetRuns) -> None:
        """Add the offsets of another one."""
        self.repeated += other.repeated
        self.is_cut |= other.is_cut
        for begin, end in other.runs:
            self.add(begin, end)

    def to_list(self) -> list[Any]:
        """Return the fields in JSON's types."""
        return [self.runs, self.repeated, self.is_cut]

    def gaps(self) -> list[tuple[int, int]]:
        """Return the missing ranges between the first and the last offset, as `[begin, end)`."""
        return [(before[1], after[0]) for before, after in zip(self.runs, self.runs[1:], strict=False)]

    def _insert(self, begin: int, end: int) -> None:
        kept = list[tuple[int, int]]()
        for other_begin, other_end in self.runs:
            if other_end < begin or end < other_begin:
                kept.append((other_begin, other_end))
                continue
            self.repeated += max(min(end, other_end) - max(begin, other_begin), 0)
            begin, end = min(begin, other_begin), max(end, other_end)
        self.runs = sorted([*kept, (begin, end)])

    def _forget_a_gap(self) -> None:
        gaps = self.gaps()
        place = min(range(len(gaps)), key=lambda number: gaps[number][1] - gaps[number][0])
        self.runs[place : place + 2] = [(self.runs[place][0], self.runs[place + 1][1])]
        self.is_cut = True


def sparse(counts: NDArray[Any]) -> list[list[int]]:
    """Return the counts that are not 0 as `[position, count]`."""
    places = np.flatnonzero(counts)
    return [list(pair) for pair in zip(places.tolist(), counts[places].tolist(), strict=True)]


def dense(pairs: Sequence[Sequence[int]], size: int) -> Int64s:
    """Return the array that `sparse` converted."""
    counts = np.zeros(size, np.int64)
    if pairs:
        places, values = zip(*pairs, strict=True)
        counts[list(places)] = values
    return counts

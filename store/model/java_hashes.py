"""Java's `String.hashCode` of thousands of texts at once; see `store.model.java_hash` for one text.

For an ASCII text the UTF-16 units are its bytes, which this module uses; other texts are hashed one by one.

Many texts that are in one run of bytes P are hashed with one cumulative sum: 31 has an inverse modulo 2^32, so that
with S[i] = sum of P[j] * 31^-j over all j < i, the hash of P[a:b] is (S[b] - S[a]) * 31^(b-1).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from store.model.java_hash import FACTOR, KEY_SEPARATOR, MODULUS, java_hash, key_hash, positive_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Bytes of one call of `java_hashes`: its tables have that length (1 MiB each) and stay in the CPU cache.
TEXTS_SIZE_MAX: Final = 1 << 18
_ASCII_END: Final = 0x80
# From this number on vectorized hashing is faster.
_MANY: Final = 12


def each_key_hash(keys: Sequence[tuple[str, str]]) -> list[int]:
    """Return `key_hash` of each (topic, key); many of them are hashed at once."""
    if len(keys) >= _MANY:
        texts = [f"{topic}{KEY_SEPARATOR}{key}" for topic, key in keys]
        joined = "".join(texts)
        if joined.isascii() and len(joined) <= TEXTS_SIZE_MAX:
            sizes = np.array(list(map(len, texts)), np.int64)
            ends = np.cumsum(sizes)
            hashes = java_hashes(np.frombuffer(joined.encode(), np.uint8), ends - sizes, ends).view(np.int32)
            return [positive_hash(value) for value in hashes.tolist()]
    return [key_hash(topic, key) for topic, key in keys]


def java_hashes(data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return Java's hashes, as unsigned 32-bit numbers, of many texts in `data`: those of data[begin:end].

    Args:
        data: UTF-8; at most `TEXTS_SIZE_MAX` bytes. Invalid UTF-8 is replaced by U+FFFD, as in Java.
        begins: of the texts.
        ends: of the texts, exclusive.
    """
    assert len(data) <= TEXTS_SIZE_MAX, len(data)
    powers, inverses = _tables()
    sums = np.zeros(len(data) + 1, np.uint32)
    np.cumsum(data * inverses[: len(data)], dtype=np.uint32, out=sums[1:])
    # For an empty text the difference is 0, whatever the factor.
    hashes: NDArray[np.uint32] = (sums[ends] - sums[begins]) * powers[ends - 1]
    if len(data) and data.max() >= _ASCII_END:
        for row in np.flatnonzero(_has_other_than_ascii(data, begins, ends)):
            text = data[begins[row] : ends[row]].tobytes().decode("utf-8", "replace")
            hashes[row] = java_hash(text) % MODULUS
    return hashes


def key_hashes(
    prefixes: NDArray[np.uint32],
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return `key_hash` of many keys: those of data[begin:end].

    Args:
        prefixes: for each key, `key_prefix_hash` of its topic.
        data: UTF-8; at most `TEXTS_SIZE_MAX` bytes.
        begins: of the keys.
        ends: of the keys, exclusive.
    """
    powers, _ = _tables()
    lengths = ends - begins
    if len(data) and data.max() >= _ASCII_END:
        for row in np.flatnonzero(_has_other_than_ascii(data, begins, ends)):
            text = data[begins[row] : ends[row]].tobytes().decode("utf-8", "replace")
            lengths[row] = len(text.encode("utf-16-be")) // 2
    hashes = (prefixes * powers[lengths] + java_hashes(data, begins, ends)).view(np.int32)
    # In 32 bits the absolute value of -2^31 is -2^31, the only negative number left.
    positive: NDArray[np.int32] = np.maximum(np.abs(hashes), 0)
    return positive


def _has_other_than_ascii(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    counts = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data >= _ASCII_END, out=counts[1:])
    is_other: NDArray[np.bool_] = counts[ends] != counts[begins]
    return is_other


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return 31^i and 31^-i modulo 2^32 for all required i."""
    return _powers_of(FACTOR), _powers_of(pow(FACTOR, -1, MODULUS))


def _powers_of(factor: int) -> NDArray[np.uint32]:
    factors = np.full(TEXTS_SIZE_MAX + 1, factor, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)

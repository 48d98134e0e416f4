"""Java's `String.hashCode`, which tags and keys are found by: for one text, and for thousands at once.

The hash of the UTF-16 units s[0] … s[n-1] is s[0]*31^(n-1) + … + s[n-1] in 32 bits. For a text of plain ASCII the units
are its bytes, and that is the way of the vectorised form; other texts are hashed one by one.

Many texts that stand in one run of bytes P are hashed with one cumulative sum: 31 has an inverse modulo 2^32, so that
with S[i] = sum of P[j] * 31^-j over all j < i, the hash of P[a:b] is (S[b] - S[a]) * 31^(b-1).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import mul
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MODULUS: Final = 1 << 32
_SIGN: Final = 1 << 31
_FACTOR: Final = 31
# Bytes that one call of `java_hashes` takes: its tables have that length (1 MiB each) and stay in the cache.
TEXTS_SIZE_MAX: Final = 1 << 18
_ASCII_END: Final = 0x80
# 31^n modulo 2^32, descending, for texts of up to so many characters.
_SHORT_LENGTH_MAX: Final = 256
_SHORT_POWERS: Final = tuple(pow(_FACTOR, exponent, _MODULUS) for exponent in reversed(range(_SHORT_LENGTH_MAX)))

# From here on it is faster to hash them at once.
_MANY: Final = 12
KEY_SEPARATOR: Final = "#"


def java_hash(text: str) -> int:
    """Return Java's hash of `text`: 32 bits, signed."""
    if text.isascii() and len(text) <= _SHORT_LENGTH_MAX:
        # One multiplication a character without a loop of ours: every put with a UNIQ_KEY takes this way.
        data = text.encode()
        value: int = sum(map(mul, data, _SHORT_POWERS[_SHORT_LENGTH_MAX - len(data) :])) % _MODULUS
        return value - _MODULUS if value & _SIGN else value
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * _FACTOR + (high << 8 | low)) % _MODULUS
    return value - _MODULUS if value & _SIGN else value


def positive_hash(value: int) -> int:
    """Return what the index holds for a hash: its absolute value, and 0 for the one that has none in 32 bits.

    Source: RocketMQ `IndexFile.indexKeyHashMethod`.
    """
    return 0 if value == -_SIGN else abs(value)


def key_hash(topic: str, key: str) -> int:
    """Return the hash by which the index finds `key` among the messages of `topic`: 0 to 2^31 - 1.

    Source: RocketMQ `IndexService.buildKey`.
    """
    return positive_hash(java_hash(f"{topic}{KEY_SEPARATOR}{key}"))


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
        data: UTF-8; at most `TEXTS_SIZE_MAX` bytes. What is not UTF-8 counts as U+FFFD, as in Java.
        begins: where each text begins.
        ends: behind its last byte.
    """
    assert len(data) <= TEXTS_SIZE_MAX, len(data)
    powers, inverses = _tables()
    sums = np.zeros(len(data) + 1, np.uint32)
    np.cumsum(data * inverses[: len(data)], dtype=np.uint32, out=sums[1:])
    # Of an empty text the difference is 0, whatever it is multiplied with.
    hashes: NDArray[np.uint32] = (sums[ends] - sums[begins]) * powers[ends - 1]
    if len(data) and data.max() >= _ASCII_END:
        for row in np.flatnonzero(_has_other_than_ascii(data, begins, ends)):
            text = data[begins[row] : ends[row]].tobytes().decode("utf-8", "replace")
            hashes[row] = java_hash(text) % _MODULUS
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
        begins: where each key begins.
        ends: behind its last byte.
    """
    powers, _ = _tables()
    lengths = ends - begins
    if len(data) and data.max() >= _ASCII_END:
        for row in np.flatnonzero(_has_other_than_ascii(data, begins, ends)):
            text = data[begins[row] : ends[row]].tobytes().decode("utf-8", "replace")
            lengths[row] = len(text.encode("utf-16-be")) // 2
    hashes = (prefixes * powers[lengths] + java_hashes(data, begins, ends)).view(np.int32)
    # The absolute value of the lowest number is, in 32 bits, itself: so it is the only negative one left.
    positive: NDArray[np.int32] = np.maximum(np.abs(hashes), 0)
    return positive


def key_prefix_hash(topic: str) -> int:
    """Return the hash, unsigned, of what stands before a key of `topic`: `topic#`."""
    return java_hash(topic + KEY_SEPARATOR) % _MODULUS


def _has_other_than_ascii(
    data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    counts = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data >= _ASCII_END, out=counts[1:])
    is_other: NDArray[np.bool_] = counts[ends] != counts[begins]
    return is_other


@cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return 31^i and 31^-i for all i that are needed; modulo 2^32."""
    return _powers_of(_FACTOR), _powers_of(pow(_FACTOR, -1, _MODULUS))


def _powers_of(factor: int) -> NDArray[np.uint32]:
    factors = np.full(TEXTS_SIZE_MAX + 1, factor, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)

"""Java's `String.hashCode` of one text, for tags and keys; `java_hashes` computes thousands.

The hash of the UTF-16 units s[0] … s[n-1] is s[0]*31^(n-1) + … + s[n-1] in 32 bits. This module does not use NumPy:
clients hash a key for each message, and a command that only calls a broker must not load NumPy.
"""

from __future__ import annotations

from operator import mul
from typing import Final

MODULUS: Final = 1 << 32
FACTOR: Final = 31
KEY_SEPARATOR: Final = "#"
_SIGN: Final = 1 << 31
# 31^n modulo 2^32, descending, for texts of up to this many characters.
_SHORT_LENGTH_MAX: Final = 256
_SHORT_POWERS: Final = tuple(pow(FACTOR, exponent, MODULUS) for exponent in reversed(range(_SHORT_LENGTH_MAX)))


def java_hash(text: str) -> int:
    """Return Java's hash of `text`: 32 bits, signed."""
    if text.isascii() and len(text) <= _SHORT_LENGTH_MAX:
        # One multiplication for each character, without a Python loop: every put with a UNIQ_KEY uses this.
        data = text.encode()
        value: int = sum(map(mul, data, _SHORT_POWERS[_SHORT_LENGTH_MAX - len(data) :])) % MODULUS
        return value - MODULUS if value & _SIGN else value
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * FACTOR + (high << 8 | low)) % MODULUS
    return value - MODULUS if value & _SIGN else value


def positive_hash(value: int) -> int:
    """Return the index's form of a hash: its absolute value, or 0 for -2^31.

    Source: RocketMQ `IndexFile.indexKeyHashMethod`.
    """
    return 0 if value == -_SIGN else abs(value)


def key_hash(topic: str, key: str) -> int:
    """Return the hash by which the index finds `key` among the messages of `topic`: 0 to 2^31 - 1.

    Source: RocketMQ `IndexService.buildKey`.
    """
    return positive_hash(java_hash(f"{topic}{KEY_SEPARATOR}{key}"))


def key_prefix_hash(topic: str) -> int:
    """Return the unsigned hash of the prefix of keys of `topic`: `topic#`."""
    return java_hash(topic + KEY_SEPARATOR) % MODULUS

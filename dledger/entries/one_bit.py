"""Determines whether one changed bit, or a few, explain a wrong CRC-32C, or another 32-bit checksum of that kind.

Such a checksum is linear: the difference (XOR) of two contents of one length determines that of their checksums. One
different byte gives one of 255 differences, and each byte after it applies a reversible step to that. So the steps are
reversed, one for each byte from the end, until the difference is that of one bit, or the content ends.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Final

from crc32c import crc32c

# Reflected, as are the checksums.
_CRC_32C: Final = 0x82F63B78
CRC_32: Final = 0xEDB88320
_MASK: Final = 0xFFFFFFFF


def find_one_bit(content: memoryview, checksum: int) -> int | None:
    """Return the position of the byte of `content` whose change by one bit explains the wrong checksum, if any.

    Takes about 0.2 s per MiB. Other damage is mistaken for one bit with a probability of (bits of `content`) / 2^32.
    """
    return _byte_of_one_bit(crc32c(content) ^ checksum, len(content), _CRC_32C)


def is_one_bit(difference: int, length: int, polynomial: int) -> bool:
    """Return whether `difference` can be that of the checksums of two contents that differ in one bit.

    Args:
        difference: of the checksums.
        length: of both contents, in bytes.
        polynomial: of the checksum, reflected.
    """
    return _byte_of_one_bit(difference, length, polynomial) is not None


def _byte_of_one_bit(difference: int, length: int, polynomial: int) -> int | None:
    table, before, one_bit = _tables(polynomial)
    for position in range(length - 1, -1, -1):
        if difference in one_bit:
            return position
        at = before[difference >> 24]
        difference = (difference ^ table[at]) << 8 & _MASK | at
    return None


def is_few_bits_off(content: bytes, places: range, checksum: int) -> bool:
    """Return whether up to three changed bits explain that the CRC-32C of `content` differs from `checksum`.

    Other damage is mistaken for that with a probability of n^3 / (6 * 2^32), where n = 8 * len(places) + 32: use it for
    short contents.

    Args:
        content: the content read.
        places: positions of the bytes that may have changed, in addition to the checksum.
        checksum: the checksum read.
    """
    found_checksum = crc32c(content)
    difference = found_checksum ^ checksum
    one_bit = [1 << bit for bit in range(32)]
    for place in places:
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            one_bit.append(crc32c(changed) ^ found_checksum)
    explained = {0, *one_bit}
    return (
        difference in explained
        or any(difference ^ one in explained for one in one_bit)
        or any(difference ^ one ^ other in explained for one, other in combinations(one_bit, 2))
    )


@cache
def _tables(polynomial: int) -> tuple[list[int], list[int], frozenset[int]]:
    """Return the difference for each value of the last byte, the value for each top byte, and those of one bit."""
    table = []
    for value in range(256):
        difference = value
        for _ in range(8):
            difference = difference >> 1 ^ (polynomial if difference & 1 else 0)
        table.append(difference)
    before = [0] * 256
    for value, difference in enumerate(table):
        before[difference >> 24] = value
    return table, before, frozenset(table[1 << bit] for bit in range(8))

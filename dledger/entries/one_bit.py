"""Says whether one changed bit explains a wrong CRC-32C, or another checksum of 32 bits of that kind.

Such a checksum is linear: what two contents of one length differ in alone decides what their checksums differ in. One
byte that differs gives one of 255 differences, and each byte after it moves that on by a step that can be undone. So
the steps are undone, one for each byte from the end, until the difference is that of one bit, or the content ends.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from crc32c import crc32c

# Reflected, as are the checksums.
_CRC_32C: Final = 0x82F63B78
CRC_32: Final = 0xEDB88320
_MASK: Final = 0xFFFFFFFF


def is_one_bit_off(content: memoryview, checksum: int) -> bool:
    """Return whether `content` with one bit changed has this CRC-32C.

    It takes some 0.2 s a mebibyte. Other damage is taken for one bit with a chance of (bits of `content`) / 2^32.
    """
    return is_one_bit(crc32c(content) ^ checksum, len(content), _CRC_32C)


def is_one_bit(difference: int, length: int, polynomial: int) -> bool:
    """Return whether the checksums of two contents that differ in one bit alone differ like this.

    Args:
        difference: of the checksums.
        length: of both contents, in bytes.
        polynomial: of the checksum, reflected.
    """
    table, before, one_bit = _tables(polynomial)
    for _ in range(length):
        if difference in one_bit:
            return True
        at = before[difference >> 24]
        difference = (difference ^ table[at]) << 8 & _MASK | at
    return False


@cache
def _tables(polynomial: int) -> tuple[list[int], list[int], frozenset[int]]:
    """Return the difference that each value of the last byte makes, the value for each top byte, those of one bit."""
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

"""Says whether a changed bit, or a few, explain a wrong CRC-32C, or another checksum of 32 bits of that kind.

Such a checksum is linear: what two contents of one length differ in alone decides what their checksums differ in. One
byte that differs gives one of 255 differences, and each byte after it moves that on by a step that can be undone. So
the steps are undone, one for each byte from the end, until the difference is that of one bit, or the content ends.
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
    """Return the byte of `content` in which one changed bit explains that it has not this CRC-32C, if there is one.

    It takes some 0.2 s a mebibyte. Other damage is taken for one bit with a chance of (bits of `content`) / 2^32.
    """
    return _byte_of_one_bit(crc32c(content) ^ checksum, len(content), _CRC_32C)


def is_one_bit(difference: int, length: int, polynomial: int) -> bool:
    """Return whether the checksums of two contents that differ in one bit alone differ like this.

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
    """Return whether up to three changed bits explain that `content` has not this CRC-32C.

    Other damage is taken for that with a chance of n^3 / (6 * 2^32), where n = 8 * len(places) + 32: it is for short
    contents.

    Args:
        content: as it was read.
        places: which of its bytes may have changed; the checksum may have, too.
        checksum: as it was read.
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

"""Computes the CRC-32C of concatenated pieces from the checksums of the pieces.

A CRC is linear: the checksum of two concatenated pieces is the checksum of the first times x^(8n), where n is the size
of the second, XOR the checksum of the second. The products are looked up in tables, one digit of n at a time, for all
pieces at once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

if TYPE_CHECKING:
    from store.model.dispatch_batch import Int64s

UInt32s = NDArray[np.uint32]
Checksums = NDArray[np.integer[Any]]

_DIGIT_BITS: Final = 4
_BYTES: Final = 4
# Pieces that end in the same block are combined before they are shifted: there are fewer blocks than pieces.
_BLOCK_BITS: Final = 12


def joined_checksum(checksums: Checksums, sizes: Int64s) -> int:
    """Return the CRC-32C of all pieces concatenated.

    Args:
        checksums: CRC-32C of each piece.
        sizes: of each piece, in bytes.
    """
    if not len(checksums):
        return 0
    after = np.cumsum(sizes[::-1])[::-1] - sizes
    moved = _move(checksums.astype(np.uint32), after & ((1 << _BLOCK_BITS) - 1))
    blocks = after >> _BLOCK_BITS
    firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
    joined = _move(np.bitwise_xor.reduceat(moved, firsts), blocks[firsts] << _BLOCK_BITS)
    return int(np.bitwise_xor.reduce(joined))


def _move(checksums: UInt32s, counts: Int64s) -> UInt32s:
    """Return checksums times x^(8 * count)."""
    place = 0
    while (counts >> _DIGIT_BITS * place).any():
        digits = counts >> _DIGIT_BITS * place & ((1 << _DIGIT_BITS) - 1)
        if digits.any():
            checksums = _apply(_tables(place), checksums, digits << 10)
        place += 1
    return checksums


def _apply(tables: UInt32s, checksums: UInt32s, begin: Int64s | int) -> UInt32s:
    """Return the XOR of the values of the four bytes in the four tables from `begin` on; each table has 256 values."""
    wide = checksums.astype(np.int64)
    moved: UInt32s = np.zeros(len(checksums), np.uint32)
    for byte in range(_BYTES):
        moved ^= tables[begin + (byte << 8) + (wide >> 8 * byte & 0xFF)]
    return moved


@cache
def _tables(place: int) -> UInt32s:
    """Return for each digit the four tables that shift a checksum by `digit * 16 ** place` bytes."""
    values = (np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]).reshape(-1)
    if place:
        last = _tables(place - 1).reshape(-1, len(values))[-1]
        step = _apply(last, _apply(_tables(place - 1), values, len(values)), 0)
    else:
        # A CRC-32C is inverted at its start and end; both inversions together equal the checksum of zeros.
        step = np.array([crc32c(b"\0", int(value)) ^ crc32c(b"\0") for value in values], np.uint32)
    found = [values]
    for _ in range((1 << _DIGIT_BITS) - 1):
        found.append(_apply(step, found[-1], 0))
    return np.concatenate(found)

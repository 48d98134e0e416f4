"""One checksum of many pieces equals the combination of their checksums."""

import numpy as np
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.reading.joined_checksum import joined_checksum

PIECES = st.lists(st.binary(max_size=40) | st.integers(0, 1 << 17).map(bytes), max_size=12)


def joined(pieces):
    return joined_checksum(np.array([crc32c(piece) for piece in pieces]), np.array([len(piece) for piece in pieces]))


@given(PIECES)
@example([b"a" * 4096, b"b", b"c" * 4095, b"d"])
@example([b"a", bytes(20 << 20), b"b"])
def test_checksums_of_pieces_combine_to_that_of_the_whole(pieces):
    assert joined(pieces) == crc32c(b"".join(pieces))


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12), st.data())
def test_one_flipped_bit_anywhere_is_detected(pieces, data):
    content = bytearray(b"".join(pieces))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8

    assert joined(pieces) != crc32c(bytes(content))

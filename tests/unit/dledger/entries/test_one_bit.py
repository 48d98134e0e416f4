"""One changed bit is detected by the checksum at any position; other changes are not taken for it."""

from random import Random

from crc32c import crc32c

from dledger.entries.one_bit import is_one_bit_off


def test_each_changed_bit_of_a_content_is_found():
    content = Random(5).randbytes(300)
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            assert is_one_bit_off(memoryview(changed), crc32c(content)), (position, bit)


def test_lost_sectors_and_two_changed_bits_are_distinguished_from_one_bit():
    random = Random(6)
    for _ in range(300):
        content = random.randbytes(random.randrange(513, 3000))
        begin = random.randrange(0, len(content) - 2)
        lost, two = bytearray(content), bytearray(content)
        lost[begin : begin + 512] = bytes(len(lost[begin : begin + 512]))
        two[begin] ^= 1
        two[begin + 1] ^= 1 << random.randrange(8)
        for changed in (lost, two):
            assert not is_one_bit_off(memoryview(changed), crc32c(content))


def test_right_and_empty_contents_have_no_changed_bit():
    assert not is_one_bit_off(memoryview(b"body"), crc32c(b"body"))
    assert not is_one_bit_off(memoryview(b""), 5)

"""One changed bit is detected by the checksum at any position; other changes are not taken for it."""

from random import Random

from crc32c import crc32c

from dledger.entries.one_bit import find_one_bit, is_few_bits_off


def test_each_changed_bit_of_a_content_is_found():
    content = Random(5).randbytes(300)
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            assert find_one_bit(memoryview(changed), crc32c(content)) == position, bit


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
            assert find_one_bit(memoryview(changed), crc32c(content)) is None


def test_right_and_empty_contents_have_no_changed_bit():
    assert find_one_bit(memoryview(b"body"), crc32c(b"body")) is None
    assert find_one_bit(memoryview(b""), 5) is None


def test_up_to_three_changed_bits_of_content_and_checksum_are_found_and_lost_bytes_are_not():
    random = Random(7)
    places = range(16, 24)
    for count in range(60):
        content = random.randbytes(28)
        changed = bytearray(content + crc32c(content).to_bytes(4, "big"))
        for bit in random.sample([8 * at + bit for at in (*places, *range(28, 32)) for bit in range(8)], count % 4):
            changed[bit // 8] ^= 1 << bit % 8
        read, checksum = bytes(changed[:28]), int.from_bytes(changed[28:], "big")
        assert is_few_bits_off(read, places, checksum)
        assert not is_few_bits_off(read, places, crc32c(content[:24] + random.randbytes(4)))

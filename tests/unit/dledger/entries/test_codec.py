"""The bytes of entries, index units and blanks, against vectors computed by hand and against the Java layout."""

import pytest
from crc32c import crc32c

from dledger.entries.format.entry import (
    BLANK,
    ENTRY_NOOP,
    ENTRY_SIZE_MAX,
    HEADER,
    INDEX_UNIT,
    MAX_BODY_BYTES,
    decode,
    encode_batch,
    encode_blank,
)

pytestmark = pytest.mark.usefixtures("both_forms")
# Entries as the Java program writes them: both checksums 0.
JAVA_VECTORS = {
    "first entry": (
        (1, 53, 0, 0, 0, 0, 0, 0, 5),
        b"Hello",
        "000000010000003500000000000000000000000000000000 0000000000000000 0000000000000000 000000000000000548656c6c6f",
        "00000001 0000000000000000 00000035 0000000000000000 0000000000000000",
    ),
    "two bytes": (
        (1, 50, 7, 3, 0x155, 0, 0, 0, 2),
        b"\x01\x02",
        "00000001 00000032 0000000000000007 0000000000000003 0000000000000155 00000000 00000000 00000000 00000002 0102",
        "00000001 0000000000000155 00000032 0000000000000007 0000000000000003",
    ),
    "no-op": (
        (2, 48, 8, 4, 391, 0, 0, 0, 0),
        b"",
        "00000002 00000030 0000000000000008 0000000000000004 0000000000000187 00000000 00000000 00000000 00000000",
        "00000002 0000000000000187 00000030 0000000000000008 0000000000000004",
    ),
}


@pytest.mark.parametrize("name", JAVA_VECTORS)
def test_layout_is_that_of_the_java_program(name):
    header, body, entry_hex, unit_hex = JAVA_VECTORS[name]
    magic, size, index, term, position, *_ = header

    assert HEADER.pack(*header) + body == bytes.fromhex(entry_hex)
    assert INDEX_UNIT.pack(magic, position, size, index, term) == bytes.fromhex(unit_hex)
    entry = decode(bytes.fromhex(entry_hex), 0)
    assert (entry.magic, entry.size, entry.index, entry.term, entry.position) == (magic, size, index, term, position)
    assert entry.body == body


@pytest.mark.parametrize("name", JAVA_VECTORS)
def test_our_encoding_differs_from_javas_only_in_the_two_checksums(name):
    header, body, entry_hex, unit_hex = JAVA_VECTORS[name]
    magic, _, index, term, position, *_ = header

    batch = encode_batch([body], first_index=index, term=term, position=position, chain_crc=0, magic=magic)

    java = bytes.fromhex(entry_hex)
    assert batch.data[:36] + bytes(8) + batch.data[44:] == java
    assert batch.units == bytes.fromhex(unit_hex)
    assert batch.positions == [position]


def test_checksums_of_our_entries_are_the_golden_ones():
    """CRC-32C of "123456789" is e3069283 by the literature; the chain covers 28 bytes, listed here."""
    batch = encode_batch([b"123456789", b""], first_index=5, term=2, position=100, chain_crc=0x01020304)

    first = decode(batch.data, 0)
    assert first.body_crc == 0xE3069283
    chain = bytes.fromhex("01020304 00000001 0000000000000005 0000000000000002 e3069283")
    assert first.chain_crc == crc32c(chain) == 0x4666BE5B
    second = decode(batch.data, first.size)
    assert second.body_crc == 0
    assert second.chain_crc == batch.chain_crc
    chain = first.chain_crc.to_bytes(4, "big") + bytes.fromhex("00000001 0000000000000006 0000000000000002 00000000")
    assert second.chain_crc == crc32c(chain)


def test_blank_of_sixteen_bytes():
    assert encode_blank(16) + bytes(8) == bytes.fromhex("ffffffff 00000010 0000000000000000")
    assert BLANK.unpack(encode_blank(8)) == (-1, 8)


def test_stamp_is_the_physical_offset_and_is_under_the_checksum():
    bodies = [bytes(range(40)), bytes(range(100))]

    batch = encode_batch(bodies, first_index=0, term=0, position=1000, chain_crc=0, stamp_at=28)

    first, second = decode(batch.data, 0), decode(batch.data, 88)
    assert first.body == bodies[0][:28] + (1048).to_bytes(8, "big") + bodies[0][36:]
    assert second.body == bodies[1][:28] + (1000 + 88 + 48).to_bytes(8, "big") + bodies[1][36:]
    assert second.body_crc == crc32c(second.body)


def test_largest_entry_leaves_space_for_a_blank_in_a_file_of_four_mebibytes():
    assert ENTRY_SIZE_MAX + 8 == 4 * 1024 * 1024
    assert MAX_BODY_BYTES == 4_194_248
    assert MAX_BODY_BYTES <= 4_194_256  # the largest body that DLedger can encode


def test_empty_body_of_a_normal_entry_is_legal():
    entry = decode(encode_batch([b""], first_index=0, term=0, position=0, chain_crc=0, magic=ENTRY_NOOP).data, 0)

    assert (entry.size, entry.body, entry.magic) == (48, b"", ENTRY_NOOP)

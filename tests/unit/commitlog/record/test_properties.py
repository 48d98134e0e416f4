"""Properties are stored in their order, read as RocketMQ reads them, and refused if they could not be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog.record.properties import (
    CRC_NAME,
    PROPERTIES_SIZE_MAX,
    RawProperties,
    decode_properties,
    encode_properties,
    encode_property_crc,
    find_property_crc,
    without_property_crc,
)
from store.errors import IllegalMessage

# Everything that UTF-8 can hold, but the two separators.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=20)
NAME = TEXT.filter(bool)


def read_as_java_reads(text):
    """Return names and values: RocketMQ `MessageDecoder.string2messageProperties`, line by line."""
    properties, index = {}, 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            at = text.find("\x01", index)
            if index < at < end - 1:
                properties[text[index:at]] = text[at + 1 : end]
        index = end + 1
    return properties


@given(st.dictionaries(NAME.filter(lambda name: name != CRC_NAME), TEXT))
def test_stored_properties_are_read_except_empty_values(properties):
    raw = encode_properties(properties)

    assert decode_properties(raw) == {name: value for name, value in properties.items() if value}
    assert decode_properties(raw.removesuffix(b"\x02")) == decode_properties(raw)
    assert list(decode_properties(raw)) == [name for name, value in properties.items() if value]


@given(st.lists(st.sampled_from(["\x01", "\x02", "a", "b", "é", "😀"])).map("".join))
def test_any_text_is_read_as_java_reads_it(text):
    assert decode_properties(text.encode()) == read_as_java_reads(text)


@pytest.mark.parametrize(
    ("raw", "properties"),
    [
        (b"", {}),
        (b"\x02\x02", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x02b\x012\x02", {"b": "2"}),
        (b"\x01a\x02", {}),
        (b"abc\x02", {}),
        (b"a\x011\x02b\x012\x02a\x013\x02", {"b": "2", "a": "3"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_unusual_bytes_have_a_defined_reading(raw, properties):
    assert decode_properties(raw) == properties


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"a\x01": "b"}, "neither 0x01 nor 0x02"),
        ({"a": "b\x02c"}, "neither 0x01 nor 0x02"),
        ({"a\x02b": "", "c": "\x01"}, "neither 0x01 nor 0x02"),
        ({"": "b"}, "a name"),
        ({"a": "\ud800"}, "text that UTF-8 can hold"),
        ({"a": "b" * PROPERTIES_SIZE_MAX}, "at most 32767 bytes"),
        (RawProperties(b"a\x01" + b"b" * PROPERTIES_SIZE_MAX), "at most 32767 bytes"),
    ],
)
def test_properties_that_could_not_be_read_again_are_refused(properties, expected):
    with pytest.raises(IllegalMessage) as refused:
        encode_properties(properties)

    assert refused.value.expected == expected
    assert refused.value.field.startswith("properties")


def test_the_largest_properties_fit():
    value = "é" * ((PROPERTIES_SIZE_MAX - 3) // 2)

    assert len(encode_properties({"a": value})) == PROPERTIES_SIZE_MAX
    with pytest.raises(IllegalMessage):
        encode_properties({"ab": value})


@given(st.binary(max_size=60).filter(lambda raw: b"__CRC32#" not in raw))
def test_stored_properties_are_stored_again_as_they_are(raw):
    assert encode_properties(RawProperties(raw)) == raw


def test_raw_properties_are_a_mapping():
    properties = RawProperties(b"TAGS\x01a\x02p\x01\x02KEYS\x01k1 k2\x02")

    assert (properties["TAGS"], len(properties), list(properties)) == ("a", 2, ["TAGS", "KEYS"])
    assert properties == {"TAGS": "a", "KEYS": "k1 k2"}
    assert properties.get("p") is None


@given(st.integers(0, (1 << 31) - 1), st.dictionaries(NAME, NAME, max_size=3))
def test_a_property_crc_is_found_at_the_end_and_can_be_taken_away(checksum, properties):
    raw = encode_properties(properties)
    crc = encode_property_crc(checksum)

    assert (len(crc), find_property_crc(raw + crc), find_property_crc(raw)) == (20, checksum, None)
    assert without_property_crc(raw + crc) == raw
    assert encode_properties(RawProperties(raw + crc)) == raw
    assert encode_properties({**properties, "__CRC32#": "1"}) == raw


def test_digits_of_a_property_crc_have_the_lowest_first():
    assert encode_property_crc(907060870) == b"__CRC32#\x010780607090\x02"


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"x__CRC32#\x010780607090\x02", None),
        (b"__CRC32#\x01780607090\x02", None),
        (b"__CRC32#\x010780607090\x02a\x01b\x02", None),
        (b"", None),
        (b"__CRC32#\x0107806070901", -1),
        (b"__CRC32#\x01078060709x\x02", -1),
    ],
)
def test_bytes_that_resemble_a_property_crc_are_none_or_a_wrong_one(raw, found):
    assert find_property_crc(raw) == found


@given(st.lists(st.sampled_from(["K", "UNIQ_KEY", "\x01", "\x02", "v", "ä", "XUNIQ_KEY"]), max_size=12).map("".join))
def test_one_value_is_found_as_decoding_all_gives_it(text):
    raw = text.encode()
    assert RawProperties(raw).find("UNIQ_KEY") == decode_properties(raw).get("UNIQ_KEY")


def test_one_value_of_broken_text_is_found_as_decoding_all_gives_it():
    raw = b"UNIQ_KEY\x01a\xff\x02K\x01v"
    assert RawProperties(raw).find("UNIQ_KEY") == decode_properties(raw)["UNIQ_KEY"] == "a\ufffd"

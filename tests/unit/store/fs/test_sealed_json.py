"""Small files of JSON with a checksum: read unchanged, or refused."""

import json

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from store.fs.sealed_json import seal, unseal

CONTENT = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), min_size=1)


@given(CONTENT)
def test_sealed_content_is_json_and_read_unchanged(content):
    raw = seal(content)
    assert unseal(raw) == content
    assert json.loads(raw).keys() == {*content, "crc32c"}


@given(content=CONTENT, data=st.data())
def test_any_changed_byte_is_detected(content, data):
    raw = bytearray(seal(content))
    place = data.draw(st.integers(0, len(raw) - 2))
    raw[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        unseal(bytes(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}\n",
        b'{"a":1}\n',
        b'{"a":1,"crc32c":}\n',
        '{"a":1,"crc32c":²}\n'.encode(),
        b'{"a":1,"crc32c":' + b"9" * 5000 + b"}\n",
    ],
)
def test_content_without_a_seal_is_refused(raw):
    with pytest.raises(ValueError, match="checksum"):
        unseal(raw)


def test_sealed_content_that_nests_without_end_is_refused():
    text = '{"a":' + "[" * 10_000 + "}"
    with pytest.raises(ValueError, match="nesting"):
        unseal(f'{text[:-1]},"crc32c":{crc32c(text.encode())}}}'.encode())

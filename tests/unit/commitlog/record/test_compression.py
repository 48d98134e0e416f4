"""Compressed bodies are uncompressed for a reader, and no content can cost more than the limit."""

import zlib

import lz4.frame
import pytest
import zstandard

from commitlog.record.compression import UnreadableBody, uncompressed_body

TEXT = b"twelve bytes" * 500
KINDS = {0x001: zlib.compress, 0x101: lz4.frame.compress, 0x201: zstandard.compress, 0x301: zlib.compress}


@pytest.fixture(params=KINDS, ids=hex)
def compressed(request):
    """Return (sys_flag, compressed text) of each kind."""
    return request.param, KINDS[request.param](TEXT)


def test_a_compressed_body_is_what_the_client_gave(compressed):
    sys_flag, body = compressed

    assert uncompressed_body(sys_flag, body) == TEXT
    assert uncompressed_body(sys_flag, KINDS[sys_flag](b"")) == b""


@pytest.mark.parametrize("sys_flag", [0, 0x100, 0x300, 0xFC])
def test_a_body_without_the_bit_is_as_it_is(sys_flag):
    assert uncompressed_body(sys_flag, b"as it is") == b"as it is"


def test_an_incomplete_stream_is_refused(compressed):
    sys_flag, body = compressed
    for bad in (b"", body[:-1], body[:5], body + b"x", body + body, b"no such thing" * 9):
        with pytest.raises(UnreadableBody, match="read them as they are"):
            uncompressed_body(sys_flag, bad)


def test_a_body_becomes_no_larger_than_the_limit(compressed):
    sys_flag, body = compressed

    assert uncompressed_body(sys_flag, body, size_max=len(TEXT)) == TEXT
    with pytest.raises(UnreadableBody, match=f"at most {len(TEXT) - 1} bytes"):
        uncompressed_body(sys_flag, body, size_max=len(TEXT) - 1)


def test_an_unknown_kind_is_refused():
    with pytest.raises(UnreadableBody, match="compression type 0 to 3, found 7"):
        uncompressed_body(0x701, b"")

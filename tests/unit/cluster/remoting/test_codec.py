"""Frames of RocketMQ's own clients are read as they mean them, and no bytes break the decoder."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.remoting.codec import (
    FIELDS_MAX,
    FRAME_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES_MAX,
    BadCommand,
    FrameSplitter,
    Reply,
    decode_frame,
    encode_json,
    encode_request,
    encode_response,
)
from cluster.remoting.command import Language, Request, Response

# Captured from RocketMQ 5.3.3 and 4.9.8.
ROUTE_JSON = bytes.fromhex("0000007f0000007b") + (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
ROUTE_BINARY = bytes.fromhex("000000250100002100690001df0000000700000000000000000000000c0005746f7069630000000154")
SEND = (
    b'{"code":310,"extFields":{"a":"PG","b":"TAutov49","c":"TBW102","d":"4","e":"1","f":"0","g":"1795358939437",'
    b'"h":"0","i":"KEYS\\u0001k1 k2\\u0002WAIT\\u0001true\\u0002TAGS\\u0001tagA","j":"0","k":"false","m":"false",'
    b'"n":"b0"},"flag":0,"language":"JAVA","opaque":6,"serializeTypeCurrentRPC":"JSON","version":409}'
)


def frame_of(header: bytes, body: bytes = b"", form: int = 0) -> bytes:
    return struct.pack(">I", form << 24 | len(header)) + header + body


def binary(code: int, fields: list[tuple[str, str]], flag: int = 0, language: int = 0) -> bytes:
    parts = b"".join(
        struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()
        for name, value in fields
    )
    head = struct.pack(">HBhiiii", code, language, 409, 7, flag, 0, len(parts))
    return frame_of(head + parts, form=1)


def test_a_captured_request_means_the_same_in_both_forms() -> None:
    (text,) = FrameSplitter().received(ROUTE_JSON)
    (packed,) = FrameSplitter().received(ROUTE_BINARY)
    expected = Request(105, {"topic": "T"}, b"", 7, is_oneway=False, language=Language.JAVA, version=479)
    assert decode_frame(text) == decode_frame(packed) == expected


def test_a_captured_send_keeps_its_properties_and_its_body() -> None:
    request = decode_frame(frame_of(SEND, b"hello"))
    assert isinstance(request, Request)
    assert (request.code, request.body, request.version) == (310, b"hello", 409)
    assert request.fields["i"] == "KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01tagA"


def test_codes_that_the_binary_form_cuts_off_are_mapped_back() -> None:
    for code in (200_050, 200_051, 200_053, 200_054, 200_151):
        request = decode_frame(binary(code & 0xFFFF, []))
        assert isinstance(request, Request)
        assert request.code == code


def test_of_fields_with_the_same_name_the_last_one_counts() -> None:
    packed = decode_frame(binary(105, [("topic", "A"), ("topic", "B")]))
    text = decode_frame(frame_of(b'{"code":105,"extFields":{"topic":"A","topic":"B"}}'))
    assert isinstance(packed, Request)
    assert isinstance(text, Request)
    assert packed.fields == text.fields == {"topic": "B"}


def test_numbers_become_text_nulls_are_no_fields_and_unknown_languages_are_other() -> None:
    request = decode_frame(frame_of(b'{"code":1,"language":"COBOL","extFields":{"a":1,"b":true,"c":null},"x":[]}'))
    assert isinstance(request, Request)
    assert (request.fields, request.language) == ({"a": "1", "b": "true"}, Language.OTHER)


def test_a_response_is_compact_sorted_json_with_text_fields_and_no_nulls() -> None:
    frame = encode_response(Response(0, {"b": "2", "a": "1"}, b"body"), 7)
    assert struct.unpack_from(">II", frame) == (len(frame) - 4, len(frame) - 12)
    assert frame[8:-4] == (
        b'{"code":0,"extFields":{"a":"1","b":"2"},"flag":1,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert b'"extFields":{}' in encode_response(Response(17, remark="gone"), 1)


@given(
    st.integers(0, 2**31 - 1),
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=4),
    st.binary(max_size=20),
    st.booleans(),
)
def test_what_is_sent_is_read_again(code: int, fields: dict[str, str], body: bytes, is_oneway: bool) -> None:
    request = Request(code, fields, body, 5, is_oneway=is_oneway, version=479)
    (frame,) = FrameSplitter().received(encode_request(request))
    assert decode_frame(frame) == request
    (frame,) = FrameSplitter().received(encode_response(Response(code, fields, body, "r"), 5))
    assert decode_frame(frame) == Reply(5, Response(code, fields, body, "r"))


@given(st.lists(st.integers(1, 40), max_size=30))
def test_frames_are_found_wherever_the_reads_divide_them(sizes: list[int]) -> None:
    stream, splitter, found, at = ROUTE_JSON + ROUTE_BINARY + ROUTE_JSON, FrameSplitter(), [], 0
    for size in [*sizes, len(stream)]:
        found += splitter.received(stream[at : at + size])
        at += size
    assert found == [ROUTE_JSON[4:], ROUTE_BINARY[4:], ROUTE_JSON[4:]]
    assert splitter.size_bytes == 0


@given(st.binary(max_size=80), st.sampled_from([0, 1]), st.integers(0, 90))
def test_bytes_that_are_no_frame_are_refused_with_the_typed_error(data: bytes, form: int, size: int) -> None:
    with suppress(BadCommand):
        decode_frame(struct.pack(">I", form << 24 | size) + data)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"code":' + b"9" * 5_000 + b"}",
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":-1}',
        b'{"code":2147483648}',
        b'{"code":NaN}',
        b'{"code":1,"extFields":{"a":"\\ud800"}}',
        b'{"code":1,"extFields":{"a":{}}}',
        b'{"code":1,"extFields":[1]}',
        b'{"code":1,"extFields":' + json.dumps({str(n): "" for n in range(FIELDS_MAX + 1)}).encode() + b"}",
        b'{"code":1,"remark":"\xff"}',
        b" " * (HEADER_SIZE_BYTES_MAX + 1),
    ],
    ids=range(15),
)
def test_a_header_that_is_a_bomb_or_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(BadCommand):
        decode_frame(frame_of(header))


def test_a_binary_header_with_too_many_fields_or_wrong_lengths_is_refused() -> None:
    with pytest.raises(BadCommand, match="fields"):
        decode_frame(binary(1, [("a", "")] * (2 * FIELDS_MAX + 1)))
    whole = binary(1, [("name", "value")])
    for end in range(4, len(whole)):
        with pytest.raises(BadCommand):
            decode_frame(frame_of(whole[4:end], form=1))


@pytest.mark.parametrize("size", [0, 3, FRAME_SIZE_BYTES_MAX - 3, 0xFFFFFFFF])
def test_a_size_that_no_frame_has_is_refused_before_its_bytes_arrive(size: int) -> None:
    with pytest.raises(BadCommand, match="expected a frame"):
        FrameSplitter().received(struct.pack(">I", size))


def test_nothing_larger_than_a_client_reads_is_sent() -> None:
    with pytest.raises(BadCommand, match="expected at most"):
        encode_response(Response(body=bytes(FRAME_SIZE_BYTES_MAX)), 1)


def test_json_of_bodies_is_compact() -> None:
    assert encode_json({"b": {"1": "h:1"}, "a": [1, 2]}) == b'{"a":[1,2],"b":{"1":"h:1"}}'

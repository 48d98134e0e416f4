"""The codec of frames: what one side encodes the other reads, in any pieces, and within its bounds of memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.frames import codec
from dledger.frames.codec import BadClientFrame, ClientFrame, ClientFrameReader

NUMBERS = st.integers(0, codec.CALL_ID_MAX)
FRAMES = st.lists(
    st.builds(
        ClientFrame,
        st.sampled_from((codec.CALL, codec.TOKEN)),
        st.integers(0, 255),
        NUMBERS,
        NUMBERS,
        st.binary(max_size=200),
    ),
    max_size=8,
)


def encoded(frames: list[ClientFrame]) -> bytes:
    return b"".join(
        codec.encode_frame(kind, payload, detail=detail, call_id=call_id, number=number)
        for kind, detail, call_id, number, payload in frames
    )


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_frames_are_read_as_they_were_written_whatever_the_pieces(frames: list[ClientFrame], cuts: list[int]) -> None:
    data, reader = encoded(frames), ClientFrameReader.of_server()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = []
    for begin, end in itertools.pairwise(places):
        found += reader.received(data[begin:end])
    assert found == frames
    assert reader.size_bytes == 0


@given(frames=FRAMES, rest=st.binary(max_size=100))
def test_reader_keeps_no_more_than_one_incomplete_frame(frames: list[ClientFrame], rest: bytes) -> None:
    reader = ClientFrameReader.of_server()
    head = codec.HEAD.pack(len(rest) + 1, codec.CALL, 0, 0, 1, 1)
    assert reader.received(encoded(frames) + head + rest) == frames
    assert reader.size_bytes == len(head) + len(rest)
    assert [frame.payload for frame in reader.received(b"x")] == [rest + b"x"]


@given(kind=st.integers(0, 255), size=st.integers(0, (1 << 32) - 1), reserved=st.integers(0, 0xFFFF))
def test_head_is_refused_before_its_payload_is_awaited(kind: int, size: int, reserved: int) -> None:
    limits = {codec.CALL: codec.REQUEST_SIZE_BYTES_MAX, codec.TOKEN: codec.TOKEN_SIZE_BYTES_MAX}
    reader, head = ClientFrameReader.of_server(), codec.HEAD.pack(size, kind, 0, reserved, 1, 1)
    if reserved or size > limits.get(kind, -1):
        with pytest.raises(BadClientFrame, match="expected"):
            reader.received(head)
    else:
        assert len(reader.received(head)) == (size == 0)


@given(versions=st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)))
def test_greeting_has_versions_in_order(versions: tuple[int, int]) -> None:
    data = codec.encode_greeting(*versions)
    if versions[0] <= versions[1]:
        assert codec.decode_greeting(data) == versions
    else:
        with pytest.raises(BadClientFrame, match="in order"):
            codec.decode_greeting(data)


@given(paths=st.lists(st.from_regex(r"/[a-z.]{1,20}/[A-Z]{1,20}", fullmatch=True), unique=True, max_size=256))
def test_methods_keep_their_numbers(paths: list[str]) -> None:
    (frame,) = ClientFrameReader.of_client().received(codec.encode_methods(paths))
    assert codec.decode_methods(frame.payload) == {path: number for number, path in enumerate(paths)}

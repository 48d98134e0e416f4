"""The greeting as a frame: every field travels, and each is bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.peer.wire.buffer import FrameBuffer
from dledger.peer.wire.frames import BadFrame, Hello, decode_hello, encode_hello
from dledger.storage.identity import LIVES_MAX, NUMBER_END

HELLO = Hello(
    "group",
    "n0",
    "n1",
    0xDEADBEEF,
    "127.0.0.1:1",
    is_bulk=True,
    code=400,
    message="no",
    peer_address="h:2",
    group_id=4711,
    directory_id=NUMBER_END - 1,
    starts=LIVES_MAX,
    lives=tuple(range(1, LIVES_MAX + 1)),
)


def read(hello: Hello) -> Hello:
    buffer, data = FrameBuffer(), encode_hello(hello)
    buffer.free_part()[: len(data)] = data
    (frame,) = buffer.received(len(data))
    return decode_hello(*frame)


def test_hello_is_decoded_as_it_was_encoded() -> None:
    assert read(HELLO) == HELLO


@pytest.mark.parametrize(
    "hello",
    [
        replace(HELLO, group="g" * 300),
        replace(HELLO, group_id=NUMBER_END),
        replace(HELLO, directory_id=NUMBER_END),
        replace(HELLO, lives=(NUMBER_END,)),
        replace(HELLO, lives=tuple(range(LIVES_MAX + 1))),
    ],
    ids=["name", "group", "directory", "life", "lives"],
)
def test_hello_with_a_field_out_of_bounds_is_refused(hello: Hello) -> None:
    with pytest.raises(BadFrame, match="hello"):
        read(hello)

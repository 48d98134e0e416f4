"""A flipped bit in a frame's size is detected at once, not after the announced number of bytes."""

import pytest

from dledger.core.messages import Heartbeat, Push, VoteResponse
from dledger.peer.wire.buffer import FrameBuffer
from dledger.peer.wire.decoder import decode
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import FRAME_HEAD, HELLO_FRAME_SIZE_BYTES_MAX, BadFrame
from dledger.types import Span

MESSAGES = (Heartbeat(3, 41, 7), VoteResponse(3, True, False), Push(3, -1, -1, -1, Span(0, 0, 3, 0, 100), bytes(100)))


def receive(data, *, has_payloads=True):
    buffer = FrameBuffer()
    buffer.accept_messages(has_payloads=has_payloads)
    buffer.free_part()[: len(data)] = data
    return [decode(control, payload) for control, payload in buffer.received(len(data))]


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_damaged_size_is_found_before_the_bytes_that_it_announces_are_awaited(message, bit):
    """Otherwise the frame includes all following data, heartbeats for minutes, while the connection seems to work."""
    head, payload = encode(message)
    frame = bytearray(head + (payload or b""))
    assert receive(bytes(frame)) == [message]
    frame[bit // 8] ^= 1 << bit % 8

    with pytest.raises(BadFrame):
        receive(bytes(frame))


def test_a_payload_is_accepted_only_with_messages_that_have_one():
    """On three of the four connections between two nodes messages have none, and are as small as a greeting."""
    with pytest.raises(BadFrame, match="out of bounds"):
        receive(FRAME_HEAD.pack(HELLO_FRAME_SIZE_BYTES_MAX, 20), has_payloads=False)

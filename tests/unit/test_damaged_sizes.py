"""A flipped bit in a frame's size is found at once, not when the bytes that it announces have come."""

import pytest

from dledger.core.messages import Heartbeat, Push, VoteResponse
from dledger.peer_buffer import FrameBuffer
from dledger.peer_decoder import decode
from dledger.peer_encoder import encode
from dledger.peer_frames import BadFrame
from dledger.types import Span

MESSAGES = (Heartbeat(3, 41, 7), VoteResponse(3, True, False), Push(3, -1, -1, -1, Span(0, 0, 3, 0, 100), bytes(100)))


def receive(data):
    buffer = FrameBuffer()
    buffer.accept_messages()
    buffer.room()[: len(data)] = data
    return [decode(control, payload) for control, payload in buffer.received(len(data))]


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_damaged_size_is_found_before_the_bytes_that_it_announces_are_awaited(message, bit):
    """Else the frame swallows what follows, heartbeats for minutes, and the connection looks well."""
    head, payload = encode(message)
    frame = bytearray(head + (payload or b""))
    assert receive(bytes(frame)) == [message]
    frame[bit // 8] ^= 1 << bit % 8

    with pytest.raises(BadFrame):
        receive(bytes(frame))

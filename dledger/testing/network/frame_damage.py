"""Damage in transit: encodes a message as its frame and flips a few bits.

A damaged control part must be refused by its checksum: the connection closes, and the message is lost. A payload has
its own inner checksums, of each entry or of a whole snapshot, so it arrives with the flipped bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dledger.core.messages import Message, Push, SnapshotChunk
from dledger.peer.wire.decoder import decode
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import FRAME_HEAD, BadFrame
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from random import Random

_BITS_MAX = 3
_PAYLOAD_SHARE = 0.5


def damage_on_the_way(message: Message, random: Random) -> Message | None:
    """Flip one to three bits of a message.

    Args:
        message: the message sent.
        random: chooses the bits.

    Returns:
        The message that the receiver's core gets; None: the connection closes.

    Raises:
        Violation: the receiver accepts a damaged control part.
    """
    payload = message.payload if isinstance(message, (Push, SnapshotChunk)) else None
    if payload and random.random() < _PAYLOAD_SHARE:
        assert isinstance(message, (Push, SnapshotChunk)), message
        return replace(message, payload=_flipped(bytes(payload), random))
    frame, payload = encode(message)
    # The receiver splits the frame by the sizes at its start; if they are damaged, it reads another control part.
    control = _flipped(frame[FRAME_HEAD.size :], random)
    try:
        taken = decode(control, bytes(payload or b""))
    except BadFrame:
        return None
    raise Violation("frames", f"a damaged control part is taken for {taken}; {message} was sent")


def _flipped(content: bytes, random: Random) -> bytes:
    """Return `content` with some of its bits flipped, each of them once."""
    changed = bytearray(content)
    for bit in random.sample(range(8 * len(content)), random.randint(1, _BITS_MAX)):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)

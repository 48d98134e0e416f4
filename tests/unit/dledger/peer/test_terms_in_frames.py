"""Frames distinguish no term and an unknown term by the index; in both cases they hold -1."""

from __future__ import annotations

import pytest

from dledger.core.messages import Push
from dledger.peer.wire.decoder import decode
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import FRAME_HEAD
from dledger.types import NO_TERM, UNKNOWN_TERM


@pytest.mark.parametrize(("prev_index", "prev_term"), [(-1, NO_TERM), (5, UNKNOWN_TERM), (5, 0)])
def test_no_entry_before_and_one_of_unknown_term_are_distinguished(prev_index: int, prev_term: int) -> None:
    probe = Push(1, prev_index, prev_term, -1, None)

    head, payload = encode(probe)

    assert decode(head[FRAME_HEAD.size :], payload or b"") == probe

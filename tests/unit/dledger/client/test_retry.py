"""When a request is tried again."""

from __future__ import annotations

import pytest

from dledger.client.outcomes import Refused
from dledger.client.retry import LAST_TRY_S, retrying
from dledger.errors import ResponseCode


@pytest.mark.parametrize("remaining_s", [0.0, LAST_TRY_S / 2, LAST_TRY_S])
def test_what_was_refused_is_not_tried_again_when_there_is_hardly_time_for_an_answer(remaining_s: float) -> None:
    tries = 0

    def refused() -> None:
        nonlocal tries
        tries += 1
        raise Refused(ResponseCode.LEADER_PENDING_FULL, "full")

    with pytest.raises(Refused, match="full"):
        retrying(remaining_s)(refused)

    assert tries == 1

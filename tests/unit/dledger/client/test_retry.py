"""When a request is retried."""

from __future__ import annotations

import pytest

from dledger.client.outcomes import Refused
from dledger.client.retry import LAST_TRY_S, retrying
from dledger.errors import ResponseCode


@pytest.mark.parametrize("remaining_s", [0.0, LAST_TRY_S / 2, LAST_TRY_S])
def test_refused_append_is_not_retried_when_too_little_time_is_left(remaining_s: float) -> None:
    tries = 0

    def refused() -> None:
        nonlocal tries
        tries += 1
        raise Refused(ResponseCode.LEADER_PENDING_FULL, "full")

    with pytest.raises(Refused, match="full"):
        retrying(remaining_s)(refused)

    assert tries == 1

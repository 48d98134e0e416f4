"""When a request is retried."""

from __future__ import annotations

import pytest

from dledger.client.outcomes import Refused
from dledger.client.retry import HOPS_MAX, LAST_TRY_S, Repetition, retrying
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


def test_a_call_follows_two_hints_at_once_and_then_pauses_longer_and_longer() -> None:
    repetition = Repetition()
    assert [repetition.next_s(is_named=True) for _ in range(HOPS_MAX)] == [0.0] * HOPS_MAX
    pauses = [repetition.next_s(is_named=each % 2 == 0) for each in range(6)]
    assert min(pauses) > 0
    assert pauses[-1] > pauses[0]
    assert repetition.next_s(5.0, is_named=True) >= 5.0
    repetition.reset()
    assert repetition.next_s(is_named=True) == 0.0


def test_an_attempt_without_a_hint_counts_as_a_hop() -> None:
    repetition = Repetition()
    pauses = [repetition.next_s(is_named=is_named) for is_named in (False, True, True)]
    assert [pause > 0 for pause in pauses] == [True, False, True]

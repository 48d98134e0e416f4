"""Hints to refused clients: spread over time, never too far in the future; and their text, which clients read."""

import pytest

from cluster.protocol.errors import Reason, RequestFailed, failure_of
from dledger.client.retry import Backoff
from dledger.errors import Overloaded, OverQuota, repeat_after_s
from dledger.service.limits.retry_times import RATE_PER_S, WAIT_S_MAX, WAIT_S_MIN, RetryTimes


def test_first_refusal_asks_for_the_shortest_wait_also_after_a_silence():
    clock = [5.0]
    times = RetryTimes(lambda: clock[0])
    assert times.next_s() == pytest.approx(WAIT_S_MIN)
    clock[0] += 100
    assert times.next_s() == pytest.approx(WAIT_S_MIN)


def test_clients_that_follow_repeat_no_more_than_the_rate():
    times = RetryTimes(lambda: 5.0)
    asked = [times.next_s() for _ in range(RATE_PER_S)]
    for second in (0.0, 0.3):
        assert sum(second <= each < second + 0.5 for each in asked) <= RATE_PER_S / 2 + 1


def test_no_wait_is_longer_than_the_maximum_however_many_are_refused():
    times = RetryTimes(lambda: 5.0)
    assert max(times.next_s() for _ in range(50_000)) == pytest.approx(WAIT_S_MAX)


@pytest.mark.parametrize(
    ("error", "reason", "asked_s"),
    [
        (Overloaded("user 'a'", "the 10 calls", 0.051), Reason.OVERLOADED, 0.06),
        (OverQuota("address 10.0.0.1", 12.5), Reason.OVER_QUOTA, 12.5),
    ],
)
def test_client_reads_the_hint_from_the_text_of_the_refusal(error, reason, asked_s):
    failure = failure_of(error)
    assert (failure.reason, failure.repeat_after_s, failure.is_worth_trying) == (reason, asked_s, True)
    assert RequestFailed(Reason.NOT_LEADER, str(error)).repeat_after_s == 0
    assert repeat_after_s("repeat it") == 0


def test_pause_follows_the_hint_with_jitter():
    pauses = [Backoff().next_s(2.0) for _ in range(100)]
    assert all(2.0 <= pause <= 2.4 for pause in pauses)
    assert len(set(pauses)) > 50

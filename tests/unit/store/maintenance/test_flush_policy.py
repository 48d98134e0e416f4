"""When a flush is due: RocketMQ's intervals and pages."""

import pytest

from store.maintenance.flush_policy import FlushPolicy, FlushSettings, is_worth_flushing

# RocketMQ's numbers.
COMMIT_LOG_FLUSH = FlushSettings(interval_ms=500, least_pages=4, thorough_interval_ms=10_000)
CONSUME_QUEUE_FLUSH = FlushSettings(interval_ms=1_000, least_pages=2, thorough_interval_ms=60_000)


def rounds(settings, until_ms, step_ms=100):
    policy = FlushPolicy(settings, 1_000)
    answers = {now_ms: policy.begin_round(now_ms) for now_ms in range(1_000, 1_001 + until_ms, step_ms)}
    return {now_ms - 1_000: least_pages for now_ms, least_pages in answers.items() if least_pages is not None}


def test_log_is_checked_twice_a_second_and_flushed_thoroughly_every_ten():
    found = rounds(COMMIT_LOG_FLUSH, 20_000)

    assert list(found) == list(range(500, 20_001, 500))
    assert [at for at, least_pages in found.items() if least_pages == 0] == [10_000, 20_000]
    assert set(found.values()) == {0, 4}


def test_queues_are_checked_every_second_and_flushed_thoroughly_every_sixty():
    found = rounds(CONSUME_QUEUE_FLUSH, 60_000)

    assert list(found) == list(range(1_000, 60_001, 1_000))
    assert [at for at, least_pages in found.items() if least_pages == 0] == [60_000]
    assert set(found.values()) == {0, 2}


def test_late_round_is_followed_by_one_a_whole_interval_later():
    policy = FlushPolicy(COMMIT_LOG_FLUSH, 0)
    assert policy.due_ms == 500

    assert policy.begin_round(790) == 4
    assert policy.due_ms == 1_290
    assert policy.begin_round(1_289) is None


def test_without_a_thorough_interval_every_round_is_thorough():
    assert set(rounds(FlushSettings(10, 4, 0), 100, 10).values()) == {0}


@pytest.mark.parametrize(
    ("flushed", "written", "least_pages", "is_worth"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (0, 4 * 4096 - 1, 4, False),
        (0, 4 * 4096, 4, True),
        (4095, 4 * 4096, 4, True),
        (4096, 5 * 4096 - 1, 4, False),
        (100, 100, 0, False),
    ],
)
def test_pages_are_counted_as_the_writer_leaves_them(flushed, written, least_pages, is_worth):
    assert is_worth_flushing(flushed, written, least_pages) is is_worth


@pytest.mark.parametrize("numbers", [(0, 4, 10), (500, -1, 10), (500, 4, -1)])
def test_impossible_settings_are_refused(numbers):
    with pytest.raises(ValueError, match="interval_ms of at least 1,"):
        FlushSettings(*numbers)

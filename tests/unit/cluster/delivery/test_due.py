"""What of a delay level is due: a prefix of its queue."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.delivery import delay_levels
from cluster.delivery.due import Due

NOW = 1_000_000


def due_of(times, delay_ms):
    """Return the due part of a queue, as the delivery finds it."""
    return delay_levels.due_of(np.array(times, np.int64), NOW, delay_ms)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], Due(0, None)),
        ([NOW], Due(1, None)),
        ([NOW + 1], Due(0, NOW + 1)),
        ([NOW - 5, NOW, NOW + 1, NOW - 3], Due(2, NOW + 1)),
        ([NOW + 1_000], Due(0, NOW + 1_000)),
    ],
)
def test_units_up_to_the_first_that_waits_are_due(times, expected):
    assert due_of(times, 1_000) == expected


def test_time_beyond_the_delay_is_due():
    """A clock was wrong when the message was stored; waiting for it would block the level."""
    assert due_of([NOW + 1_001, NOW + 1, 1 << 62], 1_000) == Due(1, NOW + 1)
    assert due_of([1 << 62], 1_000) == Due(1, None)


@given(st.lists(st.integers(NOW - 50, NOW + 200)), st.integers(1, 100))
def test_prefix_is_that_of_a_loop(times, delay):
    count = 0
    for time in times:
        if NOW < time <= NOW + delay:
            break
        count += 1

    expected = Due(count, times[count] if count < len(times) else None)
    assert due_of(times, delay) == expected

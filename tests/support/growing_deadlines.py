"""Growing deadlines, for tests in which a deadline must not expire too early on a slow machine."""

from collections.abc import Iterator

from tests.support.waiting import PATIENCE_S


def growing_deadlines(first_s: float) -> Iterator[float]:
    """Yield deadlines in seconds, each twice the previous one; the caller ends the loop after a successful test.

    Raises: AssertionError: the longest deadline was too short.
    """
    deadline_s = first_s
    while deadline_s < PATIENCE_S:
        yield deadline_s
        deadline_s *= 2
    raise AssertionError(f"nothing was seen within {deadline_s / 2} s")

"""Deadlines for stories that prove nothing where a busy machine ends them before they have begun."""

from collections.abc import Iterator

from tests.support.waiting import PATIENCE_S


def growing_deadlines(first_s: float) -> Iterator[float]:
    """Yield deadlines in seconds, each twice the one before; the caller ends the loop when the test is done.

    Raises:
        AssertionError: the longest one was too short.
    """
    deadline_s = first_s
    while deadline_s < PATIENCE_S:
        yield deadline_s
        deadline_s *= 2
    raise AssertionError(f"nothing was seen within {deadline_s / 2} s")

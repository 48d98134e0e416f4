"""The window of the next messages: against a plain list, whatever is appended, taken, put back, and started again."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.delivery import timer_window
from cluster.delivery.timer_window import ROWS_MAX, RUN_ROWS, TimerRow, TimerWindow

TIMES = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(TIMES, max_size=12)),
        st.tuples(st.just("take"), st.tuples(st.integers(0, 70), st.integers(1, 8))),
        st.tuples(st.just("return"), st.none()),
        st.tuples(st.just("recall"), st.integers(0, 400)),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=60,
)


def examined(window, times, done):
    """Examine what the queue has, as the delivery does."""
    part = times[window.end :]
    window.examine(np.array(part, np.int64), np.array([window.end + at in done for at in range(len(part))], np.bool_))


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, rows_max=st.integers(1, 9), run_rows=st.integers(1, 12))
def test_waiting_messages_are_taken_in_the_order_of_their_times_with_bounded_rows(steps, rows_max, run_rows):
    times, done, taken = [], set(), []
    window = TimerWindow(0, rows_max, run_rows)
    for step, value in steps:
        if step == "append":
            times += value
        elif step == "recall":
            done.add(value)
        elif step == "return":
            window.put_back(row for row in taken if row.unit not in done)
            taken = []
        elif step == "crash":
            # Another window is made from the queue, and from what is done.
            window, taken = TimerWindow(0, rows_max, run_rows), []
        else:
            now, count = value
            done |= {row.unit for row in taken}
            examined(window, times, done)
            if window.is_spent:
                window = TimerWindow(0, rows_max, run_rows)
                examined(window, times, done)
            rows = [row for row in window.take_due(now, count) if row.unit not in done]
            expected = sorted(
                TimerRow(each, unit) for unit, each in enumerate(times) if each <= now and unit not in done
            )
            assert rows == expected[: len(rows)]
            # Fewer only if recalled ones were among them, or the window ends there.
            assert len(rows) == min(count, len(expected)) or done or window.horizon is not None
            assert len(rows) > 0 or not expected or done
            taken = rows
        assert len(window) <= 2 * rows_max + 12
    # In the end everything is taken, once.
    done |= {row.unit for row in taken}
    waiting = {unit for unit in range(len(times)) if unit not in done}
    while waiting:
        examined(window, times, done)
        if window.is_spent:
            window = TimerWindow(0, rows_max, run_rows)
            examined(window, times, done)
        rows = window.take_due(100, 5)
        assert rows
        for row in rows:
            if row.unit not in done:
                waiting.remove(row.unit)
                done.add(row.unit)


def test_next_time_is_that_of_the_first_waiting_message():
    window = TimerWindow(0, 4)
    assert window.next_ms() is None
    window.examine(np.array([50, 30, 70], np.int64), np.array([False, True, False]))
    assert window.next_ms() == 50
    assert window.take_due(49, 9) == []
    assert window.take_due(50, 9) == [TimerRow(50, 0)]
    assert (window.next_ms(), window.is_spent) == (70, False)
    window.put_back([TimerRow(60, 9)])
    assert window.next_ms() == 60


def test_rows_that_come_later_are_taken_in_their_order():
    window = TimerWindow(0, 9, run_rows=4)
    nothing_done = np.zeros(6, np.bool_)
    window.examine(np.array([40, 10, 50, 20, 60, 30], np.int64), nothing_done)
    assert window.take_due(10, 9) == [TimerRow(10, 1)]
    # Before, within and after the run, and at the times of its last row and of the next one.
    window.examine(np.array([5, 25, 55, 40, 50, 35], np.int64), nothing_done)
    taken = [row for count in (3, 1, 9) for row in window.take_due(99, count)]
    times = [5, 20, 25, 30, 35, 40, 40, 50, 50, 55, 60]
    assert [row.time_ms for row in taken] == times
    assert taken == sorted(taken)
    assert not len(window)


def test_window_keeps_what_is_due_first_and_knows_that_more_waits():
    window = TimerWindow(0, 2)
    window.examine(np.array([50, 30, 70, 20, 60], np.int64), np.zeros(5, np.bool_))
    assert (len(window), window.horizon) == (2, TimerRow(30, 1))
    window.examine(np.array([25, 30, 90], np.int64), np.zeros(3, np.bool_))
    assert window.take_due(99, 9) == [TimerRow(20, 3), TimerRow(25, 5), TimerRow(30, 1)]
    assert window.is_spent


def test_ten_million_that_wait_have_a_window_of_a_few_megabytes():
    random = np.random.default_rng(1)
    times = random.integers(0, 1 << 40, 10_000_000)
    window = TimerWindow(0, 1 << 17)
    for begin in range(0, len(times), 8_192):
        part = times[begin : begin + 8_192]
        window.examine(part, np.zeros(len(part), np.bool_))
        assert len(window) <= 2 << 17
    rows = window.take_due(1 << 40, 1_000)
    assert [row.time_ms for row in rows] == np.sort(np.partition(times, 1_000)[:1_000]).tolist()


def test_only_a_run_is_sorted_at_once_however_many_are_due_at_the_same_time(monkeypatch):
    sorted_counts, lexsort = [], np.lexsort

    def counting(keys):
        sorted_counts.append(len(keys[0]))
        return lexsort(keys)

    monkeypatch.setattr(timer_window.np, "lexsort", counting)
    window = TimerWindow(0, ROWS_MAX)
    for _ in range(2 * ROWS_MAX // RUN_ROWS):
        window.examine(np.full(RUN_ROWS, 7), np.zeros(RUN_ROWS, np.bool_))
    units = [row.unit for _ in range(4 * ROWS_MAX // RUN_ROWS) for row in window.take_due(7, RUN_ROWS // 2)]
    assert units[:1] == [0]
    assert units[-1:] == [2 * ROWS_MAX - 1]
    assert all(one < other for one, other in pairwise(units))
    assert len(units) == 2 * ROWS_MAX
    assert max(sorted_counts) == RUN_ROWS

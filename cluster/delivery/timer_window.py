"""The next messages for a time: a bounded, sorted part of what waits in the timer queue.

The queue has the time of each message in its units, in the order of the puts. The window is made by one pass over them:
it keeps the units that are due first, up to a bound, and knows its horizon: every waiting unit up to it is in the
window. New units are examined as they are appended. When all rows are taken, and units beyond the horizon wait, another
pass makes the next window. So millions may wait, and memory has at most twice the bound; while fewer wait there is one
pass. Nothing of it is stored: the queue is derived data already, cut and dispatched again after a crash.

Only the first rows are sorted, the *run*; the others are a pool, from which a partition takes the next run. So the
longest step, with 270,336 rows, takes 13 ms on a slow and busy machine, where to sort them together takes 60.

Pure: the caller reads the queue, and knows which units are done.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.model.dispatch_batch import Bools, Int64s

    # Times and units.
    _Rows = tuple[Int64s, Int64s]

# Rows that are kept by a pass: 16 bytes each.
ROWS_MAX: Final = 1 << 17
# Rows that are sorted together.
RUN_ROWS: Final = 1 << 13
# Pieces of the pool, each of which is as small as what was dispatched at once, until they are joined.
_PIECES_MAX: Final = 256
_NONE: Final = np.empty(0, np.int64)


class TimerRow(NamedTuple):
    """One waiting message; rows are ordered by their time.

    Attributes:
        time_ms: when it is due, milliseconds since 1970.
        unit: its offset in the timer queue.
    """

    time_ms: int
    unit: int


class TimerWindow:
    """The window.

    Args:
        begin: the first unit that is examined.
        rows_max: rows that a pass keeps, for example `ROWS_MAX`; twice as many are in memory at most.
        run_rows: rows that are sorted together.

    Attributes:
        end: the first unit that was not examined yet.
        horizon: the last row that the window may have; None: it has all.
    """

    def __init__(self, begin: int, rows_max: int, run_rows: int = RUN_ROWS) -> None:
        self.end = begin
        self.horizon: TimerRow | None = None
        self._rows_max = rows_max
        self._run_rows = run_rows
        # The run, sorted; rows before `_at` are taken. All rows up to `_run_last` are in the run, or came later and are
        # in the heap; None: there has been no run, and all are in the pool.
        self._times, self._units, self._at = _NONE, _NONE, 0
        self._run_last: TimerRow | None = None
        self._late: list[TimerRow] = []
        # The rows after the run, not sorted.
        self._pool: list[_Rows] = []
        self._pool_count = 0

    def __len__(self) -> int:
        return len(self._times) - self._at + len(self._late) + self._pool_count

    @property
    def is_spent(self) -> bool:
        """Whether another pass is needed: all rows are taken, and more may wait."""
        return not len(self) and self.horizon is not None

    def examine(self, times_ms: Int64s, is_done: Bools) -> None:
        """Examine the units from `end` on.

        Args:
            times_ms: of consecutive units.
            is_done: whether each does not wait.
        """
        units = np.arange(self.end, self.end + len(times_ms), dtype=np.int64)
        self.end += len(times_ms)
        self._insert(times_ms[~is_done], units[~is_done])

    def put_back(self, rows: Iterable[TimerRow]) -> None:
        """Insert rows again that were taken, possibly with another time."""
        columns = np.array(list(rows), np.int64).reshape(-1, 2)
        self._insert(columns[:, 0], columns[:, 1])

    def take_due(self, now_ms: int, count_max: int) -> list[TimerRow]:
        """Take rows whose time has come, in order."""
        found: list[TimerRow] = []
        while len(found) < count_max and (rows := self._take_sorted(now_ms, count_max - len(found))):
            found += rows
        return found

    def next_ms(self) -> int | None:
        """Return when the next row is due; None: there is none."""
        self._fill_run()
        first = [int(self._times[self._at])] if self._at < len(self._times) else []
        return min([*first, *(row.time_ms for row in self._late[:1])], default=None)

    def _take_sorted(self, now_ms: int, count_max: int) -> list[TimerRow]:
        """Take due rows of the run and of the heap; none: nothing is due."""
        self._fill_run()
        found: list[TimerRow] = []
        due = int(np.searchsorted(self._times[self._at : self._at + count_max], now_ms, "right"))
        times, units = self._times[self._at :][:due].tolist(), self._units[self._at :][:due].tolist()
        taken = 0
        while len(found) < count_max:
            row = TimerRow(times[taken], units[taken]) if taken < due else None
            if self._late and self._late[0].time_ms <= now_ms and (row is None or self._late[0] < row):
                found.append(heapq.heappop(self._late))
            elif row is not None:
                found.append(row)
                taken += 1
            else:
                break
        self._at += taken
        return found

    # ---------------------------------------------------------------------------------------------------------- rows

    def _insert(self, times: Int64s, units: Int64s) -> None:
        """Insert rows, without those beyond the horizon."""
        if self.horizon is not None:
            is_kept = _are_up_to(times, units, self.horizon)
            times, units = times[is_kept], units[is_kept]
        if self._run_last is not None:
            is_late = _are_up_to(times, units, self._run_last)
            for row in zip(times[is_late].tolist(), units[is_late].tolist(), strict=True):
                heapq.heappush(self._late, TimerRow(*row))
            times, units = times[~is_late], units[~is_late]
        self._add_to_pool(times, units)
        if len(self._late) > self._run_rows:
            self._end_run()
        if len(self) > 2 * self._rows_max:
            self._drop_last()

    def _add_to_pool(self, times: Int64s, units: Int64s) -> None:
        if len(times):
            self._pool.append((times, units))
            self._pool_count += len(times)
        if len(self._pool) > _PIECES_MAX:
            self._pool = [self._pooled()]

    def _pooled(self) -> _Rows:
        """Return the rows of the pool, of which there is at least one."""
        return np.concatenate([times for times, _ in self._pool]), np.concatenate([units for _, units in self._pool])

    def _end_run(self) -> None:
        """Return the rows of run and heap to the pool."""
        late = np.array(self._late, np.int64).reshape(-1, 2)
        self._add_to_pool(self._times[self._at :], self._units[self._at :])
        self._add_to_pool(late[:, 0], late[:, 1])
        self._times, self._units, self._at = _NONE, _NONE, 0
        self._run_last, self._late = None, []

    def _fill_run(self) -> None:
        """Take the next run from the pool, if all sorted rows are taken."""
        if self._at < len(self._times) or self._late or not self._pool_count:
            return
        times, units = self._pooled()
        self._run_last, is_first = _first_rows(times, units, min(self._run_rows, len(times)))
        run_times, run_units = times[is_first], units[is_first]
        order = np.lexsort((run_units, run_times))
        self._times, self._units, self._at = run_times[order], run_units[order], 0
        self._pool, self._pool_count = [], 0
        self._add_to_pool(times[~is_first], units[~is_first])

    def _drop_last(self) -> None:
        """Keep the first rows only, as many as a pass keeps."""
        self._end_run()
        times, units = self._pooled()
        self.horizon, is_first = _first_rows(times, units, self._rows_max)
        self._pool, self._pool_count = [], 0
        self._add_to_pool(times[is_first], units[is_first])


def _are_up_to(times: Int64s, units: Int64s, last: TimerRow) -> Bools:
    """Return for each row whether it is not after `last`."""
    found: Bools = (times < last.time_ms) | ((times == last.time_ms) & (units <= last.unit))
    return found


def _first_rows(times: Int64s, units: Int64s, count: int) -> tuple[TimerRow, Bools]:
    """Return the last of the first `count` rows, at least one, and for each row whether it is among them."""
    last_ms = int(np.partition(times, count - 1)[count - 1])
    left = count - int(np.count_nonzero(times < last_ms))
    last = TimerRow(last_ms, int(np.partition(units[times == last_ms], left - 1)[left - 1]))
    return last, _are_up_to(times, units, last)

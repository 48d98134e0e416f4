"""The next messages for a time: a bounded, sorted part of what waits in the timer queue.

The queue has the time of each message in its units, in the order of the puts. The window is made by one pass over them:
it keeps the units that are due first, up to a bound, and knows its horizon: every waiting unit up to it is in the
window. New units are examined as they are appended. When all rows are taken, and units beyond the horizon wait, another
pass makes the next window. So millions may wait, and memory has at most twice the bound; while fewer wait there is one
pass. Nothing of it is stored: the queue is derived data already, cut and dispatched again after a crash.

Pure: the caller reads the queue, and knows which units are done.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.model.dispatch_batch import Bools, Int64s

# Rows that are kept by a pass: 16 bytes each.
ROWS_MAX: Final = 1 << 17
# New rows up to this number are inserted one by one, more are sorted together.
_FEW: Final = 256


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

    Attributes:
        end: the first unit that was not examined yet.
        horizon: the last row that the window may have; None: it has all.
    """

    def __init__(self, begin: int, rows_max: int) -> None:
        self.end = begin
        self.horizon: TimerRow | None = None
        self._rows_max = rows_max
        # Sorted; those before `_at` are taken.
        self._times: Int64s = np.empty(0, np.int64)
        self._units: Int64s = np.empty(0, np.int64)
        self._at = 0
        # Rows that came later, as a heap; and those that are not sorted yet.
        self._late: list[TimerRow] = []
        self._new: list[tuple[Int64s, Int64s]] = []
        self._new_count = 0

    def __len__(self) -> int:
        return len(self._times) - self._at + len(self._late) + self._new_count

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
        is_kept = ~is_done
        if self.horizon is not None:
            last_ms, last_unit = self.horizon
            is_kept &= (times_ms < last_ms) | ((times_ms == last_ms) & (units <= last_unit))
        if not is_kept.any():
            return
        self._new.append((times_ms[is_kept], units[is_kept]))
        self._new_count += int(is_kept.sum())
        if len(self) > 2 * self._rows_max:
            self._sort()

    def put_back(self, rows: Iterable[TimerRow]) -> None:
        """Insert rows again that were taken, possibly with another time."""
        for row in rows:
            if self.horizon is None or row <= self.horizon:
                heapq.heappush(self._late, row)

    def take_due(self, now_ms: int, count_max: int) -> list[TimerRow]:
        """Take rows whose time has come, in order."""
        self._settle()
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

    def next_ms(self) -> int | None:
        """Return when the next row is due; None: there is none."""
        self._settle()
        first = [int(self._times[self._at])] if self._at < len(self._times) else []
        return min([*first, *(row.time_ms for row in self._late[:1])], default=None)

    def _settle(self) -> None:
        """Make new rows readable."""
        if self._new_count + len(self._late) > _FEW:
            self._sort()
        for times, units in self._new:
            for row in zip(times.tolist(), units.tolist(), strict=True):
                heapq.heappush(self._late, TimerRow(*row))
        self._new, self._new_count = [], 0

    def _sort(self) -> None:
        """Sort all rows together, and keep the first ones if there are too many."""
        late = np.array(self._late, np.int64).reshape(-1, 2)
        times = np.concatenate([self._times[self._at :], late[:, 0], *(each for each, _ in self._new)])
        units = np.concatenate([self._units[self._at :], late[:, 1], *(each for _, each in self._new)])
        order = np.lexsort((units, times))
        if len(order) > 2 * self._rows_max:
            order = order[: self._rows_max]
            self.horizon = TimerRow(int(times[order[-1]]), int(units[order[-1]]))
        self._times, self._units, self._at = times[order], units[order], 0
        self._late, self._new, self._new_count = [], [], 0

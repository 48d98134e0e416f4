"""The messages of one queue that a group has taken and not finished: four columns of numbers, 26 bytes a message.

| column | bytes | content |
| --- | ---: | --- |
| offsets | 8 | of the messages, ascending |
| serials | 8 | of the lease that the message is in; `_REMOVED`: the row is removed |
| deadlines | 8 | lease time (`cluster.state.pop.grace`) from which the message may be taken again, in milliseconds |
| attempts | 2 | number of takes; the highest bit: the next take does not count |

Offsets before the cursor that have no row are done. So the ranges of what is done need no memory of their own, and the
floor is the first row. A queue that is consumed in order also has rows of messages that wait for an earlier one of
their message group (`cluster.state.pop.ordered`): with 0 attempts, and a deadline that never comes. Removal marks a
row, and rows are moved together once half of them are removed, so that each operation costs a binary search, whatever
the order of acknowledgements.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.state.pop.ordered import OrderedRows

_REMOVED: Final = 0
_UNCOUNTED: Final = 0x8000
ATTEMPTS_MAX: Final = 0x7FFF
_REMOVED_MIN: Final = 32
NEVER_MS: Final = 1 << 62


class PopQueue:
    """The rows of one queue and group.

    Args:
        cursor: everything before it was taken or passed over.
        last_serial: the largest serial in use; later ones are larger.
        version: the number of copies of the whole state that existed when this was made.

    Attributes:
        cursor: see above.
        last_serial: see above.
        version: see above.
        ordered: the message groups of the rows, if the queue is consumed in order; None: it is not.
    """

    __slots__ = (
        "_attempts",
        "_deadlines",
        "_head",
        "_next_deadline_ms",
        "_offsets",
        "_removed",
        "_serials",
        "cursor",
        "last_serial",
        "ordered",
        "version",
    )

    def __init__(self, cursor: int, last_serial: int, version: int) -> None:
        self.cursor = cursor
        self.last_serial = last_serial
        self.version = version
        self.ordered: OrderedRows | None = None
        self._offsets = array("q")
        self._serials = array("q")
        self._deadlines = array("q")
        self._attempts = array("H")
        # The first row that is not removed, and the number of removed rows.
        self._head = 0
        self._removed = 0
        # No row has an earlier deadline.
        self._next_deadline_ms = NEVER_MS

    def __len__(self) -> int:
        """The number of messages in flight."""
        return len(self._offsets) - self._removed

    def copy(self, version: int) -> PopQueue:
        """Return a copy that may be changed."""
        other = PopQueue(self.cursor, self.last_serial, version)
        other.ordered = None if self.ordered is None else self.ordered.copy()
        other._offsets = self._offsets[:]
        other._serials = self._serials[:]
        other._deadlines = self._deadlines[:]
        other._attempts = self._attempts[:]
        other._head, other._removed = self._head, self._removed
        other._next_deadline_ms = self._next_deadline_ms
        return other

    @property
    def floor(self) -> int:
        """The first offset that is not done."""
        return self._offsets[self._head] if len(self) else self.cursor

    # -------------------------------------------------------------------------------------------------------- reading

    def row_of(self, offset: int) -> int:
        """Return the row of an offset; -1: it is done, or was never taken."""
        offsets = self._offsets
        row = bisect_left(offsets, offset, self._head)
        return row if row < len(offsets) and offsets[row] == offset and self._serials[row] != _REMOVED else -1

    def is_free(self, row: int, time_ms: int) -> bool:
        """Return whether the message of a row may be taken."""
        return self._deadlines[row] <= time_ms

    def serial_of(self, row: int) -> int:
        """Return the serial of a row's lease."""
        return self._serials[row]

    def attempts_of(self, row: int) -> int:
        """Return the number of takes of a row's message; 0: it waits for an earlier one of its message group."""
        return self._attempts[row] & ATTEMPTS_MAX

    def extend_lease(self, row: int, deadline_ms: int) -> None:
        """Let the lease of a row end later, if `deadline_ms` is later."""
        self._deadlines[row] = max(self._deadlines[row], deadline_ms)

    def free_offsets(self, time_ms: int) -> Sequence[int]:
        """Return the offsets that may be taken again, ascending; some 20 us for 10,000 rows, less if there are none."""
        if time_ms < self._next_deadline_ms:
            return ()
        head = self._head
        deadlines = np.frombuffer(self._deadlines, np.int64)[head:]
        present = np.frombuffer(self._serials, np.int64)[head:] != _REMOVED
        is_free = (deadlines <= time_ms) & present
        found: list[int] = np.frombuffer(self._offsets, np.int64)[head:][is_free].tolist()
        if not found:
            self._next_deadline_ms = int(deadlines[present].min(initial=NEVER_MS))
        return found

    def next_deadline_ms(self, time_ms: int) -> int | None:
        """Return a time at or before the earliest deadline of a row, but after `time_ms`; None: no lease is valid."""
        if self._next_deadline_ms > time_ms:
            return self._next_deadline_ms if len(self) else None
        deadlines = np.frombuffer(self._deadlines, np.int64)
        later = (deadlines > time_ms) & (np.frombuffer(self._serials, np.int64) != _REMOVED)
        return int(deadlines[later].min()) if later.any() else None

    def leased_count(self, time_ms: int) -> int:
        """Return the number of messages that may not be taken now."""
        later = np.frombuffer(self._deadlines, np.int64) > time_ms
        return int(np.count_nonzero(later & (np.frombuffer(self._serials, np.int64) != _REMOVED)))

    def offsets_and_attempts(self) -> list[tuple[int, int]]:
        """Return offset and number of takes of each row, ascending."""
        rows = zip(self._offsets, self._serials, self._attempts, strict=True)
        return [(offset, attempts & ATTEMPTS_MAX) for offset, serial, attempts in rows if serial != _REMOVED]

    def runs(self) -> list[tuple[int, int, int, int, int]]:
        """Return the rows as runs of consecutive offsets with equal content, ascending.

        Returns:
            first offset, length, serial, deadline and attempts (with the mark of one that does not count) of each.
        """
        present = np.frombuffer(self._serials, np.int64) != _REMOVED
        offsets = np.frombuffer(self._offsets, np.int64)[present]
        serials = np.frombuffer(self._serials, np.int64)[present]
        deadlines = np.frombuffer(self._deadlines, np.int64)[present]
        attempts = np.frombuffer(self._attempts, np.uint16)[present]
        begins = np.flatnonzero(
            np.concatenate(
                (
                    [True],
                    (np.diff(offsets) != 1)
                    | (serials[1:] != serials[:-1])
                    | (deadlines[1:] != deadlines[:-1])
                    | (attempts[1:] != attempts[:-1]),
                )
            )
        )
        lengths = np.diff(begins, append=len(offsets))
        columns = (offsets[begins], lengths, serials[begins], deadlines[begins], attempts[begins])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    # ------------------------------------------------------------------------------------------------------- changing

    def append(self, offsets: Sequence[int], serial: int, deadline_ms: int, attempts: int = 1) -> None:
        """Append rows after all others, of ascending offsets."""
        count = len(offsets)
        self._offsets.extend(offsets)
        self._serials.extend(array("q", (serial,)) * count)
        self._deadlines.extend(array("q", (deadline_ms,)) * count)
        self._attempts.extend(array("H", (attempts,)) * count)
        self._next_deadline_ms = min(self._next_deadline_ms, deadline_ms)

    def take(self, row: int, serial: int, deadline_ms: int) -> int:
        """Take the message of a row again; return its number of takes."""
        attempts = self._attempts[row]
        # A number that may not count stays, but without the mark.
        attempts = attempts & ATTEMPTS_MAX if attempts & _UNCOUNTED else min(attempts + 1, ATTEMPTS_MAX)
        self._attempts[row] = attempts
        self._lease(row, serial, deadline_ms)
        return attempts

    def extend(self, row: int, serial: int, deadline_ms: int, *, is_counted: bool) -> None:
        """Give the message of a row a lease of its own."""
        self._lease(row, serial, deadline_ms)
        if not is_counted:
            self._attempts[row] |= _UNCOUNTED

    def _lease(self, row: int, serial: int, deadline_ms: int) -> None:
        self._serials[row] = serial
        self._deadlines[row] = deadline_ms
        self._next_deadline_ms = min(self._next_deadline_ms, deadline_ms)

    def remove(self, row: int) -> None:
        """Remove a row: its message is done. Other rows keep their numbers until `tidy`."""
        self._serials[row] = _REMOVED
        self._removed += 1
        if self.ordered is not None:
            self.ordered.remove(self._offsets[row])
        if row == self._head:
            self._advance(row + 1)

    def remove_lease(self, offsets: Sequence[int], serial: int) -> bool:
        """Remove the rows of ascending offsets, if they are neighbours and all have a serial.

        The ordinary acknowledgement of what one take gave: some microseconds, whatever the number.

        Returns:
            False: they are not, and nothing is removed.
        """
        count = len(offsets)
        row = bisect_left(self._offsets, offsets[0], self._head)
        end = row + count
        if self._offsets[row:end] != array("q", offsets) or self._serials[row:end].count(serial) != count:
            return False
        self._serials[row:end] = array("q", (_REMOVED,)) * count
        self._removed += count
        if self.ordered is not None:
            for offset in offsets:
                self.ordered.remove(offset)
        if row == self._head:
            self._advance(end)
        return True

    def _advance(self, row: int) -> None:
        """Let the head be the first row from `row` on that is not removed."""
        serials, end = self._serials, len(self._serials)
        while row < end and serials[row] == _REMOVED:
            row += 1
        self._head = row

    def remove_before(self, offset: int) -> int:
        """Remove all rows before an offset; return their number."""
        end = bisect_left(self._offsets, offset, self._head)
        before = len(self)
        for row in range(self._head, end):
            if self._serials[row] != _REMOVED:
                self.remove(row)
        return before - len(self)

    def tidy(self) -> None:
        """Move the rows together if more than half of them are removed."""
        if self._removed < _REMOVED_MIN or self._removed * 2 < len(self._offsets):
            return
        columns = (self._offsets, self._serials, self._deadlines, self._attempts)
        if self._removed > self._head:
            rows = [row for row, serial in enumerate(self._serials) if serial != _REMOVED]
            self._offsets, self._serials, self._deadlines, self._attempts = (
                array(column.typecode, [column[row] for row in rows]) for column in columns
            )
        else:
            for column in columns:
                del column[: self._head]
        self._head = self._removed = 0

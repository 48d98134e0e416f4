"""The core's view of the log: its start, its end, and the term of every entry; never a body.

Terms ascend with the index, so the whole log is a short list of runs, one for each leader. Every query
is a bisection of that list.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from dledger.types import NO_INDEX, NO_TERM, LogState, TermRun

_first_index = attrgetter("first_index")
_term = attrgetter("term")


class LogTail:
    """Begin, end and terms of the retained log; kept in step with the store by the effects that the core emits.

    Invariant: runs ascend strictly in `first_index` and in `term`; the first one starts at `begin_index`; there is
    none exactly when the log is empty.
    """

    __slots__ = ("_begin_prev_term", "_runs", "begin_index", "last_index")

    def __init__(self, state: LogState) -> None:
        # `last_index` is `begin_index - 1` exactly when the log is empty.
        self.begin_index = state.begin_index
        self.last_index = state.last_index
        # At most the first run's term; `NO_TERM` or `UNKNOWN_TERM` where no term is known.
        self._begin_prev_term = state.begin_prev_term
        self._runs = list(state.term_runs)
        assert (self.last_index < self.begin_index) == (not self._runs), state

    @property
    def last_term(self) -> int:
        """Term of the last entry; of the entry before the log's start when it is empty.

        `NO_TERM` also where it is unknown: a log whose last term is unknown counts as the least up to date.
        """
        return self._runs[-1].term if self._runs else max(self._begin_prev_term, NO_TERM)

    @property
    def holds_only_no_ops(self) -> bool:
        """Whether the log contains only leaders' no-ops."""
        return self.begin_index == 0 and len(self._runs) == self.last_index + 1

    def term_at(self, index: int) -> int:
        """Return the term of `index`, which lies in `[begin_index - 1, last_index]`.

        For `begin_index - 1` it may be `NO_TERM`, before entry 0, or `UNKNOWN_TERM`.
        """
        assert self.begin_index - 1 <= index <= self.last_index, (self.begin_index, index, self.last_index)
        if index < self.begin_index:
            return self._begin_prev_term
        return self._runs[self._run_of(index)].term

    def first_index_of_run(self, index: int) -> int:
        """Return the first retained index that has the term of `index` (a retained entry)."""
        assert self.begin_index <= index <= self.last_index, (self.begin_index, index, self.last_index)
        return self._runs[self._run_of(index)].first_index

    def last_index_of_term(self, term: int, index_max: int) -> int:
        """Return the last retained index of `term` that is at most `index_max`; -1 when there is none."""
        position = bisect_right(self._runs, term, key=_term) - 1
        if position < 0 or self._runs[position].term != term or self._runs[position].first_index > index_max:
            return NO_INDEX
        return min(self._end_of_run(position), index_max)

    def first_conflict(self, first_index: int, last_index: int, term: int) -> int:
        """Return the first index in `[first_index, last_index]` whose entry has another term; -1 if there is none."""
        index = max(first_index, self.begin_index)
        last_index = min(last_index, self.last_index)
        if index > last_index:
            return NO_INDEX
        position = self._run_of(index)
        if self._runs[position].term != term:
            return index
        following = self._end_of_run(position) + 1
        return following if following <= last_index else NO_INDEX

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Return whether a log with this end is at least as up to date as ours (Raft §5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def append(self, last_index: int, term: int) -> None:
        """Record new entries after our last one, up to `last_index`, all of `term`."""
        assert last_index > self.last_index, (last_index, self.last_index)
        assert term >= self.last_term, (term, self.last_term)
        if not self._runs or self._runs[-1].term != term:
            self._runs.append(TermRun(first_index=self.last_index + 1, term=term))
        self.last_index = last_index

    def truncate(self, first_index: int) -> None:
        """Remove the entries from `first_index` on."""
        assert self.begin_index <= first_index <= self.last_index, (self.begin_index, first_index, self.last_index)
        while self._runs and self._runs[-1].first_index >= first_index:
            self._runs.pop()
        self.last_index = first_index - 1

    def drop_head(self, begin_index: int, prev_term: int) -> None:
        """Remove the entries before `begin_index`; `prev_term` is the term of the last of them."""
        assert self.begin_index <= begin_index <= self.last_index + 1, (begin_index, self.begin_index, self.last_index)
        while self._runs and self._end_of_run(0) < begin_index:
            self._runs.pop(0)
        if self._runs:
            self._runs[0] = TermRun(max(self._runs[0].first_index, begin_index), self._runs[0].term)
        self.begin_index = begin_index
        self._begin_prev_term = prev_term

    def _run_of(self, index: int) -> int:
        return bisect_right(self._runs, index, key=_first_index) - 1

    def _end_of_run(self, position: int) -> int:
        is_last = position + 1 == len(self._runs)
        return self.last_index if is_last else self._runs[position + 1].first_index - 1

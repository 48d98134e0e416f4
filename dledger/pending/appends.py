"""Accepted appends that are not answered yet: bounds, order, and the event that answers each of them.

An append is answered exactly once, by the first of: a refusal of the core; the commit of its entries (success); the
commit of another entry at its first index (`TERM_CHANGED`: none of its entries will be committed); its deadline or the
node's end (outcome unknown). It counts against the bounds until its entries are committed or truncated, even when its
deadline has passed, so that a leader without a quorum does not accept appends without a bound.

Not here: the decisions (`dledger.core`), the caller (`dledger.node.node`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dledger.entries.errors import EntryNotFound
from dledger.errors import InvariantBroken, ResponseCode
from dledger.types import NO_INDEX, NO_TERM

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of an append; `dledger.errors.outcome_of(code)` shows whether its entries are committed.

    Attributes:
        code: 200, or that of a failure.
        message: the cause of a failure, for people.
        first_index: index of the first body; the others follow. -1 unless `code` is 200.
        term: the entries' term; -1 unless `code` is 200.
        positions: byte position of each entry.
        results: the state machine's result of each body; empty without a state machine, or after a change of leader.
    """

    code: ResponseCode
    message: str = ""
    first_index: int = NO_INDEX
    term: int = NO_TERM
    positions: list[int] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


class PendingAppend:
    """A pending append. If the owner cancels `future`, the entries stay in the log."""

    __slots__ = ("entries_count", "first_index", "future", "last_index", "positions", "size_bytes", "taken_s", "term")

    def __init__(
        self, future: asyncio.Future[AppendResult], entries_count: int, size_bytes: int, taken_s: float
    ) -> None:
        self.future = future
        self.entries_count = entries_count
        self.size_bytes = size_bytes
        self.taken_s = taken_s
        # Set together when the core has appended the entries, and never changed; a position for each entry.
        self.first_index = NO_INDEX
        self.last_index = NO_INDEX
        self.term = NO_TERM
        self.positions: list[int] = []

    def answer(self, result: AppendResult) -> None:
        """Resolve the future, unless it is resolved or cancelled already."""
        if not self.future.done():
            self.future.set_result(result)


class PendingAppends:
    """All pending appends, bounded in entries and bytes.

    Args:
        entries_max: entries accepted and not yet committed; more are refused.
        size_bytes_max: the same in bytes of bodies.
        timeout_s: the time after which an append is answered with "outcome unknown".
        observe_latency: called with the seconds from acceptance to commit of every success.
    """

    def __init__(
        self, entries_max: int, size_bytes_max: int, timeout_s: float, observe_latency: Callable[[float], None]
    ) -> None:
        # Of all accepted appends that are not refused, committed or truncated, answered or not. The gate
        # calls `has_space` before each `take`, so that the first two never exceed their bounds.
        self.entries_count = 0
        self.size_bytes = 0
        self.appends_count = 0
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._timeout_s = timeout_s
        self._observe_latency = observe_latency
        # In this node's log: ascending in index, without overlap, and their terms never decrease.
        self._waiting: deque[PendingAppend] = deque()
        # Truncated, so they do not count against the bounds; a commit at their indexes decides their outcome.
        self._truncated: list[PendingAppend] = []
        # Every append without an answer, oldest first. Answered ones are removed when they reach the front.
        self._by_age: deque[PendingAppend] = deque()

    def has_space(self, entries_count: int, size_bytes: int) -> bool:
        """Return whether an append of this size may be accepted now."""
        return (
            self.entries_count + entries_count <= self._entries_max
            and self.size_bytes + size_bytes <= self._size_bytes_max
        )

    def take(self, pending: PendingAppend) -> None:
        """Add an append; `appended` or `refused` must follow."""
        self.entries_count += pending.entries_count
        self.size_bytes += pending.size_bytes
        self.appends_count += 1
        self._by_age.append(pending)

    def appended(self, pending: PendingAppend, first_index: int, term: int, positions: list[int]) -> None:
        """Record that the entries are in this node's log."""
        pending.first_index = first_index
        pending.last_index = first_index + pending.entries_count - 1
        pending.term = term
        pending.positions = positions
        self._waiting.append(pending)

    def refused(self, pending: PendingAppend, result: AppendResult) -> None:
        """Answer an append of which nothing was written."""
        self._release(pending)
        pending.answer(result)

    def truncated(self, first_index: int) -> None:
        """Record that entries from `first_index` on were truncated: a commit at their indexes decides their outcome."""
        waiting = self._waiting
        while waiting and waiting[-1].last_index >= first_index:
            pending = waiting.pop()
            self._release(pending)
            if not pending.future.done():
                self._truncated.append(pending)

    def committed(
        self,
        commit_index: int,
        term_at: Callable[[int], int],
        now_s: float,
        take_results: Callable[[int, int], list[Any]] | None = None,
    ) -> None:
        """Answer all appends whose entries are committed, and those whose entries were replaced.

        Args:
            commit_index: entries up to this one are committed; with a state machine: and applied.
            term_at: term of an entry in this node's log.
            now_s: the clock of latencies.
            take_results: returns the state machine's results of entries (first, last index); None without one.

        Raises:
            InvariantBroken: an entry of a pending append was replaced without being truncated first.
        """
        waiting = self._waiting
        checked_term = NO_TERM
        while waiting and waiting[0].last_index <= commit_index:
            pending = waiting.popleft()
            self._release(pending)
            # Terms never decrease: every entry between two entries of one term has that term.
            is_last = not waiting or waiting[0].last_index > commit_index
            if is_last or pending.term != checked_term:
                checked_term = term_at(pending.last_index)
                if checked_term != pending.term:
                    raise InvariantBroken(
                        f"entry {pending.last_index}: expected term {pending.term}, found {checked_term}"
                    )
            results = take_results(pending.first_index, pending.last_index) if take_results else []
            if not pending.future.done():
                pending.future.set_result(_success(pending, results))
                self._observe_latency(now_s - pending.taken_s)
        if self._truncated:
            self._resolve_truncated(commit_index, term_at)

    def expire(self, now_s: float) -> None:
        """Answer appends that have waited too long: they may still be committed."""
        by_age = self._by_age
        while by_age and (by_age[0].future.done() or now_s - by_age[0].taken_s >= self._timeout_s):
            message = f"not committed within {self._timeout_s:g} s; it may still be committed"
            by_age.popleft().answer(AppendResult(ResponseCode.WAIT_QUORUM_ACK_TIMEOUT, message))

    def end(self, result: AppendResult) -> None:
        """Answer all pending appends with `result`: the node stops, and their outcome is unknown."""
        for pending in self._by_age:
            pending.answer(result)
        self._by_age.clear()
        self._waiting.clear()
        self._truncated.clear()

    def futures(self) -> list[asyncio.Future[AppendResult]]:
        """Return the futures that are not resolved yet."""
        return [pending.future for pending in self._by_age if not pending.future.done()]

    def _resolve_truncated(self, commit_index: int, term_at: Callable[[int], int]) -> None:
        undecided = []
        for pending in self._truncated:
            if pending.future.done():
                continue
            try:
                if not self._is_settled(pending, commit_index, term_at):
                    undecided.append(pending)
            except EntryNotFound:
                # The log now begins after it, so its outcome cannot be determined: it is answered at its deadline.
                continue
        self._truncated = undecided

    def _is_settled(self, pending: PendingAppend, commit_index: int, term_at: Callable[[int], int]) -> bool:
        """Answer an append that was truncated here, if committed entries decide its outcome; return whether they do."""
        if pending.first_index > commit_index:
            return False
        if term_at(pending.first_index) != pending.term:
            message = f"another leader's entry is committed at index {pending.first_index}"
            pending.answer(AppendResult(ResponseCode.TERM_CHANGED, message))
            return True
        if pending.last_index > commit_index:
            return False
        if term_at(pending.last_index) != pending.term:
            # The new leader had only the first entries of the batch, which are committed now.
            message = f"a part of the batch, from index {pending.first_index} on, is in the log, the rest is not"
            pending.answer(AppendResult(ResponseCode.INTERNAL_ERROR, message))
        else:
            pending.answer(_success(pending, []))
        return True

    def _release(self, pending: PendingAppend) -> None:
        self.entries_count -= pending.entries_count
        self.size_bytes -= pending.size_bytes
        self.appends_count -= 1


def _success(pending: PendingAppend, results: list[Any]) -> AppendResult:
    return AppendResult(ResponseCode.SUCCESS, "", pending.first_index, pending.term, pending.positions, results)

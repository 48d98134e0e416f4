"""Answers appends when the outcome is known: at the commit, or once the state machine has applied them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.pending.waiters import Waiters


class AppendAnswers:
    """Resolves the futures of appends, in the order of the log.

    Args:
        waiters: the futures.
        term_at: term of an entry in this node's log.
        now_s: the clock of latencies.
    """

    def __init__(self, waiters: Waiters, *, term_at: Callable[[int], int], now_s: Callable[[], float]) -> None:
        self._appends = waiters.appends
        self._applies = waiters.applies
        self._term_at = term_at
        self._now_s = now_s

    def on_committed(self, commit_index: int) -> None:
        """Answer appends without results: there is no state machine."""
        self._appends.committed(commit_index, self._term_at, self._now_s())

    def on_applied(self, applied_index: int, take_results: Callable[[int, int], list[Any]]) -> None:
        """Answer appends with the results of the state machine, and wake callers that wait for its state.

        Args:
            applied_index: entries up to this one are applied.
            take_results: returns the results of entries (first, last index).
        """
        self._appends.committed(applied_index, self._term_at, self._now_s(), take_results)
        self._applies.wake()

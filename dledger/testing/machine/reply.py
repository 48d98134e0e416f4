"""Futures of simulated clients: they receive a node's answers to appends and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.errors import outcome_of
from dledger.testing.checks.clients import ClientChecks, Operation, OperationOutcome
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.pending.appends import AppendResult


class SimReply:
    """Replaces the future that `dledger.pending.appends` expects; a simulation has no event loop.

    Args:
        operation: the client's request.
        checks: check the answer.
        answer: called with the outcome for the client.
    """

    __slots__ = ("_answer", "_checks", "_is_done", "_operation")

    def __init__(self, operation: Operation, checks: ClientChecks, answer: Callable[[OperationOutcome], None]) -> None:
        self._operation = operation
        self._checks = checks
        self._answer = answer
        self._is_done = False

    def done(self) -> bool:
        """Return whether it was answered."""
        return self._is_done

    def set_result(self, result: AppendResult) -> None:
        """Record the answer; called once."""
        assert not self._is_done, self._operation
        self._is_done = True
        self._answer(self._check(result))

    def _check(self, result: AppendResult) -> OperationOutcome:
        outcome = outcome_of(result.code)
        if outcome is Certainty.APPENDED:
            self._checks.acknowledge(
                self._operation, first_index=result.first_index, term=result.term, positions=result.positions
            )
            return OperationOutcome.APPENDED
        if outcome is Certainty.NOT_APPENDED:
            self._checks.refuse(self._operation)
            return OperationOutcome.NOT_APPENDED
        return OperationOutcome.UNKNOWN


class SimReadReply:
    """Replaces the future that `dledger.pending.reads` expects.

    Args:
        answer: called with the read index; None: the read was refused.
    """

    __slots__ = ("_answer", "_is_done")

    def __init__(self, answer: Callable[[int | None], None]) -> None:
        self._answer = answer
        self._is_done = False

    def done(self) -> bool:
        """Return whether it was answered."""
        return self._is_done

    def set_result(self, index: int) -> None:
        """Record the answer; called once."""
        self._is_done = True
        self._answer(index)

    def set_exception(self, _error: Exception) -> None:
        """Refuse; once."""
        self._is_done = True
        self._answer(None)

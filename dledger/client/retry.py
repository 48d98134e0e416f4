"""Retries: tenacity's exponential pauses with jitter, bounded by a deadline.

Only a `Refused` with a temporary cause is retried: nothing was written. An `AppendUnknown` is never retried, because
that could write an entry twice.
"""

from __future__ import annotations

from random import Random

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_exponential, wait_random

from dledger.client.outcomes import Refused

# An election takes about half a second to a second: the first pauses are much shorter, and the last ones short enough
# that a new leader soon receives its first append.
_GROWING = wait_exponential(multiplier=0.015, max=0.1)
_JITTER_S = 0.02
_ASKED_JITTER = 1.2
_PAUSES = _GROWING + wait_random(0, _JITTER_S)

# An attempt that begins later than this before the deadline would probably time out, and its outcome would be unknown.
LAST_TRY_S = 0.1

# A refusal that names another leader is followed at once, this many times in a row; then the client pauses, because
# nodes that do not agree yet could redirect it in circles.
HOPS_MAX = 2


def is_worth_trying(error: BaseException) -> bool:
    """Return whether the failed attempt wrote nothing and may succeed a moment later."""
    return isinstance(error, Refused) and error.is_retriable


def retrying(remaining_s: float) -> Retrying:
    """Return tenacity's retry loop for one request with a limit of `remaining_s` seconds; the last error is raised.

    Attempts begin up to `LAST_TRY_S` before the end; the first one is always made.
    """
    return Retrying(
        retry=retry_if_exception(is_worth_trying),
        wait=_PAUSES,
        stop=stop_before_delay(max(remaining_s - LAST_TRY_S, 0.0)),
        reraise=True,
    )


class Backoff:
    """The same pauses for loops that span several calls: reopened streams, reads that continue on another node.

    Args:
        random: draws the jitter.
    """

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()
        self._state = RetryCallState(Retrying(), None, (), {})

    def next_s(self, asked_s: float = 0.0) -> float:
        """Return the next pause; each is longer than the one before.

        Args:
            asked_s: the pause that the server asks for; it is followed, with up to a fifth more.
        """
        pause = _GROWING(self._state) + self._random.uniform(0, _JITTER_S)
        self._state.attempt_number += 1
        return max(pause, asked_s * self._random.uniform(1.0, _ASKED_JITTER))

    def reset(self) -> None:
        """Restart with short pauses, after a success."""
        self._state.attempt_number = 1


class Repetition:
    """The pauses between the attempts of one call: none after a refusal that names another node, `HOPS_MAX` times."""

    __slots__ = ("_backoff", "_hops")

    def __init__(self) -> None:
        # Made by the first pause: its random numbers take longer than all the rest of a call.
        self._backoff: Backoff | None = None
        self._hops = 0

    def next_s(self, asked_s: float = 0.0, *, is_named: bool) -> float:
        """Return the pause after a failed attempt.

        Args:
            asked_s: see `Backoff.next_s`.
            is_named: the failure names another node, to be asked next.
        """
        self._hops += 1
        if is_named and self._hops <= HOPS_MAX:
            return 0.0
        self._backoff = self._backoff or Backoff()
        return self._backoff.next_s(asked_s)

    def reset(self) -> None:
        """Restart with hops and short pauses, after a success."""
        self._backoff, self._hops = None, 0

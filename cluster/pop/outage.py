"""How long a group had no leader: the time that leases are given (`cluster.state.pop.grace`).

A node that becomes leader knows when it last knew another one. That one may have been gone for some time then, which
the longest usual election timeout bounds. A process that never knew a leader does not know how long the group was down;
then the most is given. The state gives no more than the time since the last command, so too much is given to an idle
group only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.state.pop.grace import GRACE_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.port import Replica

# A leader that is silent for this time is no leader for any node: election timeouts are a second or two.
_UNNOTICED_MS: Final = 3_000
_MS_PER_S: Final = 1_000


class Outage:
    """Observes the leaders that one node knows.

    Args:
        replica: the node's.
        monotonic_s: a monotonic clock.
    """

    def __init__(self, replica: Replica, monotonic_s: Callable[[], float]) -> None:
        self._replica = replica
        self._monotonic_s = monotonic_s
        # The leader that is known, and when the last one ceased to be known; None: there was none.
        self._leader = ""
        self._lost_s: float | None = None
        # The term in which this node began to serve, and the time without a leader before.
        self._term = -1
        self._grace_ms = 0
        replica.when_status_changes(self._status_changed)
        self._status_changed()

    def grace_ms(self, term: int) -> int | None:
        """Return the time without a leader before this node began to serve in a term; None: it does not serve yet.

        Args:
            term: the current one.
        """
        return self._grace_ms if term == self._term else None

    def _status_changed(self) -> None:
        status, now_s = self._replica.status(), self._monotonic_s()
        if status.leader_id != self._leader:
            if self._leader:
                self._lost_s = now_s
            self._leader = status.leader_id
        if status.is_serving_puts and status.term != self._term:
            self._term, self._grace_ms = status.term, GRACE_MS_MAX
            if self._lost_s is not None:
                known_ms = int((now_s - self._lost_s) * _MS_PER_S) + _UNNOTICED_MS
                self._grace_ms = min(known_ms, GRACE_MS_MAX)

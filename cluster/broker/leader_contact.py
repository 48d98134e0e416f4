"""How recent the state of a replica can be: since when it has known no leader, and whether it ever caught up with one.

A replica that is cut off from its group continues to serve local reads, also to users whose rights were revoked
meanwhile. One that was created again from an empty directory has no users until it has received them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.port import Replica


class LeaderContact:
    """Observes the status of one replica.

    Args:
        replica: the observed one.
        clock_s: a monotonic clock.
    """

    def __init__(self, replica: Replica, clock_s: Callable[[], float]) -> None:
        self._replica = replica
        self._clock_s = clock_s
        # When the last leader was lost; None while one is known.
        self._lost_s: float | None = clock_s()
        self._has_caught_up = False
        replica.when_status_changes(self._status_changed)
        self._status_changed()

    @property
    def silent_s(self) -> float:
        """Seconds since this replica has known a leader; 0 while it knows one, or has no group."""
        return 0.0 if self._lost_s is None else self._clock_s() - self._lost_s

    @property
    def has_caught_up(self) -> bool:
        """Whether this process has once applied everything that was acknowledged before the term of a leader."""
        if not self._has_caught_up:
            replica = self._replica
            self._has_caught_up = replica.status().is_serving_puts or replica.has_applied_term
        return self._has_caught_up

    def _status_changed(self) -> None:
        if self._replica.status().leader_id:
            self._lost_s = None
        elif self._lost_s is None:
            self._lost_s = self._clock_s()

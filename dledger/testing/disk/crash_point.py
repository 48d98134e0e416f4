"""The point at which a simulated process dies: an operation on disk or network, chosen beforehand."""

from __future__ import annotations

from dledger.testing.faults import SimulatedCrash


class CrashPoint:
    """Counts the operations of one process and determines the one at which it dies.

    Attributes:
        is_dead: the process died here; every further operation raises `SimulatedCrash`.
    """

    __slots__ = ("_remaining", "is_dead")

    def __init__(self) -> None:
        self.is_dead = False
        self._remaining = 0

    def arm(self, operations: int) -> None:
        """Die in the `operations`-th (>= 1) operation from now on."""
        assert operations >= 1, operations
        self._remaining = operations

    def disarm(self) -> None:
        """Cancel the planned crash."""
        self._remaining = 0

    def reach(self) -> bool:
        """Count one operation; True: it is the last one: do an arbitrary part of it, then raise `SimulatedCrash`."""
        if self.is_dead:
            raise SimulatedCrash
        if self._remaining:
            self._remaining -= 1
            self.is_dead = self._remaining == 0
        return self.is_dead

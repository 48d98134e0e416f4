"""Brings queues to what a loaded snapshot says of them, some of them in each step: thousands take seconds.

| when                                        | what                                                                   |
| ------------------------------------------- | ---------------------------------------------------------------------- |
| while the snapshot itself is being loaded   | nothing: what is known of queues comes with its last piece             |
| before anything after it is dispatched      | queues go that are known to have come further in a log that is gone    |
| when all that it knows of is dispatched     | no queue may end before the place to which it is known to have come    |

Nothing is dispatched while one of the three is under way.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.replica.replicated_state import ReplicatedState
    from commitlog.replicated.commit_log import DLedgerCommitLog
    from store.dispatch.derived_data import DerivedData
    from store.model.queue_ends import QueueEnds


class LoadedQueues:
    """Follows the snapshots that one node loads. Owner's thread only.

    Args:
        derived: has the queues.
        log: of the node.
        machine: says what was loaded.
    """

    def __init__(self, derived: DerivedData, log: DLedgerCommitLog, machine: ReplicatedState) -> None:
        self._derived = derived
        self._log = log
        self._machine = machine
        # The queue ends whose first steps were begun, compared by identity: each loaded snapshot brings another object.
        self._known: QueueEnds | None = None
        # What is left of the steps under way; None between two kinds of steps.
        self._steps: Iterator[None] | None = None
        # The second kind was begun: the table's last row.
        self._is_restoring = False

    def step(self, end_s: float) -> bool:
        """Work until a time of the monotonic clock, one step at least; return whether dispatch may continue.

        It returns False also where units must be flushed first (`ConsumeQueues.is_full`), and while a snapshot is being
        loaded.

        Raises:
            store.errors.DiskFull: nothing is lost; a later step tries again.
            store.errors.StorageFailed: the store must stop.
        """
        if self._machine.is_loading:
            return False
        loaded = self._machine.loaded
        if loaded is None:
            return True
        if loaded is not self._known:
            self._log.drop_stranded_files()
            self._known, self._is_restoring = loaded, False
            self._steps = self._derived.drop_surpassed_queues_in_steps(loaded)
        elif self._steps is None and self._derived.dispatcher.offset >= loaded.offset:
            self._is_restoring = True
            self._steps = self._derived.restore_queue_ends_in_steps(loaded)
        if not self._continue(end_s):
            return False
        if self._is_restoring:
            self._is_restoring = False
            self._machine.loaded = None
        return True

    def drop_surpassed(self) -> None:
        """Do all that must come before a dispatch, at once; for a node that ends while no snapshot is being loaded.

        Raises:
            as `step`.
        """
        assert not self._machine.is_loading
        while not self._is_restoring and not self.step(monotonic()):
            continue

    def _continue(self, end_s: float) -> bool:
        """Take steps until a time; return whether none is left."""
        steps, self._steps = self._steps, None
        for _ in steps or ():
            if monotonic() >= end_s or self._derived.queues.is_full:
                self._steps = steps
                return False
        return True

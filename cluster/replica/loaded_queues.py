"""Updates consume queues to a loaded snapshot, in short steps, because thousands of queues take seconds.

| when                                          | what                                                                 |
| --------------------------------------------- | -------------------------------------------------------------------- |
| while the snapshot is being loaded            | nothing: the queue ends are known after its last piece               |
| before the dispatch of anything after it      | queues that extend past the snapshot, in a replaced log, are dropped |
| when everything that it covers is dispatched  | every queue is extended to at least its end in the snapshot          |

Nothing is dispatched during any of the three.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from store.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.replica.replicated_state import ReplicatedState
    from commitlog.replicated.commit_log import DLedgerCommitLog
    from store.dispatch.derived_data import DerivedData
    from store.model.queue_ends import QueueEnds


class LoadedQueues:
    """Applies the snapshots that one node loads to its queues. For use by the owner's thread only.

    Args:
        derived: owns the queues.
        log: log of the node.
        machine: state machine, which has the loaded queue ends.
        now_s: a monotonic clock that also advances within an iteration of the event loop.
    """

    def __init__(
        self,
        derived: DerivedData,
        log: DLedgerCommitLog,
        machine: ReplicatedState,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._now_s = now_s
        self._derived = derived
        self._log = log
        self._machine = machine
        # The queue ends that are being applied, compared by identity: each loaded snapshot has its own object.
        self._known: QueueEnds | None = None
        # The remaining steps of the current phase; None between phases.
        self._steps: Iterator[None] | None = None
        # Whether the phase of the table's last row has begun.
        self._is_restoring = False

    def step(self, end_s: float) -> bool:
        """Work until `end_s` of the clock, at least one step; return whether dispatch may continue.

        It also returns False if units must be flushed first (`ConsumeQueues.is_full`), or a snapshot is being loaded.

        Raises:
            store.errors.DiskFull: nothing is lost; a later step retries.
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
            self._steps = self._derived.drop_superseded_queues_in_steps(loaded)
        elif self._steps is None and self._derived.dispatcher.offset >= loaded.offset:
            self._is_restoring = True
            self._steps = self._derived.restore_queue_ends_in_steps(loaded)
        if not self._continue(end_s):
            return False
        if self._is_restoring:
            self._is_restoring = False
            self._machine.loaded = None
        return True

    def drop_superseded(self) -> None:
        """Do all steps that must precede a dispatch; for a node that stops while no snapshot is being loaded.

        Raises:
            see `step`.
        """
        assert not self._machine.is_loading
        while not self._is_restoring and not self.step(self._now_s()):
            continue

    def _continue(self, end_s: float) -> bool:
        """Run steps until `end_s`; return whether none is left. After an error the phase begins again."""
        steps, self._steps = self._steps, None
        try:
            for _ in steps or ():
                if self._now_s() >= end_s or self._derived.queues.is_full:
                    self._steps = steps
                    return False
        except DiskFull:
            if not self._is_restoring:
                self._known = None
            raise
        return True

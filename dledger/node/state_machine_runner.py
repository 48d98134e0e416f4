"""Runs the state machine of a node: applies committed entries in steps, saves and loads snapshots.

A received snapshot is loaded in pieces if the machine supports that; committed entries wait until it is loaded.

Place on the path of an append: between the commit and its answer, which contains the results of the machine. A snapshot
is saved in a separate thread; meanwhile nothing is applied, and all other work continues.

Not here: which entries are applied, and when a state is lost (`dledger.node.state_machine`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dledger.driver.driver import Driver
    from dledger.node.ports import Answers, DriverSteps
    from dledger.node.state_machine import Applier
    from dledger.storage.snapshot_store import SnapshotStore
    from dledger.types import SnapshotInfo
    from store.fs.storage_thread import Worker


class StateMachineRunner:
    """Runs the state machine in steps, and implements the driver's port `Snapshots`.

    Args:
        applier: of the machine.
        snapshots: of the machine.
        worker: saves them outside the event loop.
        steps: runs each step; an exception stops the node.
        answers: receives the applied index and the results.
    """

    def __init__(
        self,
        applier: Applier,
        snapshots: SnapshotStore,
        *,
        worker: Worker,
        steps: DriverSteps,
        answers: Answers,
    ) -> None:
        self._applier = applier
        self._snapshots = snapshots
        self._steps = steps
        self._answers = answers
        self._worker = worker
        # The half-open range of indexes for whose results appends may wait; empty if both are equal.
        self._expected_begin = self._expected_end = 0
        # At most one step is scheduled, and none while a snapshot is being saved: `_saved` schedules the next one.
        self._is_step_due = False
        # Cleared in the loop before a save, set by the worker after it. While it is cleared, applier and snapshot store
        # belong to the worker, except that the loop reads chunks of older snapshots: if it could not, no follower would
        # be caught up by a leader that saves one snapshot after the other.
        self._is_saved = threading.Event()
        self._is_saved.set()
        # Whether a snapshot was requested while another one was being saved. None: it was not; True: it was, even if
        # nothing was applied since the last one.
        self._asked_meanwhile: bool | None = None

    @property
    def applied_index(self) -> int:
        """The last index applied to the state; -1: none."""
        return self._applier.applied_index

    async def stop(self) -> None:
        """Wait for the end of a running save."""
        await self._worker.stop()

    # ------------------------------------------------------------------------------------------ from the observer

    def appended(self, first_index: int, last_index: int) -> None:
        """Keep the results of these entries until `take` is called."""
        self._applier.expect(first_index, last_index)
        if self._expected_begin == self._expected_end:
            self._expected_begin = first_index
        self._expected_end = last_index + 1

    def take(self, first_index: int, last_index: int) -> list[Any]:
        """Return the results of applied entries; None for a result that is not known here."""
        self._expected_begin = last_index + 1
        return self._applier.take(first_index, last_index)

    def truncated(self, first_index: int) -> None:
        """Remove the results of truncated entries."""
        begin = max(first_index, self._expected_begin)
        self._applier.forget(begin, self._expected_end - 1)
        self._expected_end = max(min(self._expected_end, begin), self._expected_begin)

    def committed(self, commit_index: int) -> None:
        """Schedule the application of all entries up to `commit_index`."""
        self._applier.committed(commit_index)
        self._ask_step()

    def on_reset(self, begin_index: int, snapshot_index: int) -> None:
        """Continue from a snapshot that was received.

        Raises:
            dledger.node.state_machine.StateLost, StateMachineFailed, store.errors.StorageFailed: the node must stop.
        """
        self.truncated(0)
        # A save rarely runs at this time; both write files of the same directory.
        self._worker.drain()
        self._applier.on_reset(begin_index, snapshot_index)
        # Even without entries to apply, because readers may wait for entries in the snapshot.
        self._step_soon()

    # -------------------------------------------------------------------------------------------------------- steps

    def request_snapshot(self, *, is_forced: bool = False) -> None:
        """Request a snapshot; see `Applier.request_snapshot`. Repeat it if the disk was full.

        During a save the applier belongs to the saving thread, so the request is recorded here and made afterwards.
        """
        if not self._is_saved.is_set():
            self._asked_meanwhile = is_forced or bool(self._asked_meanwhile)
            return
        self._applier.request_snapshot(is_forced=is_forced)
        self._step_soon()

    def _ask_step(self) -> None:
        if self._applier.is_behind:
            self._step_soon()

    def _step_soon(self) -> None:
        if not self._is_step_due and self._is_saved.is_set():
            self._is_step_due = True
            self._steps.soon(self._step)

    def _step(self, _driver: Driver) -> None:
        """Apply a piece and report it, and save a snapshot if one is due; or load a piece of a received snapshot."""
        self._is_step_due = False
        self._applier.step()
        if self._applier.is_loading:
            self._ask_step()
            return
        self._answers.on_applied(self.applied_index, self.take)
        if self._applier.is_snapshot_due:
            self._is_saved.clear()
            self._worker.run(self._save, self._saved)
        self._ask_step()

    def _save(self) -> None:
        try:
            self._applier.save_snapshot()
        finally:
            self._is_saved.set()

    def _saved(self, error: Exception | None) -> None:
        def report(driver: Driver) -> None:
            if error is not None:
                raise error
            if self._applier.snapshot is not None:
                driver.snapshot_saved(self._applier.snapshot)
            self._applier.catch_up()
            asked, self._asked_meanwhile = self._asked_meanwhile, None
            if asked is not None:
                self.request_snapshot(is_forced=asked)
            self._ask_step()

        self._steps.soon(report)

    # --------------------------------------------------------------------------------------- the port of the driver

    def read_chunk(self, snapshot: SnapshotInfo, offset: int, length: int) -> bytes | None:
        """Return a chunk of a snapshot, also during a save; None: the snapshot is deleted or damaged."""
        return self._snapshots.read_chunk(snapshot, offset, length)

    def write_chunk(self, snapshot: SnapshotInfo, offset: int, payload: bytes) -> int:
        """Write the next chunk of an incoming snapshot; return the number of bytes received; 0 during a save."""
        return self._snapshots.write_chunk(snapshot, offset, payload) if self._is_saved.is_set() else 0

    def finish(self, snapshot: SnapshotInfo) -> bool:
        """Verify an incoming snapshot and make it durable; False: it is damaged or incomplete."""
        return self._is_saved.is_set() and self._snapshots.finish(snapshot)

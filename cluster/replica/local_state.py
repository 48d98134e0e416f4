"""The broker state of a standalone broker, stored as snapshots; a change is acknowledged when a snapshot has it.

A plain log contains only messages: other programs read it, and its oldest files are deleted, so that commands in it
would have to be rewritten repeatedly. The state is small, and whole snapshots are the simplest durable form: each file,
with a checksum, replaces the one before. Changes that arrive during a save are in the next snapshot. A change is
visible shortly before it is durable.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.protocol.errors import Reason, RequestFailed
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel
from cluster.state.features import FEATURE_LEVEL
from cluster.state.rocketmq_config import delays_within_queues, import_config, old_timers_passed
from cluster.state.verdicts import Applied, CommandVerdict
from cluster.state.waiting_commands import OFFSET_MAX
from commitlog.conversion.old_config import LOCAL_STATE_DIRECTORY
from dledger.storage.snapshot_store import SnapshotStore
from store.errors import Certainty, DiskFull, StoreError
from store.fs.storage_thread import StorageThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.state.commands import Command
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

# Under the root of the store; snapshots are numbered consecutively.
DIRECTORY = LOCAL_STATE_DIRECTORY
_NO_TERM = 0
# The most of the log that a start reads for effects: some 0.1 s.
_EFFECTS_BYTES_MAX = 64 << 20


def load_state(files: Files, root: str) -> BrokerState | None:
    """Return the state of the standalone broker in the store `root`; None if there was no such broker.

    Raises:
        see `LocalState.open`.
    """
    directory = f"{root}/{DIRECTORY}"
    if not files.is_directory(directory):
        return None
    snapshots = SnapshotStore.open(files, directory)
    try:
        if snapshots.damaged:
            raise snapshots.damaged[0]
        latest = snapshots.latest()
        if latest is None:
            return None
        state = BrokerState()
        state.snapshot_load(snapshots.load(latest))
        return state
    finally:
        snapshots.close()


def check_state(files: Files, root: str) -> None:
    """Check that `LocalState.open` will succeed, before the store `root` is opened.

    Raises:
        see `LocalState.open`.
    """
    if load_state(files, root) is None:
        import_config(Path(root))


def _import(state: BrokerState, root: str, max_offset: Callable[[str, int], int]) -> None:
    """Import RocketMQ's files, once: from then on only snapshots are read.

    Raises:
        cluster.state.rocketmq_config.UnreadableConfig: one cannot be read.
    """
    imported = import_config(Path(root))
    for note in imported.notes:
        logger.warning("imported %s", note)
    left = old_timers_passed(max_offset)
    for each in left:
        logger.warning("timers_left command=%r: messages of RocketMQ for a time are not delivered", each)
    for command in (*imported.commands(), *left):
        state.apply_command(delays_within_queues(command, max_offset))


class LocalState:
    """The state and its snapshots. Created by `open`, inside the running loop.

    Attributes:
        state: read-only; changed only by `change`.
    """

    def __init__(self, state: BrokerState, snapshots: SnapshotStore, number: int) -> None:
        self.state = state
        self._snapshots = snapshots
        # Number of the newest snapshot whose save has begun.
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._thread = StorageThread("broker-state")
        self._failure: asyncio.Future[Exception] = self._loop.create_future()
        # Callers whose changes are in no snapshot yet.
        self._waiting: list[asyncio.Future[None]] = []
        # One save runs at a time: an older snapshot must not replace a newer one.
        self._is_saving = False
        # Whether the last save failed: the state has changes that no snapshot has.
        self._is_unsaved = False
        # The effects offset in the newest snapshot whose save has begun.
        self._saved_offset = state.effects_offset

    @classmethod
    def open(
        cls, files: Files, root: str, max_offset: Callable[[str, int], int] = lambda _topic, _queue_id: OFFSET_MAX
    ) -> LocalState:
        """Load the newest snapshot in the store `root`, or import RocketMQ's configuration if there is none.

        Args:
            files: the file system.
            root: of the store.
            max_offset: returns the end of a queue.

        Raises:
            cluster.state.rocketmq_config.UnreadableConfig: RocketMQ's configuration cannot be imported.
            dledger.storage.snapshot_store.SnapshotDamaged: the newest one is damaged: restore it, or remove it to
                continue with the one before.
            cluster.state.compact_bytes.Unreadable: the snapshot is of a newer version.
            store.errors.StorageFailed: it cannot be read.
        """
        directory = f"{root}/{DIRECTORY}"
        files.make_directory(f"{root}/config")
        files.make_directory(directory)
        snapshots = SnapshotStore.open(files, directory)
        if snapshots.damaged:
            raise snapshots.damaged[0]
        state, latest = BrokerState(), snapshots.latest()
        number = 0
        if latest is not None:
            state.snapshot_load(snapshots.load(latest))
            number = latest.index
            if state.feature_level == FEATURE_LEVEL:
                return cls(state, snapshots, number)
            # Saved before the first effect, so that an older program refuses the state instead of missing effects.
            number += 1
        else:
            _import(state, root, max_offset)
        state.apply_command(SetFeatureLevel(FEATURE_LEVEL))
        snapshots.save(number, _NO_TERM, b"".join(state.snapshot_save()))
        return cls(state, snapshots, number)

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error after which the durable state is unknown."""
        return self._failure

    async def change(self, command: Command) -> Applied:
        """Change the state; return the result of the command once it is durable.

        Raises:
            RequestFailed: DISK_FULL: the state is changed, but not durable.
            store.errors.StorageFailed: whether it is durable is not known; the process must stop.
        """
        applied = self.state.apply_command(command)
        # A command without effect may depend on a change that is not durable yet.
        if applied.verdict is CommandVerdict.CHANGED or self._is_saving or self._is_unsaved:
            saved: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(saved)
            self._save_next()
            try:
                await saved
            except DiskFull as error:
                text = f"{error}: it has taken effect, but is not durable: a crash of the broker loses it"
                raise RequestFailed(Reason.DISK_FULL, text, certainty=Certainty.UNKNOWN) from error
        return applied

    def save_effects(self) -> None:
        """Save the state if a start would have to read too much of the log for the effects that it lacks."""
        if self.state.effects_offset - self._saved_offset >= _EFFECTS_BYTES_MAX:
            self._save_next(is_due=True)

    def _save_next(self, *, is_due: bool = False) -> None:
        if self._is_saving or not (self._waiting or is_due):
            return
        if self._failure.done():
            self._end_all(self._waiting, self._failure.result())
            return
        self._is_saving = True
        waiting, self._waiting = self._waiting, []
        self._number += 1
        # Encoded in the thread: with a hundred thousand topics that takes a large part of a second.
        number, content = self._number, self.state.snapshot_save()
        self._saved_offset = self.state.effects_offset

        def finished(error: Exception | None) -> None:
            self._is_saving = False
            self._is_unsaved = error is not None
            if error is not None and not isinstance(error, DiskFull) and not self._failure.done():
                logger.error("broker_state_failed error=%r", str(error))
                self._failure.set_result(error)
            self._end_all(waiting, error)
            self._save_next()

        self._thread.run(lambda: self._snapshots.save(number, _NO_TERM, b"".join(content)), finished)

    @staticmethod
    def _end_all(waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
        for saved in waiting:
            if saved.done():
                continue
            if error is None:
                saved.set_result(None)
            else:
                assert isinstance(error, StoreError), error
                saved.set_exception(error)

    async def stop(self) -> None:
        """Wait until the running save has ended, and save effects that no snapshot has."""
        await self._thread.stop()
        if self.state.effects_offset > self._saved_offset and not self._failure.done():
            # On a full disk the next start reads them from the log.
            with suppress(DiskFull):
                self._snapshots.save(self._number + 1, _NO_TERM, b"".join(self.state.snapshot_save()))
        self._snapshots.close()

"""The broker state of a standalone broker: snapshots, and a journal of the changes since.

A plain log contains only messages: other programs read it, and its oldest files are deleted, so that commands in it
would have to be rewritten repeatedly. So the commands have a journal of their own, and a change is acknowledged when it
is durable there, which does not depend on the size of the state. Changes that arrive during a sync share the next one.
A change is visible shortly before it is durable. Snapshots, which another thread writes, bound the journal.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.protocol.errors import Reason, RequestFailed
from cluster.replica.journal.format import OVERHEAD_SIZE
from cluster.replica.journal.journal import Journal
from cluster.replica.journal.reading import FOLDER
from cluster.replica.journal.segments import SEGMENT_SIZE_BYTES, SegmentFiles
from cluster.replica.old.waiting import waiting_commands
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import load_state
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, encode_command
from cluster.state.features import FEATURE_LEVEL
from cluster.state.rocketmq_config import delays_within_queues, import_config
from cluster.state.verdicts import Applied, CommandVerdict
from commitlog.conversion.old_config import LOCAL_STATE_DIRECTORY
from dledger.storage.snapshot_store import SnapshotStore
from store.errors import Certainty, DiskFull, IllegalMessage, StoreError
from store.fs.storage_thread import StorageThread
from store.steps import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.replica.journal.segments import OpenedJournal
    from cluster.state.commands import Command
    from store.access.message_store import MessageStore
    from store.fs.ports import Files
    from store.fs.storage_thread import Worker
    from store.model.commit_log import CommitLog

logger = logging.getLogger(__name__)

# Under the root of the store. A snapshot has the number of the last command that it contains.
DIRECTORY = LOCAL_STATE_DIRECTORY
_NO_TERM = 0
# The most of the log that a start reads for effects: some 0.1 s.
_EFFECTS_BYTES_MAX = 64 << 20
# The most of the journal between two snapshots: a start applies it in less than a second.
_COMMANDS_MAX = 40_000


def _imported(root: str, store: MessageStore | None) -> BrokerState:
    """Import RocketMQ's files, and what waits in its store, once: from then on only snapshots and journal are read.

    Raises:
        cluster.state.rocketmq_config.UnreadableConfig: one cannot be read.
    """
    state, imported = BrokerState(), import_config(Path(root))
    for note in imported.notes:
        logger.warning("imported %s", note)
    commands = list(imported.commands())
    if store is not None:
        commands = [delays_within_queues(command, store.max_offset) for command in commands]
        commands += at_once(waiting_commands(Path(root), store, commands))
    for command in commands:
        state.apply_command(command)
    return state


class LocalState:
    """The state, its snapshots and its journal. Created by `open`, inside the running loop.

    Attributes:
        state: read-only; changed only by `change`, and by the effects of records.
    """

    def __init__(
        self,
        state: BrokerState,
        snapshots: SnapshotStore,
        files: SegmentFiles,
        opened: OpenedJournal,
        cut: tuple[int, int, int],
        new_worker: Callable[[str], Worker],
    ) -> None:
        self.state = state
        self._snapshots = snapshots
        self._writer = new_worker("broker-state")
        self._saver = new_worker("broker-state-snapshot")
        self._journal = Journal(files, opened, self._writer, self._written)
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        # The save that waits for the journal, or runs; its result is the error.
        self._saving: asyncio.Future[StoreError | None] | None = None
        # What it saves, until it runs: index of the last command, and the state.
        self._to_save: tuple[int, Iterator[bytes]] | None = None
        # Where the newest snapshot was cut whose save has begun, also if it failed since: the next attempt is not made
        # before as many changes again.
        self._cut_index, self._cut_offset, self._size_since_cut = cut

    @classmethod
    def open(
        cls,
        files: Files,
        root: str,
        log: CommitLog,
        store: MessageStore | None = None,
        *,
        new_worker: Callable[[str], Worker] = StorageThread,
        segment_size: int = SEGMENT_SIZE_BYTES,
    ) -> LocalState:
        """Load the newest snapshot in the store `root` and the journal, or import RocketMQ's configuration.

        Args:
            files: the file system.
            root: of the store.
            log: the plain log, whose records may have effects.
            store: the messages of the log, from which the first start derives what waits; None: nothing does.
            new_worker: starts a thread for disk work, with the given name.
            segment_size: size of new files of the journal, in bytes.

        Raises:
            cluster.state.rocketmq_config.UnreadableConfig: RocketMQ's configuration cannot be imported.
            store.errors.DiskFull: there is no space for the first files.
            see also `cluster.replica.saved_state.load_state`.
        """
        directory = f"{root}/{DIRECTORY}"
        files.make_directory(directory)
        segments = SegmentFiles(files, f"{directory}/{FOLDER}", segment_size)
        saved = load_state(files, root)
        snapshots = SnapshotStore.open(files, directory)
        if saved is None or saved.journal is None:
            state = _imported(root, store) if saved is None else saved.state
            # Before the snapshot: one with the feature level of the journal is not loaded without a journal.
            opened = segments.begin(1 if saved is None else saved.index + 2)
            is_save_due, cut = True, (0, 0, 0)
        else:
            state, changes = saved.state, saved.changes()
            # As if no process had ended since the snapshot, so that frequent starts do not delay the next one.
            cut = saved.index, state.effects_offset, sum(len(each.body) + OVERHEAD_SIZE for each in changes)
            is_save_due = RecordEffects(log, state).replay(changes, log.end_offset)
            is_begun = bool(saved.journal.segments)
            opened = segments.resume(saved.journal) if is_begun else segments.begin(saved.index + 1)
        is_raised = state.apply_command(SetFeatureLevel(FEATURE_LEVEL)).verdict is CommandVerdict.CHANGED
        if is_save_due or is_raised:
            # Before the first change, so that an older program refuses the state instead of missing changes.
            snapshots.save(opened.last_index, _NO_TERM, b"".join(state.snapshot_save()))
            cut = opened.last_index, state.effects_offset, 0
        return cls(state, snapshots, segments, opened, cut, new_worker)

    @property
    def failure(self) -> asyncio.Future[Exception]:
        """Resolves with the error after which the durable state is unknown."""
        return self._failure

    # ---------------------------------------------------------------------------------------------------- changing

    async def change(self, command: Command) -> Applied:
        """Change the state; return the result of the command once it is durable.

        Raises:
            RequestFailed: DISK_FULL: nothing was changed.
            store.errors.StorageFailed: whether it is durable is not known; the process must stop.
        """
        journal = self._journal
        try:
            body = encode_command(command)
        except IllegalMessage as error:
            return Applied(CommandVerdict.ILLEGAL_REQUEST, str(error))
        if len(body) > journal.command_size_max:
            detail = f"the command has {len(body)} bytes: expected at most {journal.command_size_max}"
            return Applied(CommandVerdict.ILLEGAL_REQUEST, detail)
        await self._make_space(len(body))
        effects_offset = self.state.effects_offset
        applied = self.state.apply_command(command)
        if applied.verdict is CommandVerdict.CHANGED:
            journal.append(effects_offset, body)
            self._size_since_cut += len(body) + OVERHEAD_SIZE
            self._save_if_due()
        # A command without effect may depend on a change that is not durable yet.
        if journal.durable_index < journal.last_index:
            await journal.durable(journal.last_index)
        return applied

    async def _make_space(self, size: int) -> None:
        """Wait until the journal has space for a command, which then cannot fail."""
        while True:
            if self._failure.done():
                raise self._failure.result()
            if self._journal.has_space(size):
                return
            if self._journal.is_at_limit:
                error = await asyncio.shield(self._saving or self._begin_save())
            else:
                error = await self._journal.make_space()
            if isinstance(error, DiskFull):
                raise RequestFailed(Reason.DISK_FULL, str(error), certainty=Certainty.NOT_APPENDED) from error

    def _written(self, error: StoreError | None) -> None:
        """Continue after a batch of the journal, or end after an error."""
        if error is not None:
            self._fail(error)
        self._run_save()

    def _fail(self, error: StoreError) -> None:
        if not self._failure.done():
            logger.error("broker_state_failed error=%r", str(error))
            self._failure.set_result(error)

    # ------------------------------------------------------------------------------------------------------ saving

    def save_effects(self) -> None:
        """Save the state if a start would have to read too much of the log for the effects that it lacks."""
        self._save_if_due()

    def _save_if_due(self) -> None:
        is_due = (
            self._journal.last_index - self._cut_index >= _COMMANDS_MAX
            or self._size_since_cut >= self._journal.segment_size
            or self.state.effects_offset - self._cut_offset >= _EFFECTS_BYTES_MAX
        )
        if is_due and self._saving is None and not self._failure.done():
            self._begin_save()

    def _begin_save(self) -> asyncio.Future[StoreError | None]:
        saving = self._saving = asyncio.get_running_loop().create_future()
        self._cut_index, self._cut_offset = self._journal.last_index, self.state.effects_offset
        self._size_since_cut = 0
        self._to_save = self._cut_index, self.state.snapshot_save()
        self._run_save()
        return saving

    def _run_save(self) -> None:
        """Run the waiting save if the journal has all commands in it: a snapshot must not be newer than the journal."""
        if self._to_save is None:
            return
        index, content = self._to_save
        if self._failure.done():
            self._end_save(self._failure.result())
        elif self._journal.durable_index >= index:
            self._to_save = None
            # Encoded in the thread: with a hundred thousand topics that takes a large part of a second.
            self._saver.run(lambda: self._snapshots.save(index, _NO_TERM, content), self._end_save)

    def _end_save(self, error: Exception | None) -> None:
        assert self._saving is not None
        assert error is None or isinstance(error, StoreError), error
        saving, self._saving, self._to_save = self._saving, None, None
        if error is None:
            self._forget()
        elif isinstance(error, DiskFull):
            logger.warning("broker_state_not_saved error=%r", str(error))
        else:
            self._fail(error)
        saving.set_result(error)

    def _forget(self) -> None:
        """Delete what no snapshot needs, or at the limit what the newest ones do not need."""
        oldest, *newer = [each.index for each in reversed(self._snapshots.snapshots)]
        # With the commands after it an older snapshot replaces a damaged one.
        self._journal.forget(oldest)
        for index in newer:
            if self._journal.is_at_limit:
                self._journal.forget(index)

    async def stop(self) -> None:
        """Wait until everything running has ended, and save effects that no snapshot has."""
        for worker in (self._writer, self._saver, self._writer):
            await worker.stop()
        if self.state.effects_offset > self._cut_offset and not self._failure.done():
            # On a full disk the next start reads them from the log.
            with suppress(DiskFull):
                self._snapshots.save(self._journal.last_index, _NO_TERM, b"".join(self.state.snapshot_save()))
        self._journal.close()
        self._snapshots.close()

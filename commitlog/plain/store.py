"""A plain store directory in RocketMQ's layout: its log, and the message store on it.

Order of opening: the lock, the state left by the last process, the log, queues and index, and the checkpoint. `abort`
is written before the first change (`store.maintenance.directory`).

Source: RocketMQ `DefaultMessageStore.load`, `start`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from commitlog.plain.accepted_damage import load_accepted, merge, save_accepted
from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from commitlog.plain.units_past_end import StoredQueues
from store.access.message_store import MessageStore
from store.fs.retention_rules import ClockReading, read_clocks
from store.maintenance.directory import StoreRoot
from store.maintenance.lifecycle import StoreLifecycle
from store.model.config import MessageStoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.dispatch.catch_up import Progress
    from store.dispatch.checkpoint import StoreCheckpoint
    from store.fs.ports import Files

LOG_DIRECTORY = "commitlog"
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class PlainStoreConfig:
    """Settings of a plain store.

    Attributes:
        log: of its log.
        store: of all other parts.
        is_corruption_skipped: open the store although durable records are invalid, skip them, and accept this damage:
            later starts skip the same bytes (`commitlog.plain.accepted_damage`).
    """

    log: CommitLogConfig = field(default_factory=CommitLogConfig)
    store: MessageStoreConfig = field(default_factory=MessageStoreConfig)
    is_corruption_skipped: bool = False


@dataclass(frozen=True, slots=True)
class PlainStore:
    """An open store.

    Attributes:
        messages: puts, reads and queries.
        log: its log.
        lifecycle: flush, retention and close.
        root: its directory.
        notes: one sentence for each repair or finding at the opening.
    """

    messages: MessageStore
    log: PlainCommitLog
    lifecycle: StoreLifecycle
    root: StoreRoot
    notes: tuple[str, ...]

    def dispatch(self) -> None:
        """Dispatch up to the end of the log."""
        self.messages.dispatch()

    def flush(self) -> None:
        """Make log, queues and index durable."""
        self.lifecycle.flush()

    def close(self) -> None:
        """Flush and close the store cleanly, and release its lock."""
        self.lifecycle.close()


def _check_nothing(_: Files) -> None:
    """Do nothing: the directory contains only the store."""


def open_plain_store(
    files: Files,
    path: str,
    config: PlainStoreConfig,
    *,
    process_id: int = 0,
    clocks: Callable[[], ClockReading] = read_clocks,
    on_progress: Progress | None = None,
    check: Callable[[Files], None] = _check_nothing,
) -> PlainStore:
    """Open and recover the store in `path`, which is created if it is missing.

    Args:
        files: the file system.
        path: the store's directory.
        config: settings of the log and of the message store.
        process_id: for `abort`; 0: that of this process.
        clocks: of the machine; tests may pass others; the wall clock stamps records.
        on_progress: called with the progress of dispatch.
        check: checks the caller's other files in the directory and raises if one is invalid; called under the lock,
            before any change.

    Raises:
        store.errors.DirectoryLocked: another process has it open.
        store.errors.ForeignFile, WrongFileSize, MissingFile, CorruptData: see their messages; nothing was lost.
        commitlog.plain.accepted_damage.TooMuchDamage: more damage than may be accepted; no record was lost.
        store.errors.DiskFull: no space for the recovery; no record was lost.
        store.errors.StorageFailed: a file cannot be opened, written or synced.
    """

    def now_ms() -> int:
        return int(clocks().wall_s * _MS_PER_S)

    with ExitStack() as on_failure:
        root = StoreRoot.open(files, path, process_id or os.getpid())
        on_failure.callback(root.close, is_clean=False)
        files = root.files
        check(files)
        last_exit = last_exit_of(files, root)
        log = PlainCommitLog.open(
            files,
            f"{path}/{LOG_DIRECTORY}",
            config.log,
            last_exit,
            now_ms,
            is_corruption_skipped=config.is_corruption_skipped,
        )
        on_failure.callback(log.abandon, "the store was not opened")
        if log.skipped_places:
            accepted = merge(path, last_exit.accepted, log.skipped_places, log.begin_offset, now_ms())
            save_accepted(files, path, accepted)
        messages = MessageStore.open(files, path, log, config.store, root.last, on_progress)
        on_failure.callback(messages.close)
        lifecycle = StoreLifecycle(messages, log, root, files, config.store, f"{path}/{LOG_DIRECTORY}", clocks)
        lifecycle.save_checkpoint()
        root.note_opened()
        on_failure.pop_all()
    notes = (*log.recovery_notes, *messages.derived.notes)
    return PlainStore(messages, log, lifecycle, root, notes)


def last_exit_of(files: Files, root: StoreRoot) -> LastExit:
    """Return the state left by the last process, from the directory of an open store."""
    return exit_with(files, root.path, root.found, is_clean=root.last.is_clean)


def exit_with(files: Files, path: str, checkpoint: StoreCheckpoint, *, is_clean: bool) -> LastExit:
    """Return the state left by the last process: clean exit or not, durable part, accepted damage.

    Args:
        files: the file system.
        path: of the directory.
        checkpoint: the one in the directory.
        is_clean: the store was closed cleanly.
    """
    synced_timestamp = max(checkpoint.physic_msg_timestamp, 0)
    return LastExit(
        is_clean,
        synced_timestamp,
        checkpoint.log_end,
        load_accepted(files, path),
        checkpoint.java_derived_timestamp,
        StoredQueues(files, path).newest_units,
        is_checkpoint_lost=not (is_clean or checkpoint.is_sealed or synced_timestamp),
    )

"""A store's directory as a whole: the process that has it open, the kind of its last exit, and its durable part.

The files `lock`, `abort` and `checkpoint` have the same meaning for RocketMQ. The checkpoint never covers data that was
not synced before.

`abort` is written just before the first change: a crash after that must not look like a clean exit. But a start that
refuses the store, without changes, must not leave `abort`, because the next start would apply the weaker rules for
missing files after a crash. Therefore all code that opens a store uses `StoreRoot.files`.

Not here: the content of the parts.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from store.dispatch.checkpoint import NO_DIGEST, StoreCheckpoint, StoreCheckpointFile
from store.dispatch.recovery import DerivedDigests, LastState
from store.fs.watched_files import FirstChange, WatchedFiles
from store.maintenance.lock import lock_store, mark_closed, mark_open, note_in

if TYPE_CHECKING:
    from store.fs.ports import DirectoryLock, Files


class StoreRoot:
    """An open directory of a store. Construct it by `open`.

    Attributes:
        path: of the directory.
        files: the file system, for all code that opens the store: before the first change through it, the store is
            marked as open.
        last: the state of queues and index left by the last process.
        found: the checkpoint of the last process.
    """

    def __init__(self, files: Files, path: str, lock: DirectoryLock, process_id: int) -> None:
        self._raw_files = files
        self._lock = lock
        self._own_note = str(process_id).encode()
        # The content of `abort` from the last process; None: it closed the store cleanly.
        self._found_note = note_in(files, path)
        self._first_change = FirstChange(self._before_first_change)
        self.files = WatchedFiles(files, self._first_change)
        self._is_opened = False
        self._is_derived_invalid = False
        self.path = path
        self._checkpoint = StoreCheckpointFile.open(files, path)
        self.found = found = self._checkpoint.checkpoint
        self.last = LastState(
            self._found_note is None,
            # Without a seal the times may cover unsynced units, so they are ignored.
            max(found.logics_msg_timestamp, 0) if found.is_sealed else 0,
            max(found.index_msg_timestamp, 0) if found.is_sealed else 0,
            DerivedDigests(found.queues_digest, found.index_digest),
            self.invalidate_derived,
        )

    @classmethod
    def open(cls, files: Files, path: str, process_id: int) -> StoreRoot:
        """Lock a store's directory, which is created if it is missing; call `note_opened` when the store is open.

        Raises:
            store.errors.DirectoryLocked: another process has it open.
            store.errors.WrongFileSize: the file `checkpoint` is not a checkpoint.
            store.errors.StorageFailed: a file cannot be opened or read.
        """
        files.make_directory(path)
        with ExitStack() as on_failure:
            lock = lock_store(files, path)
            on_failure.callback(lock.release)
            root = cls(files, path, lock, process_id)
            on_failure.pop_all()
        return root

    def note_opened(self) -> None:
        """Mark the store as open, durably, unless a change during its opening has done so.

        Raises:
            store.errors.DiskFull: there is no space for the file.
        """
        self._first_change.announce()
        self._is_opened = True

    def _before_first_change(self) -> None:
        mark_open(self._raw_files, self.path, self._own_note)
        if self._is_derived_invalid:
            self._checkpoint.write(self._withdrawn())
            self.sync_checkpoint()
            self._first_change.is_made = True
        elif self._found_note is not None:
            # A killed process may have withdrawn the times without syncing that. They were read from the page cache;
            # after a power cut the older, durable ones would cover what is removed now.
            self.sync_checkpoint()

    def write_checkpoint(
        self,
        log_timestamp: int,
        queues_timestamp: int,
        index_timestamp: int,
        *,
        index_digest: int = NO_DIGEST,
        log_end: int = 0,
    ) -> bool:
        """Write the checkpoint of log, queues and index into the page cache; return whether it has changed.

        Args:
            log_timestamp: store timestamp of the last synced record; negative: there is none.
            queues_timestamp: of the last message with a synced unit.
            index_timestamp: of the last message with synced items.
            index_digest: of an index without files; otherwise unknown while the store is open.
            log_end: every record of the log below this offset is synced; 0: unknown, or the log may be truncated.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        before = self._checkpoint.checkpoint
        checkpoint = StoreCheckpoint(
            max(log_timestamp, 0),
            max(queues_timestamp, 0),
            max(index_timestamp, 0),
            before.master_flushed_offset,
            before.confirm_physical_offset,
            log_end,
            index_digest=index_digest,
            is_sealed=True,
        )
        return self._write(checkpoint)

    def write_digests(self, digests: DerivedDigests) -> bool:
        """Add the digests of closed queues and index to the last checkpoint; return whether it has changed.

        Other fields are kept, because the files of a replicated log are closed before queues and index.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        before = self._checkpoint.checkpoint
        return self._write(before._replace(queues_digest=digests.queues, index_digest=digests.index, is_sealed=True))

    def invalidate_derived(self) -> None:
        """Request a rebuild of queues and index, durably, in case this process ends before it is done.

        Before the first change the request is only recorded, and written together with `abort`.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self.last = LastState()
        self._is_derived_invalid = True
        if self._first_change.is_announced and self._write(self._withdrawn()):
            self.sync_checkpoint()

    def _withdrawn(self) -> StoreCheckpoint:
        """Return a checkpoint with the found time of the log, without times of queues and index."""
        before = self._checkpoint.checkpoint
        kept = before.master_flushed_offset, before.confirm_physical_offset
        return StoreCheckpoint(max(self.found.physic_msg_timestamp, 0), 0, 0, *kept, self.found.log_end, is_sealed=True)

    def _write(self, checkpoint: StoreCheckpoint) -> bool:
        """Write a checkpoint if it differs from the last one; return whether it was written."""
        if checkpoint == self._checkpoint.checkpoint:
            return False
        with self._first_change.change():
            self._checkpoint.write(checkpoint)
        return True

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable; any thread may call it.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self._checkpoint.sync()

    def close(self, *, is_clean: bool) -> None:
        """Unlock the directory.

        Args:
            is_clean: everything is dispatched and synced, including the checkpoint.

        Raises:
            store.errors.StorageFailed: the directory is unlocked in any case.
        """
        is_untouched = not self._is_opened and self._first_change.is_announced and not self._first_change.is_made
        try:
            if is_clean or (is_untouched and self._found_note is None):
                mark_closed(self._raw_files, self.path)
            elif is_untouched and self._found_note is not None:
                mark_open(self._raw_files, self.path, self._found_note)
        finally:
            self._checkpoint.close()
            self._lock.release()

"""A store's directory as a whole: which process has it open, how it was closed, up to where its parts are durable.

What is written here holds for RocketMQ, too: the files `lock`, `abort` and `checkpoint` keep their meaning. The
checkpoint never promises more than what was synced before it was written.

Not here: what the parts hold.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from store.dispatch.checkpoint import StoreCheckpoint, StoreCheckpointFile
from store.dispatch.recovery import DerivedDigests, LastState
from store.maintenance.lock import lock_store, mark_closed, mark_open, was_closed_in_order

if TYPE_CHECKING:
    from store.fs.ports import DirectoryLock, Files


class StoreRoot:
    """An open directory of a store. Construct it by `open`.

    Attributes:
        path: of the directory.
        last: how the last process left queues and index.
        found: the checkpoint that the last process left.
    """

    def __init__(
        self, files: Files, path: str, lock: DirectoryLock, checkpoint: StoreCheckpointFile, *, is_clean: bool
    ) -> None:
        self._files = files
        self._lock = lock
        self._checkpoint = checkpoint
        self.found = found = checkpoint.checkpoint
        self.path = path
        self.last = LastState(
            is_clean,
            # Without a seal the times may promise units that were never synced: then they count for nothing.
            max(found.logics_msg_timestamp, 0) if found.is_sealed else 0,
            max(found.index_msg_timestamp, 0) if found.is_sealed else 0,
            DerivedDigests(found.queues_digest, found.index_digest),
            self.invalidate_derived,
        )

    @classmethod
    def open(cls, files: Files, path: str, process_id: int) -> StoreRoot:
        """Take a store's directory, which is created if need be, and note durably that it is open.

        Raises:
            store.errors.DirectoryLocked: another process has it open.
            store.errors.WrongFileSize: the checkpoint is none.
            store.errors.DiskFull: no room for a few small files.
            store.errors.StorageFailed: a file cannot be opened, written or synced.
        """
        files.make_directory(path)
        with ExitStack() as on_failure:
            lock = lock_store(files, path)
            on_failure.callback(lock.release)
            is_clean = was_closed_in_order(files, path)
            checkpoint = StoreCheckpointFile.open(files, path)
            on_failure.callback(checkpoint.close)
            # Before anything is changed: a crash within the recovery must not look like an end in order.
            mark_open(files, path, process_id)
            on_failure.pop_all()
        return cls(files, path, lock, checkpoint, is_clean=is_clean)

    def write_checkpoint(
        self,
        log_timestamp: int,
        queues_timestamp: int,
        index_timestamp: int,
        *,
        log_end: int = 0,
    ) -> bool:
        """Write up to where log, queues and index are durable, into the page cache; return whether that changed.

        Args:
            log_timestamp: store timestamp of the last record that is synced; below 0: there is none.
            queues_timestamp: the same of the last message whose unit is synced.
            index_timestamp: the same of the last message whose items are synced.
            log_end: every record of the log below this offset is synced; 0: not known, or the log may lose its end.

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
            is_sealed=True,
        )
        if checkpoint == before:
            return False
        self._checkpoint.write(checkpoint)
        return True

    def write_digests(self, digests: DerivedDigests) -> bool:
        """Add the digests of closed queues and index to the last checkpoint; return whether that is news.

        Nothing else is asked for again: the files of a replicated log are closed before queues and index are.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        before = self._checkpoint.checkpoint
        checkpoint = before._replace(queues_digest=digests.queues, index_digest=digests.index, is_sealed=True)
        if checkpoint == before:
            return False
        self._checkpoint.write(checkpoint)
        return True

    def invalidate_derived(self) -> None:
        """Request a rebuild of queues and index, durably: the next process does it if this one ends before it could.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self.last = LastState()
        if self.write_checkpoint(self.found.physic_msg_timestamp, 0, 0, log_end=self.found.log_end):
            self.sync_checkpoint()

    def restore_exit(self) -> None:
        """Note durably again how the store was left, if nothing of it was changed since.

        Raises:
            store.errors.StorageFailed: the store counts as one that was killed.
        """
        if self.last.is_clean:
            mark_closed(self._files, self.path)

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable; any thread may call it.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        self._checkpoint.sync()

    def close(self, *, is_in_order: bool) -> None:
        """Give the directory back.

        Args:
            is_in_order: everything is dispatched and synced, the checkpoint, too.

        Raises:
            store.errors.StorageFailed: the directory is given back all the same.
        """
        try:
            if is_in_order:
                mark_closed(self._files, self.path)
        finally:
            self._checkpoint.close()
            self._lock.release()

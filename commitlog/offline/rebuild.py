"""Rebuilds consume queues and index of a store from its log, next to the old ones, and then replaces these.

Not here: the replacement, which survives a crash (`commitlog.offline.swap`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from commitlog.offline.directory import INDEX_NAME, QUEUES_NAME, StoreMode, refuse_too_long
from commitlog.offline.swap import COMPLETE_NAME, NEW_NAME, OLD_NAME, remove_tree, swap
from commitlog.offline.verify import StoreParts, corrupt_place, tail_finding
from commitlog.plain.accepted_damage import (
    PLACES_MAX,
    AcceptedDamage,
    AcceptedPlace,
    TooMuchDamage,
    accept,
    merge,
    save_accepted,
)
from store.dispatch.checkpoint import FILE_SIZE_BYTES as CHECKPOINT_SIZE
from store.dispatch.checkpoint import StoreCheckpoint, StoreCheckpointFile, read_checkpoint
from store.dispatch.recovery import DerivedDigests
from store.errors import StorageFailed, StoreError
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from store.queues.consume_queues import FILE_SIZE_BYTES, ConsumeQueues
from store.queues.unit import UNIT_SIZE

if TYPE_CHECKING:
    from commitlog.offline.log_walk import LogWalk
    from store.check.queue_view import QueueView
    from store.fs.ports import Files
    from store.model.dispatch_batch import DispatchBatch, Skipped
    from store.model.finding import Finding
    from store.model.message import QueueKey

# RocketMQ's light queues, whose units refer to messages of other topics; they are not rebuilt.
_LIGHT_QUEUE_PREFIX = "%LMQ%"
# The suffix for a `checkpoint` that cannot be overwritten: a directory, a FIFO, a broken link.
_DAMAGED_SUFFIX = ".damaged"
_FLUSH_EVERY_BYTES = 256 << 20
_NS_PER_MS = 1_000_000


class LogDamaged(StoreError):
    """A part of the log cannot be read; nothing was changed.

    Attributes:
        finding: the first unreadable range.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(
            f"{finding}. Nothing was rebuilt. Restore the log first, or skip the unreadable part: --skip-damaged"
        )
        self.finding = finding


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild.

    Attributes:
        messages: records of the log.
        queues: consume queues, including kept ones.
        kept: queues without a message in the log that were kept, so that their offsets continue.
        notes: one sentence for each omission.
    """

    messages: int = 0
    queues: int = 0
    kept: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of the new files; None: as the old files, else RocketMQ's defaults.

    Attributes:
        queue_file_size: bytes of a file of a queue.
        index: slots and items of an index file.
    """

    queue_file_size: int | None = None
    index: IndexLayout | None = None


@dataclass(frozen=True, slots=True)
class BuiltParts:
    """The result of another builder of queues and index.

    Attributes:
        messages: records of the log.
        queues: the new ones.
        last_timestamp: the latest store timestamp of all records; 0: there are none.
        log_end: the end of the log.
        notes: one sentence for each omission.
    """

    messages: int
    queues: frozenset[QueueKey]
    last_timestamp: int
    log_end: int
    notes: tuple[str, ...] = ()


# Builds queues and index in a folder: its path, bytes of a queue's file, layout of an index file.
Builder = Callable[[str, int, IndexLayout], BuiltParts]


class Rebuild:
    """One rebuild. The caller must have the store's lock.

    Args:
        files: the file system.
        parts: the store, opened for reading.
        layout: of the new files.
        is_skipping: skip unreadable bytes and accept the damage (`commitlog.plain.accepted_damage`).
        is_old_kept: keep the old queues and index in `rebuild.old`.
        on_progress: called with the number of bytes of the log read since the last call.
        builder: builds queues and index instead, without skipping; None: they are built here, in one pass.
    """

    def __init__(
        self,
        files: Files,
        parts: StoreParts,
        layout: Layout,
        *,
        is_skipping: bool = False,
        is_old_kept: bool = False,
        on_progress: Callable[[int], None] | None = None,
        builder: Builder | None = None,
    ) -> None:
        self._files = files
        self._builder = builder
        self._parts = parts
        self._root = parts.directory.root
        self._new = f"{self._root}/{NEW_NAME}"
        self._old = f"{self._root}/{OLD_NAME}"
        self._is_skipping = is_skipping
        self._is_old_kept = is_old_kept
        self._on_progress = on_progress
        self._queue_file_size = layout.queue_file_size or _queue_file_size(parts)
        self._index_layout = layout.index or _index_layout(parts)
        self._last_timestamp = 0
        self._log_end = 0
        self._rebuilt = Rebuilt()
        self._newly_accepted: list[AcceptedPlace] = []

    def run(self) -> Rebuilt:
        """Rebuild queues and index, and replace the old ones.

        Raises:
            LogDamaged, commitlog.plain.accepted_damage.TooMuchDamage: nothing was changed.
            store.errors.WrongFileSize: nothing was changed.
            store.errors.DiskFull: nothing was changed, or only the list of accepted damage is missing.
        """
        refuse_too_long(self._parts.directory.log_files)
        remove_tree(self._new)
        self._files.make_directory(self._new)
        try:
            self._build()
            accepted = self._accepted_with_new_ones()
        except BaseException:
            remove_tree(self._new)
            raise
        swap(self._files, self._root, is_old_kept=self._is_old_kept)
        if self._newly_accepted:
            save_accepted(self._files, self._root, accepted)
        self._write_checkpoint()
        return self._rebuilt

    # ---------------------------------------------------------------------------------------------------- building

    def _build(self) -> None:
        for name in (QUEUES_NAME, INDEX_NAME):
            self._files.make_directory(f"{self._new}/{name}")
        if self._builder is None:
            self._build_here()
        else:
            self._build_by(self._builder)
        for directory in _directories(self._new):
            self._files.sync_directory(directory)
        self._files.create_from(f"{self._new}/{COMPLETE_NAME}", [b"whole and durable\n"])
        self._files.sync_directory(self._new)
        self._files.sync_directory(self._root)

    def _build_by(self, builder: Builder) -> None:
        built = builder(self._new, self._queue_file_size, self._index_layout)
        self._rebuilt.messages, self._last_timestamp = built.messages, built.last_timestamp
        self._check_end(built.log_end)
        self._rebuilt.notes += built.notes
        self._keep_queues(set(built.queues))
        self._rebuilt.queues = len(built.queues) + self._rebuilt.kept
        for path in sorted(Path(self._new).rglob("*")):
            if path.is_file():
                file = self._files.open(str(path))
                file.sync()
                file.close()

    def _build_here(self) -> None:
        queues = ConsumeQueues(self._files, self._new, self._queue_file_size)
        index = KeyIndex(self._files, self._new, self._index_layout)
        try:
            unflushed = 0
            for batch in self._batches():
                for unit in queues.append(batch):
                    self._rebuilt.notes.append(str(unit))
                index.append(batch)
                self._rebuilt.messages += len(batch)
                unflushed += batch.next_offset - batch.begin_offset
                if unflushed >= _FLUSH_EVERY_BYTES:
                    queues.flush()
                    unflushed = 0
            self._keep_queues(set(queues))
            self._rebuilt.queues = len(queues) + self._rebuilt.kept
            queues.flush()
            index.flush()
        finally:
            queues.close()
            index.close()

    def _batches(self) -> Iterator[DispatchBatch]:
        walk: LogWalk = self._parts.walk()
        for walked in walk.batches():
            batch = walked.batch
            for skipped in batch.skipped:
                self._pass_over(skipped, self._parts.accepted_place(skipped))
            if len(batch):
                self._last_timestamp = max(self._last_timestamp, int(batch.store_timestamps.max()))
            yield batch
            if self._on_progress is not None:
                self._on_progress(batch.next_offset - batch.begin_offset)
        if walk.tail is not None:
            finding = tail_finding(walk, walk.tail, is_unfinished=self._parts.is_unfinished)
            if finding.is_unfinished:
                self._rebuilt.notes.append(str(finding))
            else:
                self._leave_out(walk.tail, finding)
        self._check_end(walk.end_offset)

    def _check_end(self, log_end: int) -> None:
        """Refuse a log that lost its end: a rebuild would hide the missing messages."""
        self._log_end = log_end
        durable_part, last_timestamp = self._parts.durable_part, self._last_timestamp
        for finding in durable_part.lost_end(log_end, last_timestamp, self._parts.queues.values()):
            if not self._is_skipping:
                raise LogDamaged(finding)
            self._rebuilt.notes.append(f"{finding.meaning}; it is discarded")
        if not durable_part.is_clean and durable_part.is_missing(last_timestamp):
            # Only a note, as at a start: RocketMQ records the time first, and a crash may then lose the record.
            expected = f"a record stored at {durable_part.timestamp}"
            found = f"the log's end after one stored at {last_timestamp}"
            self._rebuilt.notes.append(f"{durable_part.path}: expected {expected}, found {found}")

    def _pass_over(self, skipped: Skipped, accepted: AcceptedPlace | None) -> None:
        """Skip bytes before valid records and accept the damage, unless it was accepted before."""
        if accepted is not None:
            self._rebuilt.notes.append(
                f"{skipped.path}: at byte {skipped.position}: accepted damage: {skipped.size} bytes were skipped"
            )
            return
        self._leave_out(skipped, corrupt_place(skipped, None))
        content = self._parts.open_files.get(skipped.path).view()[skipped.position :][: skipped.size]
        # A missing file has no bytes to compare later.
        if len(content) == skipped.size:
            self._newly_accepted.append(accept(skipped.offset, content, skipped.expected, skipped.found, now_ms=0))
            if len(self._newly_accepted) > PLACES_MAX:
                raise TooMuchDamage(self._root, len(self._newly_accepted))

    def _accepted_with_new_ones(self) -> AcceptedDamage:
        begin, now_ms = self._parts.directory.begin_offset, time.time_ns() // _NS_PER_MS
        return merge(self._root, self._parts.accepted, self._newly_accepted, begin, now_ms)

    def _leave_out(self, skipped: Skipped, finding: Finding) -> None:
        if not self._is_skipping:
            raise LogDamaged(finding)
        self._rebuilt.notes.append(f"{skipped.path}: at byte {skipped.position}: {skipped.size} bytes were skipped")

    def _keep_queues(self, made: set[QueueKey]) -> None:
        """Keep queues without messages in the log, so that their offsets do not restart at 0."""
        for key, queue in sorted(self._parts.queues.items()):
            if key in made or queue.end == queue.begin:
                continue
            if not key.topic.startswith(_LIGHT_QUEUE_PREFIX) and not self._is_expired(queue):
                self._rebuilt.notes.append(
                    f"{queue.directory}: dropped: the log has no message of it; its maximum offset was {queue.end}"
                )
                continue
            directory = f"{self._new}/{QUEUES_NAME}/{key.topic}/{key.queue_id}"
            self._files.make_directory(directory)
            for file in queue.queue_files:
                content = self._parts.open_files.get(file.path).view()[: file.count * UNIT_SIZE]
                name = Path(file.path).name
                self._files.create_from(f"{directory}/{name}", [content.tobytes()])
            self._rebuilt.kept += 1

    def _is_expired(self, queue: QueueView) -> bool:
        """Return whether a queue's messages were in deleted files of the log."""
        last = queue.unit(queue.end - 1)
        return last.is_blank or 0 <= last.offset < self._parts.directory.begin_offset

    # -------------------------------------------------------------------------------------------------- checkpoint

    def _checkpoint_content(self) -> tuple[bytes | None, bool]:
        """Return the content of the checkpoint, None if unreadable, and whether it is a file or absent.

        Raises:
            store.errors.StorageFailed: the permission to read it is missing.
        """
        path = self._parts.directory.checkpoint_path
        try:
            # A broken link reads like a missing file, but no file can be created there.
            return self._files.read_bytes(path), not Path(path).is_symlink() or self._files.exists(path)
        except StorageFailed as error:
            if isinstance(error.reason, PermissionError):
                raise
            return None, False

    def _digests(self) -> DerivedDigests:
        """Return the digests of the ends of the new queues and index, which the next start compares."""
        queues = ConsumeQueues(self._files, self._root, self._queue_file_size)
        index = KeyIndex(self._files, self._root, self._index_layout)
        try:
            queues.load()
            index.load()
            return DerivedDigests(queues.digest(), index.digest())
        finally:
            queues.close()
            index.close()

    def _write_checkpoint(self) -> None:
        """Save a checkpoint up to the log's end, after log, queues and index are durable.

        The next start must detect files that are lost while the store is closed, as after a clean exit. The end of
        a replicated log is not recorded, because such a log may be truncated.
        """
        directory = self._parts.directory
        for log_file in directory.log_files:
            file = self._files.open(log_file.path)
            file.sync()
            file.close()
        content, is_file = self._checkpoint_content()
        if not is_file:
            self._files.rename(directory.checkpoint_path, f"{directory.checkpoint_path}{_DAMAGED_SUFFIX}")
        elif content and len(content) != CHECKPOINT_SIZE:
            self._files.remove(directory.checkpoint_path)
        before = read_checkpoint(self._files, self._root)
        is_known = 0 <= before.confirm_physical_offset <= self._parts.directory.log_files[-1].end_offset
        digests = self._digests()
        checkpoint = StoreCheckpointFile.open(self._files, self._root)
        checkpoint.write(
            StoreCheckpoint(
                self._last_timestamp,
                self._last_timestamp,
                self._last_timestamp,
                before.master_flushed_offset,
                before.confirm_physical_offset if is_known else 0,
                self._log_end if directory.mode is StoreMode.PLAIN else 0,
                digests.queues,
                digests.index,
            )
        )
        checkpoint.sync()
        checkpoint.close()


def _directories(root: str) -> list[str]:
    """Return `root` and all directories below it, the deepest first."""
    found = [str(path) for path in Path(root).rglob("*") if path.is_dir()]
    return [*sorted(found, key=len, reverse=True), root]


def _queue_file_size(parts: StoreParts) -> int:
    sizes = [file.count * UNIT_SIZE for queue in parts.queues.values() for file in queue.queue_files]
    return max(sorted(set(sizes)), key=sizes.count, default=FILE_SIZE_BYTES)


def _index_layout(parts: StoreParts) -> IndexLayout:
    layouts = [IndexLayout(view.slot_count, view.item_count_max + 1) for view in parts.index_views]
    return max(sorted(set(layouts)), key=layouts.count, default=IndexLayout())

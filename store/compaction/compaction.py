"""The compacted queues of one store: the index of the latest messages, read from the log and written in the background.

An index has places of records, not their content, so the log must keep these: `needed_from` is the floor of its
retention. So that the log can nevertheless delete old files, the leader appends copies of records that are old. A copy
is a record of the same topic, queue *and queue offset*, marked as *prepared*: it is in no consume queue, here and in
Java, and this module takes its place for that of the original. Copies are part of the log, so every node that has the
log, also a new one, derives the same index from it.

    scan_step (owner's thread, small) -> begin_merge -> MergeJob.run (any thread) -> end_merge (owner's thread)

Memory: at most `ROWS_MAX` new rows, some 80 MiB while they are merged, and one byte for each key of the queue that is
merged; the files are mapped.

Not here: threads, times, and which topics are compacted (`cluster.delivery.compaction`).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store.compaction.index_file import NO_PLACE, QueueIndex, write_index
from store.compaction.manifest import (
    MANIFEST,
    NO_POSITION,
    IndexManifest,
    decode_manifest,
    file_name,
    file_path,
    folder_of,
)
from store.compaction.rows import ROW, TOMBSTONE, Merge, Rows, key_digest, no_rows, own_digest
from store.errors import CorruptData, DiskFull, StoreError
from store.model.message import COMPACTED_OFFSET, KEYS, QueueKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from store.fs.ports import Files
    from store.model.commit_log import CommitLog
    from store.model.dispatch_batch import DispatchBatch
    from store.model.message import StoredMessage

# New rows that are merged together.
ROWS_MAX: Final = 1 << 19
_STEP_BYTES: Final = 128 << 10
# The floor of the log when no topic is compacted.
NO_FLOOR: Final = NO_PLACE
_COPY_MARK: Final = f"{COMPACTED_OFFSET}\x01".encode()

logger = logging.getLogger(__name__)


class Compaction:
    """The state of one store. Construct it by `open`.

    Attributes:
        topics: the compacted topics.
        position: the log before this offset is in the index; NO_POSITION: nothing is.
        is_complete: whether the indexes, with what comes after `position`, have all latest messages. If not, they are
            being built from the log's start, and older messages cannot be read.
        is_compacted: returns whether a topic is compacted, by the newest state.
        pending_count: rows that were read from the log and are not merged yet.
        merges_count: since the store was opened.
    """

    def __init__(self, files: Files, root: str, manifest: IndexManifest, queues: dict[QueueKey, QueueIndex]) -> None:
        self._files = files
        self._root = root
        self._manifest = manifest
        self._queues = queues
        self._serial = manifest.serial
        self.topics = frozenset(manifest.topics)
        self.position = manifest.position
        self.is_complete = manifest.is_complete
        self.is_compacted: Callable[[str], bool] = lambda _: False
        self._next = manifest.position
        self._pending: dict[QueueKey, list[Rows]] = {}
        self.pending_count = self.merges_count = 0
        self._job: MergeJob | None = None
        # The manifest is damaged: which topics are compacted is known only after the first `follow`.
        self._is_unknown = False
        # Store timestamp of the last message that was read.
        self._scanned_ms = 0

    @classmethod
    def open(cls, files: Files, root: str) -> Compaction:
        """Open the files that the manifest names, and remove others; damaged ones are built again from the log.

        Raises:
            store.errors.StorageFailed: a file cannot be opened or removed.
        """
        raw = files.read_bytes(f"{folder_of(root)}/{MANIFEST}")
        manifest, queues, is_unknown = IndexManifest(), dict[QueueKey, QueueIndex](), False
        if raw is not None:
            try:
                manifest = decode_manifest(raw)
                queues = {
                    key: QueueIndex.open(files, file_path(root, key, name)) for key, name in manifest.files.items()
                }
            except (ValueError, KeyError, StoreError) as error:
                logger.warning("compacted_files_damaged error=%r: they are built again from the log", str(error))
                manifest, queues, is_unknown = IndexManifest(manifest.serial, NO_POSITION, manifest.topics), {}, True
        opened = cls(files, root, manifest, queues)
        opened._is_unknown = is_unknown
        opened._remove_remains()
        return opened

    def _remove_remains(self) -> None:
        known = {index.path for index in self._queues.values()}
        folder = folder_of(self._root)
        for topic, is_topic in self._files.list_entries(folder):
            for queue, is_queue in self._files.list_entries(f"{folder}/{topic}") if is_topic else ():
                for name in self._files.list_directory(f"{folder}/{topic}/{queue}") if is_queue else ():
                    path = f"{folder}/{topic}/{queue}/{name}"
                    if path not in known:
                        self._files.remove(path)

    # ---------------------------------------------------------------------------------------------------- reading

    def get(self, key: QueueKey) -> QueueIndex | None:
        """Return the index of a queue; None: it is not compacted, or has no message in the index yet."""
        return self._queues.get(key)

    def queues(self) -> Iterable[tuple[QueueKey, QueueIndex]]:
        """Return all indexes."""
        return tuple(self._queues.items())

    @property
    def min_place(self) -> int:
        """The smallest place of all rows; `NO_FLOOR` without rows."""
        return min((index.min_place for index in self._queues.values()), default=NO_FLOOR)

    @property
    def needed_from(self) -> int:
        """The offset of the log from which on it is needed; `NO_FLOOR` if no topic is compacted."""
        if not self.topics:
            return 0 if self._is_unknown else NO_FLOOR
        return min(self.min_place, max(min(self.position, self._next), 0))

    @property
    def is_changed(self) -> bool:
        """Whether topics became compacted, or are not any longer, since the last merge."""
        return self.topics != frozenset(self._manifest.topics)

    @property
    def is_full(self) -> bool:
        """Whether the rows must be merged before the log is read further."""
        return self.pending_count >= ROWS_MAX

    @property
    def rows_count(self) -> int:
        """Messages in the indexes; any thread may read it."""
        return sum(len(index.rows) for _, index in self.queues())

    def behind_bytes(self, end: int) -> int:
        """Return the bytes of the log before an offset that were not read yet; any thread may call it."""
        return max(end - max(self._next, 0), 0) if self.topics else 0

    def has_read(self, end: int) -> bool:
        """Return whether the log before an offset was read."""
        return self._next >= end

    # --------------------------------------------------------------------------------------------------- scanning

    def follow(self, topics: frozenset[str], first_place_of: Callable[[str], int | None]) -> None:
        """Set the compacted topics.

        Args:
            topics: all of them, according to a state that has every message that will be scanned next.
            first_place_of: returns the place of the first retained message of a topic; None without messages.
        """
        for topic in sorted(topics - self.topics):
            place = first_place_of(topic)
            if place is not None and self.position != NO_POSITION:
                self._next = min(self._next, place)
                self.position = min(self.position, place)
        self.topics, self._is_unknown = topics, False

    def discard(self) -> None:
        """Forget everything, because the log has lost its end: all is built again."""
        logger.warning("compacted_files_discarded position=%d: the log ends before", self.position)
        self._drop_pending()
        for index in self._queues.values():
            index.close()
        self._queues = {}
        self.position = self._next = NO_POSITION
        self.is_complete = False

    def _drop_pending(self) -> None:
        self._pending, self.pending_count = {}, 0

    def scan_step(self, log: CommitLog, end: int) -> bool:
        """Read the next part of the log; return whether to continue: more is left, and more rows may be pending.

        Args:
            log: of the store.
            end: the end of the dispatched part of the log. What of it a crash may take is found by `position`.
        """
        if NO_POSITION < self._next < log.begin_offset:
            # The log was replaced by one that begins later; the copies in it are still to be read.
            self.is_complete = False
        self._next = max(self._next, log.begin_offset)
        if self.position == NO_POSITION:
            self.position = self._next
        if self._next >= end or self.is_full:
            return False
        batch = log.scan(self._next, _STEP_BYTES)
        if batch is None:
            return False
        self._take(log, batch, end)
        self._scanned_ms = max(self._scanned_ms, batch.last_store_timestamp or 0)
        self._next = min(batch.next_offset, end)
        if not self.pending_count:
            # Nothing before it is missing in the index, so the log may delete it; the manifest need not say so.
            self.position = self._next
        return self._next < end and not self.is_full

    def _take(self, log: CommitLog, batch: DispatchBatch, end: int) -> None:
        wanted = [number for number, key in enumerate(batch.queues) if key.topic in self.topics]
        if not wanted:
            return
        numbers = np.flatnonzero(np.isin(batch.queue_numbers, wanted) & (batch.physical_offsets < end))
        found: dict[QueueKey, list[tuple[int, int, int, bytes, int, int]]] = {}
        for number in numbers.tolist():
            key = batch.queues[int(batch.queue_numbers[number])]
            place, size = int(batch.physical_offsets[number]), int(batch.sizes[number])
            offset, time_ms = int(batch.queue_offsets[number]), int(batch.store_timestamps[number])
            message, is_queued = _read(log, place, size), bool(batch.is_queued[number])
            if not is_queued and (message is None or _COPY_MARK not in message.properties_raw):
                # No copy: a prepared message of an old version of RocketMQ.
                continue
            digest, flags = own_digest(offset), 0
            if message is not None:
                keys = message.properties.get(KEYS, "")
                digest = key_digest(keys) if keys else digest
                flags = 0 if message.body else TOMBSTONE
            found.setdefault(key, []).append((offset, place, time_ms, digest, size, flags))
        for key, rows in found.items():
            self._pending.setdefault(key, []).append(np.array(rows, ROW))
            self.pending_count += len(rows)

    # ---------------------------------------------------------------------------------------------------- merging

    def begin_merge(self, log_begin: int, keep_tombstones_ms: int, complete_at: int | None = None) -> MergeJob:
        """Return the job that merges the pending rows; its `run`, in any thread, must be followed by `end_merge`.

        The age of a tombstone is measured by the time of the last message that was read, not by a clock: a copy of an
        older message of the key, which the leader may have appended shortly after the tombstone, was read by then.

        Args:
            log_begin: where the log begins.
            keep_tombstones_ms: tombstones older than this are removed, in milliseconds.
            complete_at: indexes that were built from nothing are complete when the log before this offset is in them;
                None: that is not known yet.
        """
        assert self._job is None
        self._serial += 1
        kept = {key: index for key, index in self._queues.items() if key.topic in self.topics}
        new = {key: np.concatenate(rows) for key, rows in self._pending.items() if key.topic in self.topics}
        self._drop_pending()
        self._job = MergeJob(
            self._files,
            self._root,
            IndexManifest(
                self._serial,
                self._next,
                tuple(sorted(self.topics)),
                self.is_complete or (complete_at is not None and self._next >= complete_at),
            ),
            kept,
            new,
            log_begin,
            self._scanned_ms - keep_tombstones_ms,
        )
        return self._job

    def end_merge(self, job: MergeJob) -> None:
        """Use the result of a job that has run; after one that failed, the log is read again from `position` on."""
        assert job is self._job
        self._job = None
        if not job.is_done:
            self._next = self.position
            return
        replaced = [index for key, index in self._queues.items() if job.result.get(key) is not index]
        self._queues, self._manifest = job.result, job.manifest
        # Topics that became compacted meanwhile may have moved `_next` to an older part.
        self.position = min(job.manifest.position, self._next)
        self.is_complete = job.manifest.is_complete
        self.merges_count += 1
        for index in replaced:
            index.close(is_removed=True)
            self._files.remove(index.path)

    def close(self) -> None:
        """Close all files; what is pending is read again after the next opening."""
        for index in self._queues.values():
            index.close()
        self._queues = {}


class MergeJob:
    """One merge: writes new files of the queues with new rows, then the manifest.

    Attributes:
        manifest: that it writes; after `run` with its files.
        result: the indexes after it.
        is_done: whether `run` has succeeded.
        lost_count: keys whose records the log has deleted.
    """

    def __init__(
        self,
        files: Files,
        root: str,
        manifest: IndexManifest,
        kept: Mapping[QueueKey, QueueIndex],
        new: Mapping[QueueKey, Rows],
        log_begin: int,
        tombstones_before_ms: int,
    ) -> None:
        self._files = files
        self._root = root
        self._new = new
        self._limits = log_begin, tombstones_before_ms
        self.manifest = manifest
        self.result = dict(kept)
        self.is_done = False
        self.lost_count = 0

    def run(self) -> None:
        """Write everything; on a failure the old files stay current.

        Raises:
            store.errors.DiskFull, StorageFailed: the merge is to be repeated.
        """
        opened: list[QueueIndex] = []
        try:
            for key in (*self.result, *(key for key in self._new if key not in self.result)):
                rows = self._new.get(key)
                if rows is not None or self._is_outdated(self.result[key]):
                    index = self._merged(key, no_rows() if rows is None else rows)
                    self.result[key] = index
                    opened.append(index)
            names = {key: index.path.rpartition("/")[2] for key, index in self.result.items()}
            self.manifest = replace(self.manifest, files=names)
            self._files.make_directory(folder_of(self._root))
            self._files.replace(f"{folder_of(self._root)}/{MANIFEST}", self.manifest.encode())
        except BaseException as error:
            for index in opened:
                index.close()
                # Otherwise the manifest may name it.
                if isinstance(error, DiskFull):
                    self._files.remove(index.path)
            raise
        self.is_done = True

    def _is_outdated(self, index: QueueIndex) -> bool:
        """Return whether an index without new rows has some that the log has deleted, or whose time is over."""
        log_begin, before_ms = self._limits
        return index.min_place < log_begin or index.oldest_tombstone_ms < before_ms

    def _merged(self, key: QueueKey, new: Rows) -> QueueIndex:
        log_begin, before_ms = self._limits
        old = self.result.get(key, _NO_INDEX)
        merge = Merge(old.rows, new, log_begin=log_begin, tombstones_before_ms=before_ms)
        self.lost_count += merge.lost_count
        end = max(old.end_offset, int(new["offset"].max()) + 1 if len(new) else 0)
        path = file_path(self._root, key, file_name(self.manifest.serial))
        directory = path.rpartition("/")[0]
        self._files.make_directory(directory)
        write_index(self._files, path, merge.chunks(), end)
        self._files.sync_directory(directory)
        return QueueIndex.open(self._files, path, is_cache_trusted=True)


_NO_INDEX: Final = QueueIndex()


def _read(log: CommitLog, place: int, size: int) -> StoredMessage | None:
    """Return the record at a place; None if it is damaged, or deleted meanwhile."""
    try:
        return log.read(place, size)
    except CorruptData:
        return None

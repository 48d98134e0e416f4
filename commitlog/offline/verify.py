"""Checks a whole store: every record of the log; queues, index and checkpoint against it; compacted topics. Read-only.

One pass over the log: each range of records is compared with its units and its items, so memory use does not
grow with the log.

A store in use is checked up to the end of its log at the start of the check. Differences are checked again before they
are reported, because the running program dispatches shortly after appends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from commitlog.offline.checkpoint_check import CheckpointCheck
from commitlog.offline.committed_end import committed_end
from commitlog.offline.directory import LogFileInfo, StoreDirectory, StoreMode
from commitlog.offline.durable_part import RESTORE, DurablePart
from commitlog.offline.log_walk import LogWalk, WalkedBatch
from commitlog.plain.accepted_damage import AcceptedPlace, load_accepted
from store.check.compacted_files import check_compacted
from store.check.index_against_log import IndexChecker
from store.check.index_file import check_structure
from store.check.index_view import NAME_DIGITS, IndexView, find_slot_count
from store.check.queue_view import QueueView, load_queues, unreadable_file
from store.check.queues_against_log import QueueChecker
from store.errors import StorageFailed
from store.fs.read_only_files import OpenFiles, ReadOnlyFiles
from store.index.layout import HEADER
from store.model.finding import Area, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from store.model.dispatch_batch import Skipped
    from store.model.message import QueueKey

_LOOK_PAUSE_S = 0.1
_RECHECKS_MAX = 5
_REBUILD_INDEX = "`dledger rebuild` rebuilds the index from the log"


@dataclass(slots=True)
class Counts:
    """The numbers of a check.

    Attributes:
        messages: valid records of the log.
        log_size: their bytes.
        log_end: the end of the log.
        queues, units: consume queues, and their units.
        index_files, items: of the key index.
    """

    messages: int = 0
    log_size: int = 0
    log_end: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    items: int = 0


class StoreParts:
    """The parts of a store that are compared with its log.

    Args:
        files: the file system.
        directory: the store.
        is_live: a process has it open for writing.

    Attributes:
        directory: the store; for a store in use, up to the log's end at the creation of this object.
        open_files: for readers of the log.
        queues: all consume queues.
        index_views: all files of the key index, oldest first.
        findings: faults found on opening: files that cannot be read or do not belong there.
        accepted: damage of the log that an operator has accepted.
        is_unfinished: it was not closed cleanly, or is open.
        durable_part: of the log, by the checkpoint; empty for a store in use.
        committed_end: where entries begin that a closed node did not know to be committed; None: nowhere, or unknown.
    """

    def __init__(self, files: ReadOnlyFiles, directory: StoreDirectory, *, is_live: bool = False) -> None:
        self.files = files
        self.open_files = OpenFiles(files)
        self.is_live = is_live
        self.is_unfinished = is_live or files.exists(directory.abort_path)
        self.directory = self._until_now(directory) if is_live else directory
        if is_live:
            time.sleep(_LOOK_PAUSE_S)
        self.durable_part = self._read_durable_part()
        node = None if self.is_unfinished else directory.node_directory
        self.committed_end = None if node is None else committed_end(files, node)
        self.accepted = load_accepted(files, directory.root)
        self.findings = [problem for problem in (self.accepted.problem,) if problem is not None]
        self.queues = self._load_queues()
        self.index_views = self._load_index()

    @property
    def has_derived_data(self) -> bool:
        """Whether there are queues and an index, or only a log."""
        return any(
            self.files.exists(path)
            for path in (self.directory.queues_path, self.directory.index_path, self.directory.checkpoint_path)
        )

    def walk(self) -> LogWalk:
        """Return a scan of the log."""
        return LogWalk(self.open_files, self.directory.log_files, is_checked=True, durable_part=self.durable_part)

    def accepted_place(self, skipped: Skipped) -> AcceptedPlace | None:
        """Return the accepted damage that covers unreadable bytes; None unless it covers all, unchanged."""
        view = self.open_files.get(skipped.path).view()
        return self.accepted.covering(skipped.offset, skipped.size, view, skipped.offset - skipped.position)

    def queue_checker(self) -> QueueChecker:
        """Return the checker that compares the queues with the log."""
        look_again = self._reload_queues if self.is_live else None
        return QueueChecker(
            self.queues, self.directory.queues_path, is_unfinished=self.is_unfinished, look_again=look_again
        )

    def index_checker(self) -> IndexChecker:
        """Return the checker that compares the index with the log."""
        return IndexChecker(
            self.index_views,
            self.directory.index_path,
            self.directory.begin_offset,
            is_unfinished=self.is_unfinished,
            is_live=self.is_live,
        )

    def _read_durable_part(self) -> DurablePart:
        path = self.directory.checkpoint_path
        if self.is_live:
            return DurablePart(path)
        try:
            content = self.files.read_bytes(path)
        except StorageFailed:  # `CheckpointCheck` reports it
            content = None
        is_plain = self.directory.mode is StoreMode.PLAIN
        return DurablePart.of(path, content, is_plain=is_plain, is_clean=not self.is_unfinished)

    def _load_queues(self) -> dict[QueueKey, QueueView]:
        path = self.directory.queues_path
        queues, findings = load_queues(self.files, self.open_files, path, is_live=self.is_live)
        self.findings += findings
        return queues

    def _reload_queues(self) -> Mapping[QueueKey, QueueView]:
        time.sleep(_LOOK_PAUSE_S)
        self.open_files.close_all()
        return load_queues(self.files, self.open_files, self.directory.queues_path, is_live=True)[0]

    def _load_index(self) -> list[IndexView]:
        directory = self.directory.index_path
        found: dict[str, memoryview] = {}
        if not self.files.is_directory(directory):
            if self.files.is_taken(directory):
                self._note_foreign(directory)
            return []
        for name in self.files.list_directory(directory):
            path = f"{directory}/{name}"
            if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
                try:
                    view = self.files.open(path).view()
                except StorageFailed as error:
                    if not self.is_live or not isinstance(error.reason, FileNotFoundError):
                        self.findings.append(unreadable_file(Area.FILES, path, error, _REBUILD_INDEX))
                    continue
                if len(view) >= HEADER.size:
                    found[path] = view
                elif not self.is_live:  # being created, in a store in use
                    self._note_unreadable(path, len(view))
            else:
                self._note_foreign(path)
        slot_counts = list(filter(None, map(find_slot_count, found.values())))
        sizes = [len(view) for view in found.values()]
        views: list[IndexView] = []
        for path, view in found.items():
            if not slot_counts or len(view) != max(set(sizes), key=sizes.count):
                self._note_unreadable(path, len(view))
            else:
                # The slot count of a damaged file cannot be derived from it; all files have the same.
                views.append(IndexView(view, path, max(set(slot_counts), key=slot_counts.count)))
        return views

    def _note_foreign(self, path: str) -> None:
        remedy = "Move it out of the store's directory"
        expected = f"a name of {NAME_DIGITS} digits"
        self.findings.append(
            Finding(Area.FILES, path, 0, expected, "this name", "it is not a file of the index", remedy)
        )

    def _note_unreadable(self, path: str, size: int) -> None:
        meaning = "RocketMQ does not load such a file"
        expected = "the size of an index file: header, slots and items"
        self.findings.append(Finding(Area.FILES, path, 0, expected, f"{size} bytes", meaning, _REBUILD_INDEX))

    def _until_now(self, directory: StoreDirectory) -> StoreDirectory:
        """Return the store with the log's current end; a last file without records is being created."""
        log_files = list(directory.log_files)
        while len(log_files) > 1 and not self._walk_end([log_files[-1]])[1]:
            log_files.pop()
        if log_files:
            end, _ = self._walk_end([log_files[-1]])
            log_files[-1] = replace(log_files[-1], size=end - log_files[-1].begin_offset)
        self.open_files.close_all()
        findings = [finding for finding in directory.findings if not finding.is_unfinished]
        return replace(directory, log_files=log_files, findings=findings)

    def _walk_end(self, log_files: list[LogFileInfo]) -> tuple[int, int]:
        """Return (end of the last valid record, number of valid records) of some files."""
        walk = LogWalk(self.open_files, log_files, is_checked=False)
        count = sum(len(walked.batch) for walked in walk.batches())
        return walk.end_offset, count


class Verification:
    """One check of a store.

    Args:
        parts: the opened store.
        on_progress: called with the number of bytes of the log read since the last call.

    Attributes:
        counts: the numbers of the check, complete after `findings` has ended.
    """

    def __init__(self, parts: StoreParts, on_progress: Callable[[int], None] | None = None) -> None:
        self._parts = parts
        self._on_progress = on_progress
        self.counts = Counts(queues=len(parts.queues), index_files=len(parts.index_views))

    def findings(self) -> Iterator[Finding]:
        """Yield all faults, roughly in the order of the log."""
        parts, directory = self._parts, self._parts.directory
        yield from directory.findings
        if directory.mode is StoreMode.RAW:
            return
        yield from parts.findings
        yield from self._check_structures()
        if not parts.is_live:
            yield from check_compacted(parts.files, directory.root)
        walk, queues, index = parts.walk(), parts.queue_checker(), parts.index_checker()
        checkpoint = CheckpointCheck(
            parts.files, directory.checkpoint_path, is_unfinished=parts.is_unfinished, durable_part=parts.durable_part
        )
        self.counts.items = index.item_count
        for walked in walk.batches():
            batch = walked.batch
            yield from (corrupt_place(skipped, parts.accepted_place(skipped)) for skipped in batch.skipped)
            checkpoint.add(batch)
            if parts.committed_end is not None and batch.next_offset > parts.committed_end:
                # The next start adds these messages, if they are committed.
                queues.is_unfinished = index.is_unfinished = True
            if parts.has_derived_data:
                yield from queues.add(batch)[1]
                yield from index.add(batch)[1]
            self._count(walked)
        self.counts.log_end = walk.end_offset
        yield from self._check_end(walk)
        if parts.has_derived_data:
            ignored_from = walk.end_offset if parts.is_live else None
            yield from queues.finish(directory.begin_offset, walk.end_offset, ignored_from)
            if not parts.is_live:
                yield from index.finish(walk.end_offset)
                yield from checkpoint.finish(walk.end_offset, parts.queues.values())
        self.counts.units = queues.unit_count

    def _check_structures(self) -> Iterator[Finding]:
        parts = self._parts
        for file in parts.index_views:
            found = list(check_structure(file, is_unfinished=parts.is_unfinished, is_live=parts.is_live))
            for _ in range(_RECHECKS_MAX if parts.is_live else 0):
                if not found:
                    break
                time.sleep(_LOOK_PAUSE_S)
                found = list(check_structure(file, is_unfinished=True, is_live=True))
            yield from found

    def _count(self, walked: WalkedBatch) -> None:
        batch = walked.batch
        self.counts.messages += len(batch)
        self.counts.log_size += int(batch.sizes.sum())
        if self._on_progress is not None:
            self._on_progress(batch.next_offset - batch.begin_offset)

    def _check_end(self, walk: LogWalk) -> Iterator[Finding]:
        is_unfinished = self._parts.is_unfinished
        for leftover in walk.leftovers.values():
            yield Finding(
                Area.LOG,
                leftover.path,
                leftover.position,
                leftover.expected,
                leftover.found,
                "filler was changed, or remains from a cut; no message is lost",
                "Nothing needs to be done, but a disk that changes bytes should be replaced",
            )
        if walk.tail is not None:
            yield tail_finding(walk, walk.tail, is_unfinished=is_unfinished)


def corrupt_place(skipped: Skipped, accepted: AcceptedPlace | None) -> Finding:
    """Return the finding for unreadable bytes of the log before valid records.

    Args:
        skipped: the bytes.
        accepted: their first place in the list, if all were accepted.
    """
    meaning = f"corrupt: {skipped.size} bytes cannot be read, good records follow at {skipped.offset + skipped.size}"
    remedy = RESTORE
    if accepted is not None:
        moment = datetime.fromtimestamp(accepted.accepted_at_ms / 1000, UTC)
        meaning = f"accepted on {moment:%Y-%m-%d %H:%M:%S} UTC: {skipped.size} bytes cannot be read"
        remedy = "Nothing needs to be done; starts and readers skip it"
    return Finding(
        Area.LOG,
        skipped.path,
        skipped.position,
        skipped.expected,
        skipped.found,
        meaning,
        remedy,
        is_accepted=accepted is not None,
    )


def tail_finding(walk: LogWalk, skipped: Skipped, *, is_unfinished: bool) -> Finding:
    """Return the finding for `skipped`, the tail of the log that `walk` read."""
    if walk.tail_fault:
        is_unfinished = False
        meaning, remedy = walk.tail_fault, RESTORE
    elif is_unfinished:
        meaning, remedy = "a torn tail: a crash cut the last write short", "The next start of the store cuts it off"
    else:
        meaning, remedy = "no record follows, though the store was closed cleanly: the log's end is damaged", RESTORE
    return Finding(
        Area.LOG, skipped.path, skipped.position, skipped.expected, skipped.found, meaning, remedy, is_unfinished
    )

"""A store that is open for reading: its kind, its files, and the end offset of the readable range.

Reading takes no lock and changes nothing; another process may have the store open and append to it. All bounds are
fixed when the store is opened; later messages are not returned.

*The end.* A plain log is read to its end. A replicated log that a node has open is read up to the committed index of
the node's checkpoint, or to the last message in a consume queue, because consume queues hold only committed messages. A
replicated log that no node has open is read to its end, as RocketMQ does when it starts: its commit index is not known
(`Tail`).

*Consume queues.* Up to `certain_offset` every message has a unit in its queue. Past it (in a store that is in use or
was not closed cleanly) the log is scanned. The rule is the one of recovery: `store.dispatch.recovery`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from commitlog.offline.directory import LogFileInfo, StoreDirectory, StoreMode
from commitlog.offline.log_walk import LogWalk
from dledger.entries.format.entry import HEADER_SIZE
from pipeline.log.places import NO_INDEX, LogPlaces
from pipeline.log.queue_search import first_at, first_at_time, first_where
from store.model.topics import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.common.errors import LostRange
    from pipeline.log.entry_places import EntryPlaces
    from store.check.queue_view import QueueView
    from store.fs.read_only_files import OpenFiles
    from store.model.dispatch_batch import Int64s
    from store.model.message import QueueKey

# Largest range after `certain_offset` that is searched for single messages. A running process leaves less.
_UNQUEUED_SIZE_MAX: Final = 1 << 30


class Tail(StrEnum):
    """The end of the range that is read of a replicated log.

    COMMITTED: the last entry known to be committed. ALL: the end of the log. AUTO: COMMITTED while a node has the log
    open, else ALL.
    """

    AUTO = "auto"
    COMMITTED = "committed"
    ALL = "all"


class _Columns(NamedTuple):
    """Some messages of one queue. Each column has one value per message."""

    queue_offsets: Int64s
    physical_offsets: Int64s
    store_timestamps: Int64s


class OffsetRange(NamedTuple):
    """The readable queue offsets of a queue, half open."""

    begin: int
    end: int


@dataclass
class StoreView:
    """A store, opened for reading by `open_store`. The caller closes it.

    Attributes:
        path: the path that the caller passed, absolute.
        directory: the layout found there.
        is_live: another process has the store open, or may have.
        files: of its log, in order.
        begin_offset, end_offset: the readable range of the log.
        begin_index, end_index: the same range in entry indexes; -1 in a plain store and without entries.
        committed_index: committed index of the node's checkpoint; -1: not recorded.
        certain_offset: log offset up to which consume queues are complete.
        lost: entries that are durable according to the node's checkpoint and missing at the end of its files.
        places: positions of entries; None: there are no entries.
    """

    path: str
    directory: StoreDirectory
    open_files: OpenFiles
    is_live: bool
    files: tuple[LogFileInfo, ...]
    log: LogPlaces
    queue_views: Mapping[QueueKey, QueueView]
    begin_offset: int = 0
    end_offset: int = 0
    begin_index: int = NO_INDEX
    end_index: int = NO_INDEX
    committed_index: int = NO_INDEX
    certain_offset: int = 0
    places: EntryPlaces | None = None
    lost: LostRange | None = None

    @property
    def root(self) -> str:
        """The store's root directory; `path` may name a subdirectory of it."""
        return self.directory.root

    @property
    def kind(self) -> StoreMode:
        """Plain, dledger or mixed."""
        return self.directory.mode

    @property
    def divide(self) -> int | None:
        """The offset at which the entries of a mixed store begin."""
        return self.directory.divided_offset

    @property
    def size(self) -> int:
        """Number of readable bytes of the log, including fillers."""
        return self.end_offset - self.begin_offset

    @cached_property
    def queues(self) -> dict[QueueKey, OffsetRange]:
        """All queues that hold messages: from the consume queues, and after `certain_offset` from the log.

        The log of a store without consume queues is scanned once.
        """
        found: dict[QueueKey, OffsetRange] = {}
        for key, queue in self.queue_views.items():
            if key.topic.startswith(LMQ_PREFIX):
                continue
            begin = first_at(queue, queue.begin, queue.end, self.begin_offset)
            end = self.queue_end(queue)
            found[key] = OffsetRange(min(begin, end), end)
        for key, (begin, end) in self._uncertain.items():
            known = found.get(key)
            found[key] = OffsetRange(begin, end) if known is None else OffsetRange(known.begin, max(known.end, end))
        return dict(sorted(found.items()))

    @property
    def topics(self) -> dict[str, list[int]]:
        """The queue ids of each topic."""
        found: dict[str, list[int]] = {}
        for topic, queue_id in self.queues:
            found.setdefault(topic, []).append(queue_id)
        return found

    def queue_end(self, queue: QueueView) -> int:
        """Return the queue offset after the last unit whose message is in the readable range."""
        bound = self.end_offset
        return first_where(queue, queue.begin, queue.end, lambda unit: unit.offset + unit.size > bound)

    def record_offset(self, offset: int) -> int:
        """Return the offset of the record at log offset `offset`; past the entry header, if there is one."""
        return offset + HEADER_SIZE if self._is_entry(offset) else offset

    def entry_offset(self, record_offset: int) -> int:
        """Return the offset of the entry that contains the record at an offset; in a plain log the same offset."""
        return record_offset - HEADER_SIZE if self._is_entry(record_offset) else record_offset

    def _is_entry(self, offset: int) -> bool:
        if self.divide is not None:
            return offset >= self.divide
        return self.kind is not StoreMode.PLAIN

    def offset_at_time(self, store_timestamp_ms: int, *, is_end: bool = False) -> int:
        """Return the offset of the first record (or its entry) stored at or after a time; `end_offset` if none.

        A binary search, exact unless the store's clock was set back. A wrong time of a single record does not mislead
        it; `is_end` states that the result ends a range, see `TimeSearch.offset_at`.
        """
        return self.log.offset_at_time(store_timestamp_ms, self.begin_offset, self.end_offset, is_end=is_end)

    def queue_offset_at_time(self, key: QueueKey, store_timestamp_ms: int) -> int:
        """Return the offset of a queue's first message stored at or after a time; its end if there is none.

        A wrong time of a single message makes it too low by at most two messages, and never too high.
        """
        begin, end = self.queues[key]
        queue = self.queue_views.get(key)
        queued_end = begin if queue is None else max(begin, min(end, queue.end))
        found = begin
        if queue is not None:
            found = first_at_time(queue, begin, queued_end, store_timestamp_ms, self.log.store_timestamp)
        if found < queued_end:
            return found
        # A running process writes units some time after their messages.
        late = [
            columns.queue_offsets[columns.store_timestamps >= store_timestamp_ms]
            for columns in self._unqueued.get(key, ())
        ]
        return min((int(offsets.min()) for offsets in late if len(offsets)), default=end)

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None if the index files do not hold it."""
        place = None if self.places is None else self.places.place(index)
        return None if place is None else place.term

    def end_at(self, end_index: int) -> None:
        """End the readable range before an entry of the log."""
        assert self.begin_index <= end_index <= self.end_index, (self.begin_index, end_index, self.end_index)
        place = None if self.places is None else self.places.place(end_index)
        if place is None or end_index == self.end_index:
            return
        self.end_index, self.end_offset = end_index, place.position
        if self.committed_index < end_index:
            # Missing entries after the new end are not known to be committed.
            self.lost = None
        self.certain_offset = min(self.certain_offset, self.end_offset)
        for name in ("queues", "_uncertain", "_unqueued"):
            self.__dict__.pop(name, None)

    def close(self) -> None:
        """Close all files."""
        self.open_files.close_all()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @cached_property
    def _uncertain(self) -> dict[QueueKey, OffsetRange]:
        """The queue offsets of messages after `certain_offset`."""
        found: dict[QueueKey, OffsetRange] = {}
        for key, columns in self._walk_uncertain():
            begin, end = int(columns.queue_offsets.min()), int(columns.queue_offsets.max()) + 1
            before = found.get(key, OffsetRange(begin, 0))
            found[key] = OffsetRange(min(before.begin, begin), max(before.end, end))
        return found

    @cached_property
    def _unqueued(self) -> dict[QueueKey, list[_Columns]]:
        """The messages after `certain_offset` by queue; empty if there are too many to keep in memory."""
        found: dict[QueueKey, list[_Columns]] = {}
        if self.end_offset - self.certain_offset <= _UNQUEUED_SIZE_MAX:
            for key, columns in self._walk_uncertain():
                found.setdefault(key, []).append(columns)
        return found

    def _walk_uncertain(self) -> Iterator[tuple[QueueKey, _Columns]]:
        """Yield the messages after `certain_offset` in log order, as groups of one queue each."""
        number = self.log.file_at(self.certain_offset)
        if number is None or self.certain_offset >= self.end_offset:
            return
        walk = LogWalk(self.open_files, self.files, is_checked=False)
        for walked in walk.batches(number, self.certain_offset - self.files[number].begin_offset):
            batch = walked.batch
            is_wanted = batch.is_queued & (batch.physical_offsets < self.end_offset)
            for place, key in enumerate(batch.queues):
                rows = is_wanted & (batch.queue_numbers == place)
                if rows.any():
                    yield (
                        key,
                        _Columns(batch.queue_offsets[rows], batch.physical_offsets[rows], batch.store_timestamps[rows]),
                    )
            if batch.next_offset >= self.end_offset:
                break

    def unqueued_offset(self, key: QueueKey, queue_offset: int) -> int | None:
        """Return the log offset of a message that is not in its consume queue yet; None if not known."""
        for columns in self._unqueued.get(key, ()):
            rows = np.flatnonzero(columns.queue_offsets == queue_offset)
            if len(rows):
                return int(columns.physical_offsets[rows[0]])
        return None

"""Queues and index of one store: opened, brought to what the log says, kept up to date, flushed, expired.

Not here: by what their certain part is told (`store.derived_recovery`), and how they are built (`store.dispatcher`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self

import numpy as np

from store.checkpoint import NO_DIGEST
from store.commit_log import CommitLog
from store.consume_queues import ConsumeQueues
from store.derived_loading import load_index, load_queues
from store.derived_recovery import (
    CutRule,
    DerivedDigests,
    Evidence,
    LastState,
    certain_end,
    promised_end,
    rule_for,
)
from store.dispatch_batch import DispatchBatch
from store.dispatcher import Dispatcher
from store.errors import CorruptData
from store.files import Files
from store.flush_ticket import FlushTicket
from store.key_index import KeyIndex
from store.message import QueueKey
from store.message_waiters import MessageWaiters
from store.queue_ends import QueueEnds
from store.store_config import MessageStoreConfig
from store.sync_tickets import flush_all
from store.unit_writer import UnitsTicket

logger = logging.getLogger(__name__)

# Hears (bytes of the log that are dispatched, bytes to dispatch).
Progress = Callable[[int, int], None]


class DerivedTicket:
    """What must be synced for queues and index to be durable as far as they go; see their own tickets."""

    __slots__ = ("index", "queues")

    def __init__(self, queues: UnitsTicket | None, index: FlushTicket | None) -> None:
        self.queues = queues
        self.index = index

    def sync(self) -> None:
        """Sync files and names; any thread may call it, once.

        Raises:
            store.errors.StorageFailed: the store must stop; the ticket must not be tried again.
        """
        for ticket in (self.queues, self.index):
            if ticket is not None:
                ticket.sync()


class DerivedData:
    """Queues and index. Construct it by `open`.

    Attributes:
        queues: all consume queues.
        index: None: keys are not indexed.
        dispatcher: builds both from the log.
        notes: what opening repaired or found, one sentence each.
    """

    def __init__(
        self, queues: ConsumeQueues, index: KeyIndex | None, dispatcher: Dispatcher, log: CommitLog, notes: list[str]
    ) -> None:
        self.queues = queues
        self.index = index
        self.dispatcher = dispatcher
        self.notes = notes
        self._log = log
        # Opening made everything durable up to here.
        self._opened_offset = dispatcher.offset
        self._opened_timestamp = max(log.last_store_timestamp, 0)

    @classmethod
    def open(
        cls,
        files: Files,
        root: str,
        log: CommitLog,
        config: MessageStoreConfig,
        waiters: MessageWaiters,
        last: LastState,
        on_progress: Progress | None = None,
    ) -> Self:
        """Open queues and index, cut them to what is certain, dispatch the rest of the log; see `MessageStore.open`."""
        queues, lost_queues, notes = load_queues(files, root, config, last)
        index, index_notes = load_index(files, root, config, last)
        notes += index_notes
        dispatcher = Dispatcher(log, queues, index, waiters, config.dispatch_size_bytes)
        recovery = _Recovery(log, queues, index, dispatcher, last, on_progress)
        recovery.find_headless(lost_queues)
        recovery.cut()
        recovery.catch_up(lost_queues)
        derived = cls(queues, index, dispatcher, log, [*notes, *recovery.notes])
        for _ in derived.expire_in_steps():
            continue
        derived.flush()
        for note in derived.notes:
            logger.info("opened note=%r", note)
        return derived

    # --------------------------------------------------------------------------------------------------- flushing

    @property
    def queues_timestamp(self) -> int:
        """The queues hold, durably, every message stored before this time, and so far dispatched."""
        return max(self._opened_timestamp, self.queues.flushed.store_timestamp)

    @property
    def index_timestamp(self) -> int:
        """The index holds, durably, every message stored before this time, and so far dispatched."""
        if self.index is None:
            return 0
        return max(self._opened_timestamp, self.index.flushed.store_timestamp)

    @property
    def durable_offset(self) -> int:
        """Queues and index hold, durably, everything of the log below."""
        queues_end = max(self._opened_offset, self.queues.flushed.offset)
        index_end = queues_end if self.index is None else max(self._opened_offset, self.index.flushed.offset)
        return min(queues_end, index_end)

    def begin_flush(self, pages_min: int = 0, *, is_index_due: bool = True) -> DerivedTicket | None:
        """Return a ticket for what waits to be durable; None when nothing does.

        Args:
            pages_min: leave out queues for which less than so many pages wait.
            is_index_due: the index, too.
        """
        queues = self.queues.begin_flush(pages_min)
        index = self.index.begin_flush() if self.index is not None and is_index_due else None
        return None if queues is None and index is None else DerivedTicket(queues, index)

    def begin_headers_flush(self) -> DerivedTicket | None:
        """Return a ticket for the headers of the index, which are written when what they count is durable."""
        index = None if self.index is None else self.index.begin_flush()
        return None if index is None else DerivedTicket(None, index)

    def end_flush(self, ticket: DerivedTicket) -> None:
        """Take a synced ticket back.

        Raises:
            store.errors.DiskFull: there was no room for all units of queues; nothing is lost, and a later ticket covers
                them again.
        """
        if ticket.index is not None:
            assert self.index is not None
            self.index.end_flush(ticket.index)
        if ticket.queues is not None:
            self.queues.end_flush(ticket.queues)

    def flush(self) -> None:
        """Make everything durable, here and now.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        flush_all(self)

    def expire_in_steps(self) -> Iterator[None]:
        """Let queues and index follow the log's begin as it is now, one queue a step.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        begin_offset = self._log.begin_offset
        if self.index is not None:
            self.index.expire(begin_offset)
        yield from self.queues.expire_in_steps(begin_offset)

    # ------------------------------------------------------------------------------------------- how far queues come

    def queue_ends(self) -> QueueEnds:
        """Return how far all queues have come, as of one place in the log; any thread may call it."""
        with self.dispatcher.guard:
            return QueueEnds(self.dispatcher.queues_offset, self.queues.next_offsets())

    def drop_surpassed_queues(self, ends: QueueEnds) -> None:
        """Forget the queues that are known to have come further in a stretch of the log that is gone here.

        Else they would be filled up with blanks. `restore_queue_ends` must follow, when so much is dispatched.

        Raises:
            store.errors.StorageFailed: the store must stop.
        """
        with self.dispatcher.guard:
            self.queues.drop_surpassed(ends.next_offsets, self._log.begin_offset)

    def restore_queue_ends(self, ends: QueueEnds) -> None:
        """Let no queue be shorter than it is known to have been; everything below `ends.offset` is dispatched.

        What such a queue lacks is not in the log any more.

        Raises:
            store.errors.DiskFull: some queues may be as long; give the same again.
            store.errors.StorageFailed: the store must stop.
        """
        assert self.dispatcher.offset >= ends.offset, (self.dispatcher.offset, ends.offset)
        with self.dispatcher.guard:
            self.queues.extend(ends.next_offsets, self._log.begin_offset)

    def digests(self) -> DerivedDigests:
        """Return checksums of where queues and index end, as files that are loaded again would have them."""
        return DerivedDigests(self.queues.digest(), NO_DIGEST if self.index is None else self.index.digest())

    def close(self) -> None:
        """Close all files as they are."""
        self.queues.close()
        if self.index is not None:
            self.index.close()


class _Recovery:
    """Brings loaded queues and index to what the log says."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        last: LastState,
        on_progress: Progress | None,
    ) -> None:
        self.notes: list[str] = []
        self._last = last
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._on_progress = on_progress

    def find_headless(self, lost_queues: set[QueueKey]) -> None:
        """Give up the queues whose first files are gone although nothing of the log is; add them to `lost_queues`."""
        if self._log.begin_offset == 0:
            for key in self._queues:
                queue = self._queues.get(key)
                if queue is not None and queue.begin_offset > 0:
                    self._last.withdraw()
                    queue.remove_all()
                    lost_queues.add(key)

    def cut(self) -> None:
        """Cut queues and index to their certain parts, and let dispatch begin there."""
        index = self._index
        queues_end = self._cut_queues()
        index_end = queues_end if index is None else self._cut_index(index)
        self._dispatcher.begin_at(queues_end, index_end)

    def _cut_queues(self) -> int:
        """Cut the queues to their certain part; return where that ends in the log."""
        last, log, queues = self._last, self._log, self._queues
        evidence = Evidence(len(queues) > 0, last.is_clean, last.queues_timestamp, queues.max_physical_offset)
        if last.is_clean and not self._are_queues_as_closed(evidence.own_end):
            self.notes.append("consume queues: files changed while the store was closed; built again from the log")
            evidence = replace(evidence, is_clean=False, store_timestamp=0)
        rule, end = rule_for(evidence), certain_end(evidence, log)
        if evidence.has_files and not (rule is CutRule.OWN_END and evidence.own_end <= end):
            queues.truncate(end, self._is_message)
            if rule is CutRule.TIMESTAMP:
                # Now every last unit is known to be one of the log. A promise that is too high must not skip messages.
                end = max(min(end, queues.max_physical_offset), log.begin_offset)
            self.notes.append(f"consume queues: cut to what is certain, log offset {end}")
        if last.queues_timestamp and end < promised_end(last.queues_timestamp, log):
            last.withdraw()
        return end

    def _are_queues_as_closed(self, own_end: int) -> bool:
        """Return whether the queues of a store that was closed in order are those that it was closed with."""
        queues, known = self._queues, self._last.digests.queues
        if known != NO_DIGEST:
            return known == queues.digest()
        return not self._log.begin_offset < own_end <= self._log.end_offset or queues.is_last_unit(self._is_message)

    def _cut_index(self, index: KeyIndex) -> int:
        """Cut the index to its certain part; return where that ends in the log."""
        last, log = self._last, self._log
        evidence = Evidence(bool(index.files), last.is_clean, last.index_timestamp, index.max_physical_offset)
        if last.is_clean and last.digests.index not in (NO_DIGEST, index.digest()):
            self.notes.append("index: files changed while the store was closed; built again from the log")
            evidence = replace(evidence, is_clean=False, store_timestamp=0)
        rule, end = rule_for(evidence), certain_end(evidence, log)
        if rule is CutRule.BEGIN and last.index_timestamp:
            last.withdraw()
        if evidence.has_files and not (rule is CutRule.OWN_END and evidence.own_end <= end):
            index.truncate(end, self._store_timestamp_of)
            self.notes.append(f"index: cut to what is certain, log offset {end}")
        return end

    def _is_message(self, key: QueueKey, queue_offset: int, physical_offset: int, size: int) -> bool:
        """Return whether the log holds that message there."""
        if physical_offset < self._log.begin_offset:
            return True  # expired: nobody can tell
        try:
            message = self._log.read(physical_offset, size)
        except CorruptData:
            return False
        return message is not None and (message.topic, message.queue_id, message.queue_offset) == (*key, queue_offset)

    def _store_timestamp_of(self, physical_offset: int) -> int:
        try:
            message = self._log.find(physical_offset)
        except CorruptData:
            message = None
        return 0 if message is None else message.store_timestamp

    def catch_up(self, lost_queues: set[QueueKey]) -> None:
        """Dispatch the rest of the log, and queues that lack units from the log's begin.

        Args:
            lost_queues: their files were lost.
        """
        log, dispatcher = self._log, self._dispatcher
        begin = dispatcher.offset
        are_gaps_honest = dispatcher.queues_offset <= log.begin_offset
        seen: set[QueueKey] = set()
        while (batch := dispatcher.next_batch()) is not None:
            if not are_gaps_honest:
                lost_queues |= self._gaps(batch, seen)
            dispatcher.take(batch)
            self._tell(dispatcher.offset - begin, log.end_offset - begin)
        if self.notes:
            self.notes.append(f"dispatched again: {dispatcher.offset - begin} bytes of the log, from offset {begin} on")
        if lost_queues and not are_gaps_honest:
            self._build_anew(lost_queues)

    def _gaps(self, batch: DispatchBatch, seen: set[QueueKey]) -> set[QueueKey]:
        """Return the queues whose first message since the certain part is not their next one."""
        rows = np.flatnonzero(batch.is_queued & (batch.physical_offsets >= self._dispatcher.queues_offset))
        numbers, firsts = np.unique(batch.queue_numbers[rows], return_index=True)
        found: set[QueueKey] = set()
        for number, first in zip(numbers.tolist(), firsts.tolist(), strict=True):
            key = batch.queues[number]
            if key in seen:
                continue
            seen.add(key)
            queue = self._queues.get(key)
            if int(batch.queue_offsets[rows[first]]) > (0 if queue is None else queue.max_offset):
                found.add(key)
        return found

    def _build_anew(self, keys: set[QueueKey]) -> None:
        """Dispatch all messages of some queues again."""
        log = self._log
        for key in sorted(keys):
            queue = self._queues.get(key)
            if queue is not None:
                queue.remove_all()
            self.notes.append(f"consume queue {key.topic}/{key.queue_id}: units were missing; built anew from the log")
        offset, end = log.begin_offset, self._dispatcher.queues_offset
        while offset < end and (batch := log.scan(offset, self._dispatcher.size_bytes_max)) is not None:
            is_meant = np.array([key in keys for key in batch.queues], bool)
            if is_meant.any():
                self._queues.append(replace(batch, is_queued=batch.is_queued & is_meant[batch.queue_numbers]))
            offset = batch.next_offset
            self._tell(offset - log.begin_offset, end - log.begin_offset)

    def _tell(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total)

"""Makes loaded queues and index consistent with the log at the opening: truncates them, dispatches the rest.

Not here: the rules that find their certain part (`store.dispatch.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from store.dispatch.checkpoint import NO_DIGEST
from store.dispatch.recovery import Evidence, LastState, TruncationRule, certain_end, guaranteed_end, rule_for
from store.errors import CorruptData

if TYPE_CHECKING:
    from store.dispatch.dispatcher import Dispatcher
    from store.index.key_index import KeyIndex
    from store.model.commit_log import CommitLog
    from store.model.dispatch_batch import DispatchBatch
    from store.model.message import QueueKey
    from store.queues.consume_queues import ConsumeQueues

# Called with (dispatched bytes of the log, total bytes to dispatch).
Progress = Callable[[int, int], None]


class DerivedCatchUp:
    """Makes loaded queues and index consistent with the log."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        last: LastState,
        guarantee: QueuesGuarantee,
        on_progress: Progress | None,
    ) -> None:
        self.notes: list[str] = []
        self.queues_end = 0
        self._last = last
        self._guarantee = guarantee
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._on_progress = on_progress

    def find_headless(self, lost_queues: set[QueueKey]) -> None:
        """Drop the queues whose first files are missing although the log is complete; add them to `lost_queues`."""
        if self._log.begin_offset == 0:
            for key in self._queues:
                queue = self._queues.get(key)
                if queue is not None and queue.begin_offset > 0:
                    self._guarantee.withdraw()
                    queue.remove_all()
                    lost_queues.add(key)

    def truncate(self) -> None:
        """Cut queues and index to their certain parts, from which dispatch continues."""
        index = self._index
        queues_end = self.queues_end = self._truncate_queues()
        index_end = queues_end if index is None else self._truncate_index(index)
        self._dispatcher.begin_at(queues_end, index_end)

    def _truncate_queues(self) -> int:
        """Cut the queues to their certain part; return its end in the log."""
        last, log, queues = self._last, self._log, self._queues
        evidence = Evidence(len(queues) > 0, last.is_clean, last.queues_timestamp, queues.max_physical_offset)
        if last.is_clean and not self._are_queues_as_closed(evidence.own_end):
            self.notes.append("consume queues: files changed while the store was closed; rebuilt from the log")
            evidence = replace(evidence, is_clean=False, store_timestamp=0)
        rule, end = rule_for(evidence), certain_end(evidence, log)
        certain = end
        if evidence.has_files and not (rule is TruncationRule.OWN_END and evidence.own_end <= end):
            queues.truncate(end, self._is_message)
            if rule is TruncationRule.TIMESTAMP:
                # Every last unit is now verified. A checkpoint that is too high must not skip messages.
                end = max(min(end, queues.max_physical_offset), log.begin_offset)
            self.notes.append(f"consume queues: cut to the certain part, log offset {end}")
        if last.queues_timestamp and end < log.end_offset:
            # If the checkpoint determined the cut, its log offset is already known.
            guaranteed = certain if rule is TruncationRule.TIMESTAMP else guaranteed_end(last.queues_timestamp, log)
            if end < guaranteed:
                self._guarantee.withdraw()
        return end

    def _are_queues_as_closed(self, own_end: int) -> bool:
        """Return whether the queues of a cleanly closed store are unchanged."""
        queues, known = self._queues, self._last.digests.queues
        if known != NO_DIGEST:
            return known == queues.digest()
        return not self._log.begin_offset < own_end <= self._log.end_offset or queues.is_last_unit(self._is_message)

    def _truncate_index(self, index: KeyIndex) -> int:
        """Cut the index to its certain part; return its end in the log."""
        last, log = self._last, self._log
        self.notes += index.prove_times(self._store_timestamp_of)
        evidence = self._index_evidence(index)
        rule, end = rule_for(evidence), certain_end(evidence, log)
        if rule is TruncationRule.BEGIN and last.index_timestamp:
            last.withdraw()
        is_all_kept = rule is TruncationRule.OWN_END and evidence.own_end <= end and index.has_certain_begin
        if index.files and not is_all_kept:
            kept = max(index.truncate(end, self._store_timestamp_of), log.begin_offset)
            if kept < end:
                self.notes.append("index: a file was damaged, and removed; its messages are indexed again")
                last.withdraw()
                end = kept
            self.notes.append(f"index: cut to the certain part, log offset {end}")
        return end

    def _index_evidence(self, index: KeyIndex) -> Evidence:
        last, own_end = self._last, index.max_physical_offset
        is_as_recorded = last.digests.index == index.digest()
        # No key was indexed up to the checkpoint's time, so there is no file, and none was lost before that time.
        is_empty_as_recorded = is_as_recorded and not index.files
        if last.is_clean and not is_as_recorded and last.digests.index != NO_DIGEST:
            self.notes.append("index: files changed while the store was closed; rebuilt from the log")
            return Evidence(bool(index.files), False, 0, own_end)
        if last.is_clean and is_as_recorded and index.is_end_certain:
            # At a clean exit both had every message; those after the last indexed one had no keys.
            own_end = max(own_end, self.queues_end)
        return Evidence(bool(index.files) or is_empty_as_recorded, last.is_clean, last.index_timestamp, own_end)

    def _is_message(self, key: QueueKey, queue_offset: int, physical_offset: int, size: int) -> bool:
        """Return whether the log has this message at this offset."""
        if physical_offset < self._log.begin_offset:
            return True  # the record has expired and cannot be checked
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
        """Dispatch the rest of the log; rebuild queues with missing units from the log's start.

        Args:
            lost_queues: queues whose files were lost.
        """
        log, dispatcher = self._log, self._dispatcher
        begin = dispatcher.offset
        are_gaps_legitimate = dispatcher.queues_offset <= log.begin_offset
        seen: set[QueueKey] = set()
        while (batch := dispatcher.next_batch()) is not None:
            if not are_gaps_legitimate:
                lost_queues |= self._gaps(batch, seen)
            dispatcher.take(batch)
            self._report_progress(dispatcher.offset - begin, log.end_offset - begin)
        if self.notes:
            self.notes.append(f"dispatched again: {dispatcher.offset - begin} bytes of the log, from offset {begin} on")
        if lost_queues and not are_gaps_legitimate:
            self._rebuild(lost_queues)
        self._queues.remove_unused()

    def _gaps(self, batch: DispatchBatch, seen: set[QueueKey]) -> set[QueueKey]:
        """Return the queues whose first message after the certain part does not have their next offset."""
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

    def _rebuild(self, keys: set[QueueKey]) -> None:
        """Dispatch all messages of some queues again."""
        log = self._log
        for key in sorted(keys):
            queue = self._queues.get(key)
            if queue is not None:
                queue.remove_all()
            self.notes.append(f"consume queue {key.topic}/{key.queue_id}: units were missing; rebuilt from the log")
        offset, end = log.begin_offset, self._dispatcher.queues_offset
        while offset < end and (batch := log.scan(offset, self._dispatcher.size_bytes_max)) is not None:
            is_meant = np.array([key in keys for key in batch.queues], bool)
            if is_meant.any():
                self._queues.append(replace(batch, is_queued=batch.is_queued & is_meant[batch.queue_numbers]))
            offset = batch.next_offset
            self._report_progress(offset - log.begin_offset, end - log.begin_offset)

    def _report_progress(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total)


class QueuesGuarantee:
    """The checkpoint's time of the queues at the opening of the store.

    Attributes:
        is_withdrawn: it is no longer valid.
    """

    def __init__(self, last: LastState) -> None:
        self.is_withdrawn = False
        self._last = last

    def withdraw(self) -> None:
        """Withdraw the time durably; must precede the removal or rewriting of units below its end."""
        self.is_withdrawn = True
        self._last.withdraw()

"""Compares all consume queues with the log: every message must have its unit, and every unit its message.

The log is scanned once; for each queue only the next queue offset is kept, because the log has its messages in queue
order. Messages out of order are collected (`_Gap`) and checked at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from store.model.finding import Area, Finding
from store.model.topics import TIMER_TOPIC
from store.queues.unit import BLANK_SIZE, UNIT_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from store.check.queue_view import QueueView
    from store.model.dispatch_batch import Bools, DispatchBatch, Int64s
    from store.model.message import QueueKey

REBUILD = "`dledger rebuild` rebuilds the queues from the log"
NEXT_START_ADDS = "The next start of the store adds them"
NEXT_START_REMOVES = "The next start of the store removes them"
# Out-of-order messages kept per queue; further ones are only counted.
_GAPS_MAX = 10_000
_CHECKS_MAX = 20
# The size of the shortest record, which bounds the number of messages in unreadable bytes.
_RECORD_SIZE_MIN = 91
# Hashes of tags are 32-bit numbers; times in milliseconds are far above.
_HASH_END = 1 << 31


@dataclass(slots=True)
class _Progress:
    """The position up to which one queue was compared.

    Attributes:
        next: the expected queue offset of its next message; -1: no message was read yet.
        gaps: ranges of queue offsets [begin, end) without a message in the log.
        missing_begin: first unit of a run of zero units; -1: none.
        missing_end: after the last one.
    """

    next: int = -1
    gaps: list[tuple[int, int]] = field(default_factory=list)
    missing_begin: int = -1
    missing_end: int = -1


class QueueChecker:
    """Compares the queues with the log.

    Args:
        queues: all of them.
        root: their directory, for reports.
        is_unfinished: the start value of the attribute.
        look_again: for a store in use: waits briefly, and returns the current queues; None: no process writes.

    Attributes:
        is_unfinished: the store was not closed cleanly, or the end of its log may not be committed: missing or surplus
            units at the ends are not damage.
    """

    def __init__(
        self,
        queues: Mapping[QueueKey, QueueView],
        root: str,
        *,
        is_unfinished: bool = False,
        look_again: Callable[[], Mapping[QueueKey, QueueView]] | None = None,
    ) -> None:
        self._queues = queues
        self._root = root
        self.is_unfinished = is_unfinished
        self._look_again = look_again
        self._checks_left = _CHECKS_MAX
        self._progress: dict[QueueKey, _Progress] = {}
        self._unreadable: list[tuple[int, int]] = []
        self._unreadable_size = 0

    @property
    def unit_count(self) -> int:
        """The number of units of all queues."""
        return sum(queue.end - queue.begin for queue in self._queues.values())

    def add(self, batch: DispatchBatch) -> tuple[Bools, list[Finding]]:
        """Compare the next range of the log with the queues.

        Returns:
            A mask of the messages that are in their queue, and the faults.
        """
        is_found = self.find(batch)
        for skipped in batch.skipped:
            self._unreadable.append((skipped.offset, skipped.offset + skipped.size))
            self._unreadable_size += skipped.size
        findings: list[Finding] = []
        for key, rows in _by_queue(batch):
            self._note(batch, key, rows, is_found[rows], findings)
        return is_found, findings

    def find(self, batch: DispatchBatch) -> Bools:
        """Return a mask of the messages of a batch, of any part of the log, that are in their queue."""
        is_found = self._compare(batch)
        while self._look_again is not None and self._checks_left and not (is_found | ~batch.is_queued).all():
            self._checks_left -= 1
            self._queues = self._look_again()
            is_found = self._compare(batch)
        return is_found

    def due(self, batch: DispatchBatch, is_found: Bools) -> Bools:
        """Return a mask of the messages of a batch that the next start of the store adds to their queue.

        If the store was not closed cleanly, a start adds the messages after the ends of the queues.
        """
        is_due = np.zeros(len(batch), np.bool_)
        if self.is_unfinished:
            for key, rows in _by_queue(batch):
                queue = self._queues.get(key)
                is_due[rows] = ~is_found[rows] & (batch.queue_offsets[rows] >= (0 if queue is None else queue.end))
        return is_due

    def finish(self, log_begin: int, log_end: int, ignored_from: int | None = None) -> Iterator[Finding]:
        """Yield the faults of whole queues: missing units, and units without a message.

        Args:
            log_begin: units of messages before it belong to deleted files of the log.
            log_end: the end of the log.
            ignored_from: for a store in use: units of messages from this offset on were written during the check.
        """
        for key in sorted(set(self._queues) | set(self._progress)):
            progress, queue = self._progress.get(key, _Progress()), self._queues.get(key)
            if progress.missing_begin >= 0:
                yield self._missing(key, progress.missing_begin, progress.missing_end)
            # Light queues also have units of messages of other topics.
            if queue is None or key.topic.startswith("%LMQ%"):
                continue
            first = progress.next if progress.next >= 0 else queue.begin
            ranges = [*progress.gaps, (max(first, queue.begin), queue.end)]
            for begin, end in ranges:
                yield from self._unclaimed(queue, begin, end, (log_begin, log_end), ignored_from)

    # ---------------------------------------------------------------------------------------------- message by message

    def _compare(self, batch: DispatchBatch) -> Bools:
        expected = np.empty(len(batch), UNIT_TYPE)
        expected["physical_offset"], expected["size"] = batch.physical_offsets, batch.sizes
        expected["tags_code"] = batch.tags_codes
        is_found = np.zeros(len(batch), np.bool_)
        for key, rows in _by_queue(batch):
            queue = self._queues.get(key)
            if queue is None:
                continue
            offsets = batch.queue_offsets[rows]
            begin, end = int(offsets[0]), int(offsets[-1]) + 1
            wanted = expected[rows]
            if end - begin == len(rows) and (len(rows) < 3 or bool((np.diff(offsets) == 1).all())):
                found = _comparable(key, queue.units(begin, end), wanted)
                is_found[rows] = True if found.tobytes() == wanted.tobytes() else found == wanted
            else:
                for at, (row, queue_offset) in enumerate(zip(rows.tolist(), offsets.tolist(), strict=True)):
                    if queue_offset >= 0:
                        unit = wanted[at : at + 1]
                        found = _comparable(key, queue.units(queue_offset, queue_offset + 1), unit)
                        is_found[row] = found[0] == unit[0]
        return is_found

    def _note(
        self, batch: DispatchBatch, key: QueueKey, rows: Int64s, is_found: Bools, findings: list[Finding]
    ) -> None:
        """Update a queue's progress, and report its wrong units."""
        progress = self._progress.setdefault(key, _Progress())
        offsets = batch.queue_offsets[rows]
        first = int(offsets[0])
        is_in_order = (progress.next in (-1, first)) and bool((np.diff(offsets) == 1).all())
        if progress.next < 0:
            queue = self._queues.get(key)
            first_place = _first_place(queue, int(batch.physical_offsets[rows[0]]), first)
            if queue is not None and first_place > queue.begin:
                progress.gaps.append((queue.begin, first_place))
        if is_in_order and is_found.all():
            self._close_missing(key, progress, findings)
            progress.next = int(offsets[-1]) + 1
            return
        for row, is_there in zip(rows.tolist(), is_found.tolist(), strict=True):
            self._note_one(batch, row, key, progress, findings, is_there=is_there)

    def _note_one(
        self,
        batch: DispatchBatch,
        row: int,
        key: QueueKey,
        progress: _Progress,
        findings: list[Finding],
        *,
        is_there: bool,
    ) -> None:
        queue_offset, offset = int(batch.queue_offsets[row]), int(batch.physical_offsets[row])
        queue = self._queues.get(key)
        expected = progress.next if progress.next >= 0 else _first_place(queue, offset, queue_offset)
        if queue_offset != expected:
            if not is_there and queue is not None and queue.unit(expected).offset == offset:
                meaning = "its queue's unit refers to it, so the field in the log is damaged"
                findings.append(_of_log(key, offset, expected, queue_offset, meaning))
                self._close_missing(key, progress, findings)
                progress.next = expected + 1
                return
            jump = queue_offset - expected
            if not is_there and not 0 < jump <= self._unreadable_size // _RECORD_SIZE_MIN:
                meaning = "its topic, its queue or its queue offset is damaged"
                if 0 <= queue_offset < expected:
                    meaning = (
                        "an earlier message of its queue has this queue offset, and consumers do not get this one: the "
                        "offset was assigned twice, as by RocketMQ after an unclean exit, or the field is damaged"
                    )
                findings.append(_of_log(key, offset, expected, queue_offset, meaning))
                return
            if jump > 0 and len(progress.gaps) < _GAPS_MAX:
                progress.gaps.append((expected, queue_offset))
            if jump < 0 or not self._unreadable:
                meaning = (
                    "two messages have the same queue offset"
                    if jump < 0
                    else "earlier messages were deleted from the log"
                )
                findings.append(_of_log(key, offset, expected, queue_offset, meaning))
        if is_there:
            self._close_missing(key, progress, findings)
        else:
            self._wrong_unit(batch, row, key, progress, findings)
        progress.next = max(progress.next, queue_offset + 1)

    def _wrong_unit(
        self, batch: DispatchBatch, row: int, key: QueueKey, progress: _Progress, findings: list[Finding]
    ) -> None:
        queue, queue_offset = self._queues.get(key), int(batch.queue_offsets[row])
        unit = None if queue is None or queue_offset < 0 else queue.unit(queue_offset)
        if unit is None or not (unit.offset or unit.size or unit.tags_code):
            if progress.missing_begin < 0 or progress.missing_end != queue_offset:
                self._close_missing(key, progress, findings)
                progress.missing_begin = queue_offset
            progress.missing_end = queue_offset + 1
            return
        assert queue is not None
        path, position = queue.place_of(queue_offset)
        wanted = (int(batch.physical_offsets[row]), int(batch.sizes[row]), int(batch.tags_codes[row]))
        findings.append(
            Finding(
                Area.QUEUES,
                path,
                position,
                f"unit {queue_offset} of {_text(key)}: {_unit_text(*wanted)}",
                _unit_text(unit.offset, unit.size, unit.tags_code),
                "a consumer gets another message, or none",
                REBUILD,
            )
        )

    def _close_missing(self, key: QueueKey, progress: _Progress, findings: list[Finding]) -> None:
        if progress.missing_begin >= 0:
            findings.append(self._missing(key, progress.missing_begin, progress.missing_end))
            progress.missing_begin = -1

    # ------------------------------------------------------------------------------------------------------ whole
    # queues

    def _missing(self, key: QueueKey, begin: int, end: int) -> Finding:
        queue = self._queues.get(key)
        path, position = (f"{self._root}/{key.topic}/{key.queue_id}", 0) if queue is None else queue.place_of(begin)
        is_tail = queue is None or begin >= queue.end
        is_unfinished = is_tail and self.is_unfinished
        return Finding(
            Area.QUEUES,
            path,
            position,
            (f"unit {begin}" if end == begin + 1 else f"units {begin} to {end - 1}") + f" of {_text(key)}",
            "the end of the queue" if is_tail else "zeros",
            f"consumers do not get {_counted(end - begin, 'message')} of the log",
            NEXT_START_ADDS if is_unfinished else REBUILD,
            is_unfinished,
            end - begin,
        )

    def _unclaimed(
        self, queue: QueueView, begin: int, end: int, log: tuple[int, int], ignored_from: int | None
    ) -> Iterator[Finding]:
        """Report units without a message in the log, run by run."""
        log_begin, log_end = log
        for _, first, units in queue.unit_runs(max(begin, queue.begin), min(end, queue.end)):
            offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            is_nothing = (sizes == 0) & (offsets == 0) & (units["tags_code"] == 0)
            is_blank = (sizes == BLANK_SIZE) & (offsets == 0) & (units["tags_code"] == 0)
            is_expired = (sizes > 0) & (offsets >= 0) & (offsets < log_begin)
            is_expected = is_nothing | is_blank | is_expired
            for unreadable_begin, unreadable_end in self._unreadable:
                is_expected |= (offsets >= unreadable_begin) & (offsets < unreadable_end)
            if ignored_from is not None:
                is_expected |= offsets >= ignored_from
            is_beyond = ~is_expected & (offsets >= log_end)
            for run_begin, run_end in _runs(is_beyond):
                yield self._left_over(queue, first + run_begin, run_end - run_begin, log_end)
            for at in np.flatnonzero(~is_expected & ~is_beyond).tolist():
                yield self._foreign(queue, first + at, units[at])

    def _left_over(self, queue: QueueView, queue_offset: int, count: int, log_end: int) -> Finding:
        path, position = queue.place_of(queue_offset)
        unit = queue.unit(queue_offset)
        return Finding(
            Area.QUEUES,
            path,
            position,
            f"the end of {_text(queue.key)} at unit {queue_offset}, for the log ends at {log_end}",
            f"{_counted(count, 'unit')}, the first one: {_unit_text(unit.offset, unit.size, unit.tags_code)}",
            "they point past the log's end",
            NEXT_START_REMOVES if self.is_unfinished else REBUILD,
            self.is_unfinished,
            count,
        )

    def _foreign(self, queue: QueueView, queue_offset: int, unit: np.void) -> Finding:
        path, position = queue.place_of(queue_offset)
        return Finding(
            Area.QUEUES,
            path,
            position,
            f"no unit {queue_offset} in {_text(queue.key)}, for the log has no such message",
            _unit_text(int(unit["physical_offset"]), int(unit["size"]), int(unit["tags_code"])),
            "a consumer gets a wrong message, or none",
            REBUILD,
        )


def _first_place(queue: QueueView | None, offset: int, queue_offset: int) -> int:
    """Return the queue offset of the unit for a queue's first message; without one the message's own."""
    if queue is None:
        return queue_offset
    if queue.unit(queue_offset).offset == offset:
        return queue_offset
    for _, first, units in queue.unit_runs(queue.begin, queue.end):
        found = np.flatnonzero(
            (units["physical_offset"] == offset) & (units["size"] != BLANK_SIZE) & (units["size"] != 0)
        )
        if len(found):
            return first + int(found[0])
    return queue_offset


def _of_log(key: QueueKey, offset: int, expected: int, found: int, meaning: str) -> Finding:
    return Finding(
        Area.LOG,
        _text(key),
        offset,
        f"queue offset {expected} in the message at {offset} of the log",
        f"{found}",
        meaning,
        "Restore the log from a backup or from another replica; without one, `dledger inspect messages` shows the "
        "message, so that it can be put again",
    )


def _by_queue(batch: DispatchBatch) -> Iterator[tuple[QueueKey, Int64s]]:
    """Yield (queue, rows in the order of the log) of the messages that are in queues."""
    rows = np.flatnonzero(batch.is_queued)
    numbers = batch.queue_numbers[rows]
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows[order], numbers[order]
    borders = np.flatnonzero(np.diff(numbers)) + 1
    for part in np.split(rows, borders):
        if len(part):
            yield batch.queues[int(batch.queue_numbers[part[0]])], part


def _runs(flags: Bools) -> Iterator[tuple[int, int]]:
    """Yield the ranges [begin, end) in which all flags are set."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _text(key: QueueKey) -> str:
    return f"{key.topic}/{key.queue_id}"


def _comparable(key: QueueKey, found: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.void]:
    """Return stored units as they are compared with those of the log.

    RocketMQ's units of messages for a time have the hash of the tags, which is a 32-bit number, instead of the time.
    """
    if key.topic != TIMER_TOPIC:
        return found
    is_hash = (found["tags_code"] >= -_HASH_END) & (found["tags_code"] < _HASH_END)
    changed = found.copy()
    changed["tags_code"] = np.where(is_hash, wanted["tags_code"], found["tags_code"])
    return changed


def _unit_text(offset: int, size: int, tags_code: int) -> str:
    return f"offset {offset}, size {size}, tags code {tags_code}"

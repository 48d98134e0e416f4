"""Determines the end of a plain log at its opening, and makes the files consistent.

1. Start: the file to scan from, by the table `START_CASES`. Earlier files were synced and are not checked.
2. Scan: each record from there on is checked, including its body; a blank leads to the next file.
3. Tail: at the position where the scan stops, `commitlog.plain.tail` distinguishes end, torn tail and corruption. A
   torn tail is overwritten with zeros, durably, before any other write; Java leaves it, and may read it again.
4. Sync: records that a killed process had written but not synced are made durable, so that clients may rely on them.

A blank at the very end is kept: the log continues in the next file. Preallocated files of zeros after the end (Java
preallocates up to two) are kept, too.

Source: RocketMQ `CommitLog.recoverNormally`, `recoverAbnormally`, `StoreCheckpoint.getMinTimestamp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from commitlog.plain.accepted_damage import AcceptedDamage, AcceptedPlace, accept
from commitlog.plain.tail import (
    BadRecordPlace,
    GoodRecord,
    PlaceFacts,
    TailKind,
    classify,
    describe,
    find_facts,
    find_lost_end,
)
from commitlog.plain.units_past_end import are_past_end
from commitlog.record.columns import count_good
from commitlog.record.record import BLANK_MAGIC, BLANK_SIZE_MIN, END_SIZE_MIN, HEAD, BadRecord, decode
from commitlog.record.scan import walk
from store.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store.fs.mapped.mapped_file import MappedFile
    from store.fs.mapped.mapped_file_queue import MappedFileQueue
    from store.model.dispatch_batch import Int64s
    from store.queues.unit import Units

_NOTHING: Final = AcceptedDamage()
_ADVICE: Final = (
    "; without one, `dledger rebuild DIR --skip-damaged`, or a broker started once with --skip-damaged, accepts the "
    "loss"
)
_NO_CHECKPOINT: Final = (
    " (good records follow, and the checkpoint, which shows whether they were durable, is missing or damaged)"
)
# Java's margin below the timestamps of the checkpoint.
_MARGIN_MS: Final = 3000
NO_TIMESTAMP: Final = -1


def _no_units() -> Iterable[Units]:
    """Return no units: the queues are unknown."""
    return ()


@dataclass(frozen=True, slots=True)
class LastExit:
    """How the last process ended, and the durable part of the log.

    Attributes:
        is_clean: it stopped cleanly: there is no file `abort`.
        synced_timestamp: every record with a smaller store timestamp was synced (`physicMsgTimestamp` of the
            checkpoint); 0: unknown.
        log_end: every record below this offset was synced (our checkpoint's seal); 0: unknown.
        accepted: damage that an operator has accepted; it is skipped as long as its bytes do not change.
        derived_timestamp: messages up to this time were in queues or index (a checkpoint of RocketMQ); 0: unknown.
        newest_units: returns the newest units of the queues; called only if the log ends before that time.
        is_all_checked: check the log from its first file on in any case.
        is_checkpoint_lost: there was a crash, and the checkpoint is missing; ours is written before the first record.
    """

    is_clean: bool = False
    synced_timestamp: int = 0
    log_end: int = 0
    accepted: AcceptedDamage = _NOTHING
    derived_timestamp: int = 0
    newest_units: Callable[[], Iterable[Units]] = _no_units
    is_all_checked: bool = False
    is_checkpoint_lost: bool = False

    def has_units_past(self, end_offset: int, store_timestamp: int) -> bool:
        """Return whether checkpoint and queues prove that a log lost its end after a clean exit.

        Args:
            end_offset: of the log.
            store_timestamp: of its last record; negative: there is none.
        """
        if not self.is_clean or max(store_timestamp, 0) >= self.derived_timestamp:
            return False
        return are_past_end(self.newest_units(), end_offset)


UNKNOWN_EXIT: Final = LastExit()


class StartRule(Enum):
    """The file with which the scan starts."""

    NEWEST = "the newest whose first record is good"
    SYNCED = "the newest whose first record is good and older than the synced timestamp by more than three seconds"
    FIRST = "the first"


class StartCase(NamedTuple):
    """A row of the table: the facts of the last exit (None: any), and the start."""

    is_clean: bool | None
    is_timestamp_known: bool | None
    rule: StartRule

    def fits(self, last_exit: LastExit) -> bool:
        """Return whether the row matches this exit."""
        facts = (last_exit.is_clean, last_exit.synced_timestamp > 0)
        return all(asked in (None, found) for asked, found in zip(self[:2], facts, strict=True))


# Exactly one row matches any exit. If no file satisfies the rule, the first one is used.
START_CASES: Final = (
    StartCase(True, None, StartRule.NEWEST),
    StartCase(False, True, StartRule.SYNCED),
    StartCase(False, False, StartRule.FIRST),
)


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The recovered log.

    Attributes:
        end_offset: after the last record, or after the blank that follows it; begin of an empty log.
        last_store_timestamp: of the last record; -1 when there is none.
        notes: one sentence for each cut, possible cut, or skip.
        skipped_places: skipped bytes that were not accepted before, with the time 0.
    """

    end_offset: int
    last_store_timestamp: int
    notes: tuple[str, ...] = ()
    skipped_places: tuple[AcceptedPlace, ...] = ()


def recover(
    queue: MappedFileQueue,
    last_exit: LastExit,
    *,
    is_corruption_skipped: bool = False,
    is_property_crc_checked: bool = False,
) -> RecoveredLog:
    """Recover the files of a log.

    Args:
        queue: the loaded files.
        last_exit: how the last process ended.
        is_corruption_skipped: continue after unreadable bytes, with a note; cut them only if no good record follows.
        is_property_crc_checked: the store writes the property CRC, so it is checked.

    Raises:
        store.errors.CorruptData: durable records are invalid or missing. Nothing was changed.
        store.errors.StorageFailed: a file cannot be written or synced.
    """
    files, problem = queue.mapped_files, last_exit.accepted.problem
    notes = [] if problem is None else [str(problem)]
    skipped_places: list[AcceptedPlace] = []
    if not files:
        _check_end(queue, RecoveredLog(0, NO_TIMESTAMP), last_exit, notes, is_skipped=is_corruption_skipped)
        queue.remove_cut_short()
        return RecoveredLog(0, NO_TIMESTAMP, tuple(notes))
    verdict = TailKind.END
    at = _choose_start(files, last_exit, is_property_crc_checked=is_property_crc_checked)
    while True:
        at = _scan(files, at, _Checks(last_exit.synced_timestamp, is_property_crc_checked))
        if at.number == len(files):
            break
        after = _after_accepted(files[at.number], at, last_exit.accepted, notes)
        if after is not None:
            at = after
            continue
        rest = tuple(files[at.number :])
        place = BadRecordPlace(rest, at.position, at.last_store_timestamp, is_property_crc_checked)
        facts, good = find_facts(place, last_exit.synced_timestamp)
        verdict = classify(facts := _with_guarantee(facts, place, last_exit))
        if verdict is TailKind.CORRUPTION and (facts.is_foreign or not is_corruption_skipped):
            raise _refusal(place, last_exit, good)
        # With skipping, everything readable is kept, even after a possible lost write.
        if is_corruption_skipped and good is not None:
            notes.append(_note(place, "corrupt data skipped"))
            skipped_places += _places_until(place, good)
            at = _Cursor(at.number + good.number, good.position, at.last_store_timestamp)
            continue
        if verdict is not TailKind.END:
            notes.append(_note(place, "torn tail cut"))
        break
    is_within = at.number < len(files)
    end_offset = files[at.number].begin_offset + at.position if is_within else queue.end_offset
    recovered = RecoveredLog(end_offset, at.last_store_timestamp)
    _check_end(queue, recovered, last_exit, notes, is_skipped=is_corruption_skipped)
    _truncate(queue, files[at.number] if verdict is not TailKind.END and is_within else None, end_offset)
    return replace(recovered, notes=tuple(notes), skipped_places=tuple(skipped_places))


class _Cursor(NamedTuple):
    """A position between two records: the file's number, the position in it, and the timestamp of the record before."""

    number: int
    position: int
    last_store_timestamp: int


class _Checks(NamedTuple):
    """The parameters of a scan: the time from which on records may be torn, and whether there are property CRCs."""

    synced_timestamp: int
    is_property_crc_checked: bool


def _with_guarantee(facts: PlaceFacts, place: BadRecordPlace, last_exit: LastExit) -> PlaceFacts:
    """Return the facts of a place, combined with those from the checkpoint unless it is lost.

    Without a checkpoint, zeros of a lost write and zeros of a lost or emptied file look the same: neither is cut if
    valid records follow.
    """
    was_durable = facts.holds_data and place.offset < last_exit.log_end
    return facts._replace(
        was_synced=facts.was_synced or was_durable,
        is_lost_write=facts.is_lost_write and not last_exit.is_checkpoint_lost,
    )


def _refusal(place: BadRecordPlace, last_exit: LastExit, good: GoodRecord | None) -> CorruptData:
    """Return the error for a log that must not be opened."""
    position, expected, found = describe(place)
    found += _NO_CHECKPOINT if last_exit.is_checkpoint_lost and good is not None else ""
    return CorruptData(place.file.path, position, expected, found, _ADVICE)


def _truncate(queue: MappedFileQueue, torn: MappedFile | None, end_offset: int) -> None:
    """Make the files consistent with the log's end, durably; `torn`: the file with a torn tail."""
    queue.remove_cut_short()
    if torn is not None:
        queue.truncate(end_offset, torn.find_data_end(end_offset), is_durable=True)
    queue.sync_all()


def _check_end(
    queue: MappedFileQueue, recovered: RecoveredLog, last_exit: LastExit, notes: list[str], *, is_skipped: bool
) -> None:
    """Refuse a log that lost its end, because acknowledged messages are missing, and new ones would replace them.

    The seal of our checkpoint has the offset up to which records were durable. RocketMQ's has only the time of the last
    of them, which is reliable after a clean exit; after any other exit a log that ends earlier is only reported. That
    time may be seconds too early; then queue units prove the loss (`commitlog.plain.units_past_end`).

    Raises:
        store.errors.CorruptData: durable records are missing, and `is_skipped` is False.
    """
    end_offset, timestamp = recovered.end_offset, recovered.last_store_timestamp
    if end_offset < last_exit.log_end:
        expected = f"records up to offset {last_exit.log_end}, which the checkpoint records as durable"
        found = f"the end of the log at offset {end_offset}"
    elif max(timestamp, 0) < last_exit.synced_timestamp:
        expected = f"a record of {last_exit.synced_timestamp}, which the checkpoint records as durable"
        found = f"the end of the log at offset {end_offset}, after a record of {timestamp}"
    elif last_exit.has_units_past(end_offset, timestamp):
        expected = f"records up to the time {last_exit.derived_timestamp}, which the checkpoint records as dispatched"
        found = f"the end of the log at offset {end_offset}, after a record of {timestamp}"
        found += ", and units of consume queues that point past it"
    else:
        return
    path, position = _place_of_end(queue, end_offset)
    if not is_skipped and (last_exit.is_clean or last_exit.log_end > end_offset):
        raise CorruptData(path, position, expected, found, _ADVICE)
    notes.append(f"{path}: at byte {position}: expected {expected}, found {found}")


def _place_of_end(queue: MappedFileQueue, end_offset: int) -> tuple[str, int]:
    """Return (file, position) of the log's end; the directory if the next file is missing."""
    file = queue.find(end_offset)
    return (queue.directory, end_offset) if file is None else (file.path, end_offset - file.begin_offset)


def _choose_start(files: Sequence[MappedFile], last_exit: LastExit, *, is_property_crc_checked: bool) -> _Cursor:
    """Return the start of the file to scan from."""
    rule = next(case.rule for case in START_CASES if case.fits(last_exit))
    newest = 0 if rule is StartRule.FIRST or last_exit.is_all_checked else len(files) - 1
    for number in range(newest, 0, -1):
        file = files[number]
        try:
            record = decode(file.view(), 0)
        except BadRecord:
            continue
        is_good = (
            record.check(physical_offset=file.begin_offset, is_property_crc_checked=is_property_crc_checked) is None
        )
        is_synced = record.store_timestamp < last_exit.synced_timestamp - _MARGIN_MS
        if is_good and (is_synced or rule is StartRule.NEWEST):
            return _Cursor(number, 0, NO_TIMESTAMP)
    return _Cursor(0, 0, NO_TIMESTAMP)


def _scan(files: Sequence[MappedFile], at: _Cursor, checks: _Checks) -> _Cursor:
    """Check all records from `at` on; return the cursor after the last valid one, or after the last file."""
    number, position, store_timestamp = at
    while number < len(files):
        file = files[number]
        view, file_size = file.view(), file.file.size
        has_more = True
        while has_more:
            found = walk(view, position, file_size - END_SIZE_MIN)
            good, store_timestamps = count_good(
                view,
                found.starts,
                found.sizes,
                base_offset=file.begin_offset,
                is_body_checked=True,
                is_property_crc_checked=checks.is_property_crc_checked,
            )
            good = _count_whole(view, found.starts, store_timestamps[:good], checks.synced_timestamp)
            if good:
                position = found.starts[good - 1] + found.sizes[good - 1]
                store_timestamp = int(store_timestamps[good - 1])
            has_more = 0 < good == len(found.starts)
        if position > file_size - BLANK_SIZE_MIN:
            break
        if HEAD.unpack_from(view, position) != (file_size - position, BLANK_MAGIC):
            break
        number, position = number + 1, 0
    return _Cursor(number, position, store_timestamp)


def _count_whole(view: memoryview, starts: Sequence[int], store_timestamps: Int64s, synced_timestamp: int) -> int:
    """Return the number of complete records before the first incomplete one; synced records count as complete."""
    for row in np.flatnonzero(store_timestamps >= synced_timestamp).tolist():
        if find_lost_end(decode(view, starts[row])) is not None:
            return row
    return len(store_timestamps)


def _after_accepted(file: MappedFile, at: _Cursor, accepted: AcceptedDamage, notes: list[str]) -> _Cursor | None:
    """Return the cursor after accepted damage, which may be the start of the next file; None: it is not accepted."""
    known = accepted.find(file.begin_offset + at.position, file.view()[at.position :])
    if known is None:
        return None
    notes.append(f"{file.path}: accepted damage skipped at byte {at.position}: {known.size} bytes, {known.found}")
    position = at.position + known.size
    is_last = position >= file.file.size
    return _Cursor(at.number + 1, 0, at.last_store_timestamp) if is_last else at._replace(position=position)


def _places_until(place: BadRecordPlace, good: GoodRecord) -> Iterator[AcceptedPlace]:
    """Yield the bytes from an invalid position to the next valid record, file by file."""
    fault = describe(place)
    for number, file in enumerate(place.files[: good.number + 1]):
        begin = place.position if number == 0 else 0
        end = good.position if number == good.number else file.file.size
        if begin < end:
            content = file.view()[begin:end]
            yield accept(file.begin_offset + begin, content, fault.expected, fault.found, now_ms=0)


def _note(place: BadRecordPlace, what: str) -> str:
    fault = describe(place)
    return f"{place.file.path}: {what} at byte {place.position}: expected {fault.expected}, found {fault.found}"

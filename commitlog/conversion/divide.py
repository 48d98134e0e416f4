"""Prepares a replicated log: existing entries, the continuation of a plain log, or an empty log.

The *divide* is the offset at which the base log ends and entries begin; both share one offset space.

| entries | records in the plain log | case     | action                                                      |
| ------- | ------------------------ | -------- | ----------------------------------------------------------- |
| yes     | either                   | ENTRIES  | the divide is the start of the first data file              |
| no      | yes                      | BASE_LOG | the plain log's last file is padded, entries begin there    |
| no      | no                       | NOTHING  | the log begins at 0                                         |

"Entries" means that a log of entries was begun: there is a data file, or `loghead`.

*Crash safety* of BASE_LOG. 1. The plain log is recovered, durably. 2. A blank is written after its last record and
synced: eight bytes, {bytes to the file's end, 0xCBD43194}. 3. Empty files after that one are removed. 4. `loghead` is
written: a log of entries begins at the divide; its first data file is created. After a crash before step 4 the case is
BASE_LOG again, and each step is idempotent; after `loghead` the case is ENTRIES, and opening the entry store completes
the rest. Records of the plain log are never rewritten.

Source: RocketMQ `DLedgerCommitLog.dledgerRecoverNormally`, `setRecoverPosition`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from commitlog.conversion.base_log_files import INCOMING_NAME, BaseLogIncomplete, is_fetching
from commitlog.plain.recovery import UNKNOWN_EXIT, LastExit, RecoveredLog, recover
from commitlog.record.record import BLANK_MAGIC, HEAD
from dledger.entries.log_head import FILE_NAME as LOG_HEAD_NAME
from dledger.entries.log_head import LogHeadFile
from dledger.entries.membership_file import FILE_NAME as MEMBERSHIP_NAME
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.types import NO_TERM
from store.errors import CorruptData
from store.fs.mapped.mapped_file_queue import MappedFileQueue

if TYPE_CHECKING:
    from dledger.entries.format.codec import EntryCodec
    from store.fs.ports import Files

_NO_RECORDS: Final = -1


class OpeningCase(Enum):
    """The logs that exist when a replicated log is opened."""

    ENTRIES = "a log of entries"
    BASE_LOG = "a plain log to continue from"
    NOTHING = "nothing"


class CaseRow(NamedTuple):
    """A row of the table: the existing logs (None: any), and the case."""

    has_entries: bool
    has_records: bool | None
    case: OpeningCase


# Exactly one row matches.
CASES: Final = (
    CaseRow(True, None, OpeningCase.ENTRIES),
    CaseRow(False, True, OpeningCase.BASE_LOG),
    CaseRow(False, False, OpeningCase.NOTHING),
)


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """The directories of a replicated log and of the plain log before it.

    Attributes:
        base_directory: of the plain log's files; may be missing.
        node_directory: of the node, `…/dledger-<id>`.
        sizes: of the entries' files; `data_file_size_bytes` is also that of the plain log's files.
        has_property_crc: the plain log was written with property CRCs.
    """

    base_directory: str
    node_directory: str
    sizes: EntryStoreConfig
    has_property_crc: bool = False


@dataclass(frozen=True, slots=True)
class Divided:
    """The result of opening.

    Attributes:
        case: the logs that existed.
        divide: offset of the first entry, written or not; the base log ends there or before.
        notes: repairs and actions, one sentence each.
    """

    case: OpeningCase
    divide: int
    notes: tuple[str, ...]


def case_of(*, has_entries: bool, has_records: bool) -> OpeningCase:
    """Return the case of the matching row."""
    (case,) = [row.case for row in CASES if row.has_entries == has_entries and row.has_records in (None, has_records)]
    return case


def divide_log(files: Files, places: LogDirectories, codec: EntryCodec, last_exit: LastExit = UNKNOWN_EXIT) -> Divided:
    """Find the existing logs, and continue a plain log by a log of entries; call it before the node opens its log.

    Args:
        files: the file system.
        places: of both logs.
        codec: of the entries.
        last_exit: the state of the plain log after its last process; unknown: the whole log is checked.

    Raises:
        store.errors.CorruptData: durable records of the plain log are invalid, or there is a gap between base log and
            entries. Nothing was changed.
        BaseLogIncomplete: it is being fetched (`commitlog.conversion.base_log_files`).
        store.errors.StoreError: as `EntryStore.open` and `PlainCommitLog.open`.
    """
    if is_fetching(files, places.node_directory):
        raise BaseLogIncomplete(f"{places.node_directory}/{INCOMING_NAME}")
    if has_entries(files, places.node_directory):
        divide, is_whole = begin_of_entries(files, places.node_directory)
        _check_meeting(files, places, divide, is_whole=is_whole)
        return Divided(case_of(has_entries=True, has_records=False), divide, ())
    divide, has_records, notes = pad_base_log(files, places, last_exit)
    if divide:
        begin_entries(files, places, codec, divide)
        notes.append(f"{places.base_directory}: a plain log up to {divide}; entries begin there")
    return Divided(case_of(has_entries=False, has_records=has_records), divide, tuple(notes))


def begin_entries(files: Files, places: LogDirectories, codec: EntryCodec, divide: int) -> None:
    """Create an empty log of entries at `divide`, durably.

    Raises:
        as `EntryStore.open` and `EntryStore.reset`.
    """
    store = EntryStore.open(files, places.node_directory, places.sizes, codec)
    try:
        assert store.last_index < store.begin_index, store.last_index
        store.reset(0, divide, NO_TERM)
    finally:
        store.abandon()


def was_written_by_java(files: Files, node_directory: str) -> bool:
    """Return whether there are entries that only a Java program has written.

    After an unclean exit RocketMQ can lose units of queues and assign their offsets again. So queues and index of such
    a directory must be rebuilt from the log.
    """
    is_ours = files.exists(f"{node_directory}/{MEMBERSHIP_NAME}") or files.exists(f"{node_directory}/{LOG_HEAD_NAME}")
    return not is_ours and has_entries(files, node_directory)


def has_entries(files: Files, directory: str) -> bool:
    """Return whether a node's directory contains a log of entries."""
    data = f"{directory}/data"
    return files.exists(f"{directory}/{LOG_HEAD_NAME}") or bool(files.is_directory(data) and files.list_directory(data))


def begin_of_entries(files: Files, directory: str) -> tuple[int, bool]:
    """Return the position of the first entry, and whether it is entry 0, so that its position is the divide."""
    head = LogHeadFile(files, directory).load()
    if head is not None:
        return head.begin_position, head.begin_index == 0
    return min(int(name) for name in files.list_directory(f"{directory}/data") if name.isdecimal()), True


def _check_meeting(files: Files, places: LogDirectories, divide: int, *, is_whole: bool) -> None:
    """Refuse a base log that does not end at the start of the entries; a gap is allowed if entry 0 is deleted."""
    if not files.is_directory(places.base_directory):
        return
    names = [int(name) for name in files.list_directory(places.base_directory) if name.isdecimal()]
    end = max(names, default=_NO_RECORDS) + places.sizes.data_file_size_bytes
    if names and (end > divide or (is_whole and end < divide)):
        expected = f"files up to {divide}, where the entries of {places.node_directory} begin"
        raise CorruptData(places.base_directory, 0, expected, f"files up to {end}")


def pad_base_log(files: Files, places: LogDirectories, last_exit: LastExit) -> tuple[int, bool, list[str]]:
    """Pad the plain log to the end of a file; return that offset, whether it has records, and notes."""
    if not files.is_directory(places.base_directory):
        if last_exit.log_end:
            expected = f"records up to offset {last_exit.log_end}, which the checkpoint records as durable"
            raise CorruptData(places.base_directory, 0, expected, "no such directory")
        return 0, False, []
    with ExitStack() as closing:
        # A killed process may have left names in the page cache only.
        files.sync_directory(places.base_directory)
        queue = MappedFileQueue(files, places.base_directory, places.sizes.data_file_size_bytes)
        closing.callback(queue.close)
        notes = queue.load(durable_end=last_exit.log_end)
        recovered = recover(queue, last_exit, is_property_crc_checked=places.has_property_crc)
        notes += recovered.notes
        if recovered.last_store_timestamp < 0:
            divide = queue.begin_offset
            queue.remove_all()
            return divide, False, notes
        return _fill(queue, recovered), True, notes


def _fill(queue: MappedFileQueue, recovered: RecoveredLog) -> int:
    """Write the blank after the last record, if it is missing, and remove the empty files after it; both durably."""
    end, size = recovered.end_offset, queue.file_size
    divide = end + -end % size
    if end < divide:
        queue.write(end, HEAD.pack(divide - end, BLANK_MAGIC))
        queue.sync(end, divide)
    queue.truncate(divide, divide, is_durable=True)
    return divide

"""The replicated log for the message store: a `store.model.commit_log` on a node's entries and the base log.

Each record is the body of one entry; its physical offset is the entry's position + 48. Below the divide are the files
of a plain log, if the replicated one continues it (`commitlog.conversion.divide`). Only committed entries are read or
dispatched; leaders' own entries (`commitlog.record.system_records`) are skipped.

Place on the path of a put: below `store.access.message_store`, which assigns the queue offsets; above
`dledger.node.node`, which appends. Not here: the network. Source: RocketMQ `DLedgerCommitLog`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from commitlog.plain.reader import raw_of
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import MAX_MESSAGE_SIZE, Record
from commitlog.record.system_records import STAMP_AT
from commitlog.replicated.entry_records import NO_TIMESTAMP, EntryRecords, LastTimestamp
from commitlog.replicated.put_outcomes import put_outcome
from dledger.entries.format.entry import HEADER_SIZE
from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult
from dledger.types import NO_INDEX, NO_TERM
from store.errors import Certainty, CorruptData, IllegalMessage, StoreStopped
from store.model.commit_log import PendingPut, Places, PutOutcome, RawLog
from store.model.message import LOOPBACK, Host, Message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from commitlog.conversion.base_log import BaseLog
    from dledger.entries.store import EntryStore
    from store.model.dispatch_batch import DispatchBatch, Int64s


class ReplicatedLog(Protocol):
    """The port of a running node; `dledger.node.node.Node` implements it."""

    @property
    def commit_index(self) -> int:
        """Last index known to be committed."""
        ...

    def append(self, bodies: Sequence[bytes], stamp_at: int | None = None) -> asyncio.Future[AppendResult]:
        """Append bodies as consecutive entries; see `Node.append`."""
        ...


@dataclass(frozen=True, slots=True)
class DLedgerCommitLogConfig:
    """Settings of the records.

    Attributes:
        max_message_size: largest size of a body in bytes; a record must also fit into an entry.
        store_host: this node's address in records.
    """

    max_message_size: int = MAX_MESSAGE_SIZE
    store_host: Host = LOOPBACK


class DLedgerCommitLog:
    """The replicated `store.model.commit_log.CommitLog`; for use in the node's thread only.

    Args:
        node: appends, and reports the commit index.
        entries: the node's log.
        divide: offset of the first entry, written or not.
        base: the base log, below the divide; None: there is none.
        config: settings of records.
        clock: milliseconds since 1970; stamps the records.

    Attributes:
        divided_commitlog_offset: the divide, under RocketMQ's name.
    """

    def __init__(
        self,
        node: ReplicatedLog,
        entries: EntryStore,
        divide: int,
        base: BaseLog | None,
        config: DLedgerCommitLogConfig,
        clock: Callable[[], int],
    ) -> None:
        self.divided_commitlog_offset = divide
        self._node = node
        self._entries = entries
        self._base = base
        self._clock = clock
        self._encoder = RecordEncoder(config.store_host, max_message_size=config.max_message_size)
        self._records = EntryRecords(entries)
        before = NO_TIMESTAMP if base is None else base.last_store_timestamp
        # Two cursors that only move forward: up to the committed entries, and up to those that are also durable here.
        self._committed_timestamp = LastTimestamp(self._records, entries, before)
        self._durable_timestamp = LastTimestamp(self._records, entries, before)
        # Of the last record that this node proposed: timestamps never decrease along the log.
        self._appended_timestamp = NO_TIMESTAMP
        # Entries that were committed at the last stop are committed, although the restarted node learns it only from a
        # leader.
        self._saved_commit_index = min(entries.recovered_checkpoint.committed_index, entries.last_index)
        self._saved_commit_term = self._term_at(self._saved_commit_index)
        # Cache of the last (commit index, position after it).
        self._end = (NO_INDEX, entries.begin_position)

    # ---------------------------------------------------------------------------------------------- what it holds

    @property
    def commit_index(self) -> int:
        """The last readable entry: committed, and in this node's log; less than `begin_index` if there is none.

        Raises:
            store.errors.StoreStopped: another leader truncated entries that were readable; the node must stop.
        """
        known = self._node.commit_index
        if self._saved_commit_index > known:
            self._check_saved_commit()
        return min(max(known, self._saved_commit_index), self._entries.last_index)

    def _check_saved_commit(self) -> None:
        """Check that no leader has truncated the entries that were committed at the last stop.

        The core prevents it where every acknowledged entry is durable. Otherwise a majority may have lost its newest
        entries in a power cut; queues that have units of them are cut at the next start.
        """
        index, term = self._saved_commit_index, self._saved_commit_term
        if self._entries.begin_index <= index and self._term_at(index) != term:
            raise StoreStopped(
                f"entry {index} of term {term} was committed at the last stop, and another leader does not have it: a "
                "majority of the nodes lost entries that were not synced (flush = async). The queues are repaired from "
                "the log at the next start"
            )

    def _term_at(self, index: int) -> int:
        """Return the term of an entry of this node's log; -1 if the log does not have it."""
        entries = self._entries
        return entries.term_at(index) if entries.begin_index <= index <= entries.last_index else NO_TERM

    @property
    def begin_offset(self) -> int:
        """Start of the oldest retained record: in the base log as long as there is one."""
        return self._base_log.begin_offset if self.has_base_log else self._entries.begin_position

    @property
    def end_offset(self) -> int:
        """Offset after the last committed entry. Source: RocketMQ `DLedgerCommitLog.getMaxOffset`."""
        index = self.commit_index
        if self._end[0] != index or index < self._entries.begin_index:
            self._end = (index, self.end_offset_of(index))
        return self._end[1]

    def end_offset_of(self, index: int) -> int:
        """Return the offset after a committed entry; for a deleted one, the start of the entries."""
        if index < self._entries.begin_index:
            return self._entries.begin_position
        return self._entries.end_position_of(index)

    @property
    def last_store_timestamp(self) -> int:
        """Store timestamp of the last record below `end_offset`; -1 when there is none."""
        return self._committed_timestamp.up_to(self.commit_index)

    @property
    def flushed_store_timestamp(self) -> int:
        """Store timestamp of the last committed record that is durable on this node; -1 when there is none."""
        return self._durable_timestamp.up_to(min(self.commit_index, self._entries.durable_index))

    @property
    def has_base_log(self) -> bool:
        """Whether there are files below the divide."""
        return self._base is not None and not self._base.is_gone

    @property
    def _base_log(self) -> BaseLog:
        assert self._base is not None
        return self._base

    # ------------------------------------------------------------------------------------------------- appending

    def append(
        self, messages: Sequence[Message], queue_offsets: Sequence[int], *, may_carry_effects: bool = False
    ) -> PendingPut:
        """Propose one or more messages, all or none; the returned future resolves when they are committed, or fail.

        Raises:
            store.errors.IllegalMessage: nothing was appended; the error names the message and the reason.
        """
        # Timestamps never decrease along the log, whatever the clock of an earlier leader was.
        timestamp = max(self._clock(), self._appended_timestamp, self.last_store_timestamp)
        records, sizes = self._encoder.encode_each(
            messages, queue_offsets, timestamp, may_carry_effects=may_carry_effects
        )
        largest = max(sizes)
        if largest > self._entries.max_body_bytes:
            raise IllegalMessage("record", f"at most {self._entries.max_body_bytes} bytes", f"{largest}")
        self._appended_timestamp = timestamp
        future = self._node.append(records, STAMP_AT)
        pending = PendingPut()

        def ended(done: asyncio.Future[AppendResult]) -> None:
            pending.end(_outcome(done, sizes, queue_offsets, timestamp))

        if future.done():
            ended(future)
        else:
            future.add_done_callback(ended)
        return pending

    # --------------------------------------------------------------------------------------------------- reading

    def read(self, physical_offset: int, size: int) -> Record | None:
        """Return the record of `size` bytes at `physical_offset`; None if it may not be read, or is a leader's own."""
        if self._is_in_base_log(physical_offset):
            return self._base_log.read(physical_offset, size)
        return self._records.read(physical_offset, size, self.end_offset)

    def read_many(self, places: Sequence[int], sizes: Sequence[int]) -> list[Record]:
        """Return the records at these offsets up to the first that `read` must examine: none, if it is the first."""
        if self._is_in_base_log(places[0]):
            return self._base_log.read_many(places, sizes)
        return self._records.read_many(places, sizes, self.end_offset)

    def find(self, physical_offset: int) -> Record | None:
        """Return the record at `physical_offset`, of any size; None if there is none, or it is a leader's own."""
        if self._is_in_base_log(physical_offset):
            return self._base_log.find(physical_offset)
        return self._records.find(physical_offset, self.end_offset)

    def scan(self, offset: int, size_bytes_max: int, *, is_body_checked: bool = False) -> DispatchBatch | None:
        """Return a batch of records from `offset` on, which may be empty (leaders' own entries); None at the end.

        Args:
            offset: begin of an entry, or of its record.
            size_bytes_max: bytes of entries; the first one is returned whatever its size.
            is_body_checked: compare bodies with their checksums.
        """
        if self._is_in_base_log(offset):
            batch = self._base_log.scan(offset, size_bytes_max, is_body_checked=is_body_checked)
            if batch is not None:
                return batch
            offset = self.divided_commitlog_offset
        return self._records.scan(offset, size_bytes_max, self.end_offset, is_body_checked=is_body_checked)

    def raw(self, offset: int, end: int, size_bytes_max: int) -> RawLog | None:
        """Return bytes of `[offset, end)` from one file: entries with their headers, or records of the base log."""
        if self._is_in_base_log(offset):
            return self._base_log.raw(offset, end, size_bytes_max)
        file = self._entries.data_file(offset)
        return raw_of(file, offset, min(end, self.end_offset), size_bytes_max, header_size=HEADER_SIZE)

    def begins_within(self, begin: int, end: int) -> Int64s | None:
        """Return the positions of the entries that begin in `[begin, end)`; None in the base log (no index)."""
        if self._is_in_base_log(begin):
            return None
        try:
            return self._entries.positions_within(begin, end)
        except CorruptData:
            # Reads work without the index, which is rebuilt when the node starts.
            return None

    def peek(self, physical_offset: int, size: int) -> Record | None:
        """Return a record without checking its checksums; None when none can be read there."""
        if self._is_in_base_log(physical_offset):
            return self._base_log.peek(physical_offset, size)
        return self._records.peek(physical_offset, size, self.end_offset)

    def offset_at_timestamp(self, store_timestamp: int) -> int:
        """Return the offset of the entry of the first record stored then or later; the log's end if there is none."""
        if self.has_base_log:
            offset = self._base_log.offset_at_timestamp(store_timestamp)
            if offset < self._base_log.end_offset:
                return offset
        return self._records.offset_at_timestamp(store_timestamp, self.end_offset)

    def _is_in_base_log(self, offset: int) -> bool:
        return offset < self.divided_commitlog_offset and self.has_base_log

    # --------------------------------------------------------------------------------------------------- retention

    def old_files(self, count_max: int) -> list[tuple[str, int]]:
        """Return (path, end offset) of the oldest files below the divide, which expire before any entry."""
        return self._base_log.old_files(count_max) if self.has_base_log else []

    def newest_path(self) -> str | None:
        """Return the path of the last file; None when the log is empty."""
        path = self._entries.newest_path()
        if path is not None or not self.has_base_log:
            return path
        return self._base_log.files()[-1].path

    def delete_before(self, offset: int) -> None:
        """Delete, durably, the files of the base log that end at or before `offset`; the node deletes entries.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if self.has_base_log:
            self._base_log.delete_before(offset)

    def drop_stranded_files(self) -> None:
        """Delete, durably, the base log if there is a gap after it, because a reset restarted the log of entries.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        if self.has_base_log and self._base_log.end_offset < self._entries.begin_position:
            self._base_log.delete_before(self._base_log.end_offset)

    def retention_floor(self, dispatched_offset: int) -> int:
        """Return the first entry that must be kept: entry 0 while there is a base log, else the first undispatched one.

        Args:
            dispatched_offset: queues and index are complete and durable below this offset.
        """
        if self.has_base_log:
            return self._entries.begin_index
        return self._entries.index_before(dispatched_offset) + 1

    def close(self) -> None:
        """Close the base log; the node closes the entries."""
        if self._base is not None:
            self._base.close()


def _outcome(
    done: asyncio.Future[AppendResult], sizes: Sequence[int], queue_offsets: Sequence[int], timestamp: int
) -> PutOutcome:
    """Resolve the future of an append; a cancelled future is left alone."""
    result = (
        AppendResult(ResponseCode.INTERNAL_ERROR, "the append was cancelled") if done.cancelled() else done.result()
    )
    status, certainty = put_outcome(result.code)
    if certainty is not Certainty.APPENDED:
        return PutOutcome(status, certainty, (), result.message)
    physical_offsets = [position + HEADER_SIZE for position in result.positions]
    return PutOutcome(status, certainty, Places(physical_offsets, sizes, queue_offsets, timestamp))

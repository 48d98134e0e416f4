"""The log on disk: appends, reads, truncates, deletes old files, and tracks which entries are durable.

Data files hold the entries, index files hold the position of each one; no state is kept per entry in memory. A batch is
joined and written with one call per file. Writes go to the page cache; `begin_flush` returns a ticket for the next
sync. All methods are for one thread, except `EntriesTicket.sync` and `CheckpointTicket.save`.

Invariant: after the last entry's end all bytes of the data files are zero. Truncated bytes are overwritten, durably,
before anything else may be written there, so that no reader and no recovery takes them for a part of the log.

Place on the path of an append: between the driver and the mapped files. Source: DLedger `DLedgerMmapFileStore`.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Self

from dledger.entries.aside import AsideRecord
from dledger.entries.config import EntryStoreConfig
from dledger.entries.damaged_tail import GiveUp, keep_damaged_tail
from dledger.entries.errors import CorruptPush, EntryNotFound, EntryTooLarge
from dledger.entries.flush import EntriesFlushProgress, EntriesTicket
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec, is_applied
from dledger.entries.format.entry import (
    ENTRY_NORMAL,
    INDEX_UNIT_SIZE,
    encode_batch,
    encode_blank,
)
from dledger.entries.format.walk import UNKNOWN
from dledger.entries.index import IndexUnit
from dledger.entries.log_head import LogHead, is_begin_position, replace_log
from dledger.entries.next_write import NextWrite
from dledger.entries.opening import OpenLog, open_log
from dledger.entries.push_check import Predecessor
from dledger.entries.reader import EntryReader, decode_all
from dledger.entries.space import EntrySpace
from dledger.storage.checkpoint import Checkpoint, CheckpointTicket
from dledger.types import NO_INDEX, NO_TERM, UNKNOWN_TERM, LogState, MembershipEntry, Span, TermRun
from store.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dledger.entries.format.entry import Entry
    from dledger.entries.format.placement import EntryRun
    from dledger.entries.index import Fields
    from store.fs.mapped.mapped_file import MappedFile
    from store.fs.ports import Files

__all__ = ["CheckpointTicket", "CorruptPush", "EntryNotFound", "EntryStore", "EntryStoreConfig"]
__all__ += ["EntriesTicket", "EntryTooLarge"]

_UNSYNCED_UNITS_MAX = 1 << 17  # 4 MiB of index


class EntryStore:
    """An append-only log of entries that can be truncated, and whose oldest files can be deleted.

    Construct it by `open`. A caller that requests an entry which is not in the log gets `EntryNotFound`.

    Attributes:
        begin_index: the first entry, or the one with which an empty log will begin.
        begin_position: the position of that entry, also of one not yet written.
        begin_prev_term: term of the entry before; `NO_TERM` or `UNKNOWN_TERM` without one.
        begin_chain_crc: chain checksum of the entry before; UNKNOWN (-1) if it is not known.
        last_index: the last entry; `begin_index - 1` when there is none.
        last_term: the term of the last entry; -1 when there is none.
        end_position: the position after the last entry.
        codec: distinguishes a leader's own entries from those of clients.
        data_file_size: bytes of each data file.
        max_body_bytes: the size of the largest body of an entry of this log.
        recovery_notes: one sentence for each repair or cut at the opening.
        recovered_checkpoint: the checkpoint found at the opening.
        aside: the log that a reset replaced.
    """

    def __init__(self, config: EntryStoreConfig, codec: EntryCodec, parts: OpenLog) -> None:
        log = parts.log
        self.codec = codec
        # `begin_index <= last_index + 1`, with equality in an empty log; only `delete_before` and `reset` move it.
        self.begin_index, self.begin_position = log.begin_index, log.begin_position
        self.begin_prev_term, self.begin_chain_crc = log.begin_prev_term, log.begin_chain_crc
        self.last_index = log.last_index
        self._data, self._index, self.data_file_size = parts.data, parts.index, parts.data.file_size
        self._reader = EntryReader(parts.data, parts.index, codec)
        self.max_body_bytes = config.max_body_bytes
        self.recovery_notes, self.recovered_checkpoint = parts.notes, parts.checkpoint
        self._parts = parts
        self.aside = parts.aside
        space = EntrySpace(parts.data, parts.index, parts.aside)
        # Every change of the log's end drops its results (`drop`).
        self._next = NextWrite(space, codec, parts.data.file_size, config.max_body_bytes)
        # Of the last entry, as `last_index`: the four change together (`_write`, `truncate`, `reset`). In an empty log
        # the term is `NO_TERM`, and the others are the values that the first entry will follow.
        self.last_term = log.last_term
        self.end_position = log.end_position
        self._chain_crc = log.chain_crc
        self._flush = EntriesFlushProgress(log.last_index)  # recovery synced all files
        # Index units before these were synced at the last roll, or are part of a ticket:
        # `_rolled_index <= _flushed_index <= last_index + 1`. Units after the last roll can be rebuilt by recovery.
        self._rolled_index = self._flushed_index = log.last_index + 1
        # The last argument of `begin_checkpoint`; only `close` uses it.
        self._committed_index = NO_INDEX

    # ------------------------------------------------------------------------------------------ opening and closing

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        config: EntryStoreConfig,
        codec: EntryCodec = RAW_ENTRY_CODEC,
        give_up: GiveUp = keep_damaged_tail,
    ) -> Self:
        """Lock and recover the log in `directory`, which is created if missing; finish an interrupted deletion.

        `give_up` is called before a damaged tail is cut: it raises, or returns a description of its measures
        (`damaged_tail`).

        Raises:
            store.errors.StoreError: it is open in another process, damaged, or the disk is full: see the message.
        """
        return cls(config, codec, open_log(files, directory, config, codec, give_up))

    def close(self, committed_index: int = NO_INDEX) -> None:
        """Make everything durable, save a checkpoint, and unlock the directory.

        Args:
            committed_index: all entries up to this one are committed; the last checkpoint may have a higher index.

        Raises:
            store.errors.StorageFailed: unacknowledged entries may be lost; the directory is unlocked.
        """
        try:
            self._data.sync_all()
            self._index.queue.sync_all()
            committed_index = min(max(self._committed_index, committed_index), self.last_index)
            CheckpointTicket(self._parts.checkpoint_file, Checkpoint(self.last_index, committed_index)).save()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Unlock the directory without any further write or sync, after a failure."""
        self._data.close()
        self._index.queue.close()
        self._parts.lock.release()

    # ---------------------------------------------------------------------------------------------- its content

    @property
    def durable_index(self) -> int:
        """All entries up to this one are durable."""
        return self._flush.durable_index

    @property
    def head(self) -> LogHead:
        """The start of the log."""
        return LogHead(self.begin_index, self.begin_position, self.begin_prev_term, prev_chain_crc=self.begin_chain_crc)

    def term_before(self, index: int) -> int:
        """Return the term of the entry before `index`; `UNKNOWN_TERM` unless the log has it or begins after it.

        Raises:
            store.errors.CorruptData: index and data differ; opening the store again rebuilds the index.
        """
        if index == self.begin_index:
            return self.begin_prev_term
        if index == self.last_index + 1:
            return self.last_term
        return self.term_at(index - 1) if self.begin_index < index <= self.last_index else UNKNOWN_TERM

    def unit(self, index: int) -> IndexUnit:
        """Return the index unit of an entry: its position, size, term and magic; raises as `position_of`."""
        return IndexUnit(*self._confirmed(index))

    def term_runs(self) -> tuple[TermRun, ...]:
        """Return the terms of all entries."""
        return self._index.term_runs(self.begin_index, self.last_index)

    def log_state(self) -> LogState:
        """Return the state of the log with which the consensus core starts."""
        return LogState(self.begin_index, self.begin_prev_term, self.last_index, self.term_runs())

    def fit(self, first_index: int, last_index_max: int, size_bytes_max: int) -> Span:
        """Return the longest span from `first_index` to at most `last_index_max` that can be sent in one push.

        That is: of one term, in one data file, and together at most `size_bytes_max` bytes; the first entry is always
        included.

        Raises:
            EntryNotFound: `first_index` is not in the log.
        """
        self._check_held(first_index)
        return self._index.fit(first_index, min(last_index_max, self.last_index), size_bytes_max, self.data_file_size)

    def span_of(self, first_index: int, last_index: int) -> Span:
        """Return the span of these entries, which must `fit`; raises as `fit`."""
        self._check_held(first_index, last_index)
        return self._index.span_of(first_index, last_index, self.data_file_size)

    def term_at(self, index: int) -> int:
        """Return the term of an entry according to index and header; raises as `position_of` if they differ."""
        self._check_held(index)
        return self._reader.proven(index)[4]

    def position_of(self, index: int) -> int:
        """Return the position of an entry.

        Raises:
            EntryNotFound: it is not in the log.
            store.errors.CorruptData: the index is damaged; opening the store again rebuilds it.
        """
        return self._confirmed(index)[1]

    def end_position_of(self, index: int) -> int:
        """Return the position after an entry; raises as `position_of`."""
        # Fast path at the log's end, without a read.
        if index == self.last_index >= self.begin_index:
            return self.end_position
        _, position, size, _, _ = self._confirmed(index)
        return position + size

    def index_at_position(self, position: int) -> int:
        """Return the index of the entry that begins at `position`.

        Raises:
            EntryNotFound: none begins there.
            store.errors.CorruptData: as `position_of`.
        """
        index = self.index_before(position) + 1
        if index > self.last_index or self._index.fields(index)[1] != position:
            raise EntryNotFound(f"at position {position}", self.begin_index, self.last_index)
        return index

    def index_before(self, position: int) -> int:
        """Return the last entry that begins before `position`; `begin_index - 1` when there is none.

        Raises:
            store.errors.CorruptData: as `position_of`.
        """
        index = self._index.last_where(self.begin_index, self.last_index, lambda at, _size, _term: at < position)
        # A wrong unit that misled the search is next to the result.
        for at in range(max(index, self.begin_index), min(index + 1, self.last_index) + 1):
            self._confirmed(at)
        return index

    def positions_within(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the positions in `[begin, end)` at which entries begin.

        Raises:
            store.errors.CorruptData: the index files lack them; opening the store again rebuilds them.
        """
        first_index, last_index = self.index_before(begin) + 1, self.index_before(end)
        return self._index.positions(first_index, last_index)

    def predecessor(self, index: int) -> Predecessor:
        """Return the entry before the next one after `index`, for comparison; `index` may be `begin_index - 1`."""
        if index < self.begin_index:
            return Predecessor(self.begin_position, self.begin_chain_crc)
        # Fast path at the log's end, without a read.
        if index == self.last_index:
            return Predecessor(self.end_position, self._chain_crc)
        return Predecessor(self.end_position_of(index), self.chain_crc_before(index + 1))

    def chain_crc_before(self, index: int) -> int:
        """Return the chain checksum of the entry before `index`; UNKNOWN (-1) if that was deleted."""
        return self.begin_chain_crc if index <= self.begin_index else self._reader.chain_crc_of(index - 1)

    # --------------------------------------------------------------------------------------------------- reading

    def get(self, index: int) -> Entry:
        """Return one entry, checked; raises as `read_entries`."""
        return self.read_entries(index, index)[0]

    def read_entries(self, first_index: int, last_index: int) -> list[Entry]:
        """Return these entries, which must `fit`, checked and decoded.

        Raises:
            EntryNotFound: they are not all in the log.
            store.errors.CorruptData: the file's content has changed since it was written; do not use it.
        """
        return decode_all(self.read_checked(self.span_of(first_index, last_index)))

    def read_applied(self, first_index: int, last_index: int) -> list[Entry]:
        """Return those of these entries that a state machine receives, checked and decoded; raises as `read_entries`.

        They have the codec's `applied_channel`, or the mark of an effect. Other entries are not read, which costs about
        twenty nanoseconds each. All entries must be in one file.
        """
        self._check_held(first_index, last_index)
        found = self._reader.applied_entries(first_index, last_index)
        return [entry for entry in self._read_each(found) if is_applied(self.codec, entry)]

    def _read_each(self, indexes: Sequence[int]) -> Iterator[Entry]:
        """Yield these entries, in ascending order; those that follow each other are read with one call."""
        for _, run in groupby(enumerate(indexes), key=lambda pair: pair[1] - pair[0]):
            row = [index for _, index in run]
            yield from self.read_entries(row[0], row[-1])

    def read_checked(self, span: Span) -> bytes:
        """Return the entries of a span that `fit` or `span_of` returned, as stored in the file.

        All checksums are checked, which takes about a microsecond per entry.

        Raises:
            store.errors.CorruptData: the file's content has changed since it was written; do not use it.
        """
        return self._reader.read_checked(span, self.chain_crc_before(span.first_index))

    def read_span(self, span: Span) -> bytes:
        """Return a span like `read_checked`; recent entries that are not durable yet are not checked."""
        return self._reader.read(span) if span.last_index > self._flush.durable_index else self.read_checked(span)

    def data_file(self, position: int) -> MappedFile | None:
        """Return the data file of the byte at `position`, if there is one, for reading only."""
        return self._data.find(position)

    def old_files(self, count_max: int) -> list[tuple[str, int]]:
        """Return (path, end index) of the oldest data files, at most `count_max`; the end index is exclusive.

        The file of the last entry is not among them.

        Raises:
            store.errors.CorruptData: as `position_of`.
        """
        if self.last_index < self.begin_index:
            return []
        last_begin = self.position_of(self.last_index) // self.data_file_size * self.data_file_size
        older = [file for file in self._data.mapped_files[:count_max] if file.begin_offset < last_begin]
        return [(file.path, self.index_before(file.end_offset) + 1) for file in older]

    def newest_path(self) -> str | None:
        """Return the path of the data file of the last entry; None if there is no entry."""
        file = self._data.find(self.end_position - 1) if self.last_index >= self.begin_index else None
        return None if file is None else file.path

    # ------------------------------------------------------------------------------------------------- appending

    def reserve(self, sizes_of_bodies: Sequence[int]) -> list[EntryRun]:
        """Reserve space for entries with bodies of these sizes; return the positions that they will have.

        Args:
            sizes_of_bodies: at least one; must not change afterwards, because `append` compares its bodies with them.

        Raises:
            EntryTooLarge: refuse the batch.
            store.errors.DiskFull: refuse the batch; the log is unchanged.
        """
        return self._next.reserve(sizes_of_bodies, self.end_position, self.last_index)

    def append(
        self,
        bodies: Sequence[bytes],
        first_index: int,
        term: int,
        magic: int = ENTRY_NORMAL,
        channel: int = 0,
        stamp_at: int | None = None,
    ) -> list[int]:
        """Write an entry for each body to the page cache; return their positions.

        Args:
            bodies: at least one; space is reserved here unless `reserve` was just called with their sizes.
            first_index: must be `last_index + 1`; checked as an assertion about the caller.
            term: of all of them; not below `last_term`.
            magic: of all of them.
            channel: of all of them.
            stamp_at: position in each body at which its physical offset is written; None: nowhere.

        Raises:
            EntryTooLarge, store.errors.DiskFull: nothing was appended.
            store.errors.StorageFailed: the node must stop.
        """
        assert first_index == self.last_index + 1, (first_index, self.last_index)
        assert term >= self.last_term, (term, self.last_term)
        runs = self._next.runs_of(list(map(len, bodies)), self.end_position, self.last_index)
        positions: list[int] = []
        for run in runs:
            batch = encode_batch(
                bodies if len(runs) == 1 else bodies[run.begin : run.end],
                first_index=first_index + run.begin,
                term=term,
                position=run.position,
                chain_crc=self._chain_crc,
                magic=magic,
                channel=channel,
                stamp_at=stamp_at,
            )
            self._write(run.position, batch.data, batch.units, term, batch.chain_crc)
            positions += batch.positions
        return positions

    def check_push(self, span: Span, payload: bytes, prev_term: int = UNKNOWN_TERM) -> tuple[MembershipEntry, ...]:
        """Check entries of a peer before the core decides about them; return the memberships in them.

        Args:
            span: the peer's description of them.
            payload: their bytes.
            prev_term: the peer's term of the entry before them; if the local log agrees, position and chain checksum of
                the first entry are checked against the local entry before it.

        Raises:
            CorruptPush: drop the push.
            MembershipUnreadable: the entries follow the local log, and one has a membership that this version cannot
                read; stop the node.
        """

        def before() -> Predecessor | None:
            is_agreed = prev_term != UNKNOWN_TERM and prev_term == self.term_before(span.first_index)
            return self.predecessor(span.first_index - 1) if is_agreed else None

        return self._next.check_push(span, payload, before)

    def reserve_span(self, span: Span) -> None:
        """Reserve space for entries of a peer.

        Raises:
            store.errors.DiskFull: refuse the push; the log is unchanged.
        """
        log_begin = self.begin_index, self.begin_position
        self._next.reserve_span(span, log_begin, (self.last_index + 1, self.end_position))

    def append_encoded(self, span: Span, payload: bytes, first_index: int) -> None:
        """Write the entries of a peer from `first_index` on, unchanged, to the page cache.

        Args:
            span: the peer's description of them.
            payload: their bytes; checked here unless `check_push` did, and space is reserved unless `reserve_span` did.
            first_index: must be `last_index + 1`; earlier entries of the push are already in the log.

        Raises:
            CorruptPush, store.errors.DiskFull: nothing was appended.
            store.errors.StorageFailed: the node must stop.
        """
        assert first_index == self.last_index + 1, (first_index, self.last_index)
        assert span.first_index <= first_index <= span.last_index, (span, first_index)
        assert span.term >= self.last_term, (span.term, self.last_term)
        push = self._next.pushed(span, payload, first_index, self.predecessor(self.last_index))
        if not self._next.has_space_for(span):
            self.reserve_span(span)
        position, done = push.position_of(first_index), first_index - span.first_index
        data = memoryview(payload)[position - span.position :]
        self._write(position, data, push.units[done * INDEX_UNIT_SIZE :], span.term, push.chain_crc)

    def _write(self, position: int, data: bytes | memoryview, units: bytes, term: int, chain_crc: int) -> None:
        """Write entries at `position`, which is the end of the log or the start of the next file."""
        if position != self.end_position:
            self._leave_file(position)
        self._data.write(position, data)
        self._index.write(self.last_index + 1, units)
        self.end_position = position + len(data)
        self.last_index += len(units) // INDEX_UNIT_SIZE
        self.last_term = term
        self._chain_crc = chain_crc
        self._next.drop()

    def _leave_file(self, next_position: int) -> None:
        """Fill the last data file with a blank and sync the log: recovery trusts all files before the last."""
        self._data.write(self.end_position, encode_blank(next_position - self.end_position))
        self._data.sync(self.end_position, next_position)
        end_index = self.last_index + 1
        self._index.queue.sync(self._rolled_index * INDEX_UNIT_SIZE, end_index * INDEX_UNIT_SIZE)
        self._rolled_index = self._flushed_index = end_index

    # --------------------------------------------------------------------------------------------------- cutting

    def truncate(self, first_index: int) -> None:
        """Truncate the log from `first_index` on, durably, including a blank before it.

        Raises:
            store.errors.CorruptData: nothing was changed; the index is damaged, and opening the store rebuilds it.
            store.errors.StorageFailed: the node must stop.
        """
        assert self.begin_index <= first_index <= self.last_index + 1, (first_index, self.last_index)
        if first_index > self.last_index:
            return
        # Index and header must agree before anything is changed: else a changed bit in the index could truncate too
        # much.
        last_term = NO_TERM if first_index == self.begin_index else self.term_at(first_index - 1)
        before = self.predecessor(first_index - 1)
        self._parts.checkpoint_file.withdraw(first_index)
        self._flush.truncate(first_index)
        self._data.truncate(before.end_position, self.end_position, is_durable=True)
        self._index.truncate(first_index, self.last_index)
        self._rolled_index = min(self._rolled_index, first_index)
        self._flushed_index = min(self._flushed_index, first_index)
        self._next.drop()
        self.last_index = first_index - 1
        self.last_term = last_term
        self.end_position = before.end_position
        self._chain_crc = before.chain_crc

    def delete_before(self, index: int) -> None:
        """Delete, durably, the data files all of whose entries are below `index`, and their index files.

        The file of the last entry is never deleted. `begin_index` is updated, to at most `index`. Memory that readers
        have mapped of a deleted file stays valid until they release it.

        Raises:
            store.errors.DiskFull: nothing was deleted (only if space for `loghead` could never be reserved).
            store.errors.CorruptData: nothing was deleted; the index is damaged, and opening the store rebuilds it.
            store.errors.StorageFailed: the node must stop.
        """
        if self.begin_index >= index or self.last_index < self.begin_index:
            return
        begin_position = self.position_of(min(index, self.last_index)) // self.data_file_size * self.data_file_size
        if begin_position <= self.begin_position:
            return
        begin_index = self.index_at_position(begin_position)
        if begin_index == self.begin_index:  # the first entry did not fit into the first file, which has none
            return
        prev_term, chain_crc = self._proven_before(begin_index)
        head = LogHead(begin_index, begin_position, prev_term, prev_chain_crc=chain_crc)
        self._parts.head_file.save(head)
        self._begin_at(head)
        self._data.remove_before(begin_position)
        self._index.queue.remove_before(begin_index * INDEX_UNIT_SIZE)

    def reset(
        self, begin_index: int, begin_position: int, prev_term: int, prev_chain_crc: int = -1, caught_up_index: int = -1
    ) -> None:
        """Set all entries aside, durably, and start an empty log.

        Args:
            begin_index: of its first entry.
            begin_position: of that entry: at the start of a data file, or at least the size of an entry and a blank
                after it.
            prev_term: of the entry before, if it is known.
            prev_chain_crc: of it; -1 when it is not known.
            caught_up_index: the old entries may be deleted once the new log is committed and durable up to this one.

        Raises:
            store.errors.DiskFull: nothing was dropped, or (if another program used the space that the old files freed)
                the node must stop; opening the log again completes the reset.
            store.errors.StorageFailed: the node must stop; the same holds.
        """
        assert begin_index >= 0
        assert is_begin_position(begin_position, self.data_file_size), begin_position
        self._parts.checkpoint_file.withdraw(0)
        head = LogHead(begin_index, begin_position, prev_term, prev_chain_crc=prev_chain_crc)
        is_empty = self.last_index < self.begin_index
        kept = None if is_empty else AsideRecord(self.begin_index, self.last_index, caught_up_index)
        replace_log(self._parts.head_file, self._data, self._index.queue, head, self.aside, kept)
        self._begin_at(head)
        self._flush.reset(begin_index - 1)
        self._rolled_index = self._flushed_index = begin_index
        self._committed_index = self.last_index = begin_index - 1
        self.last_term, self.end_position = NO_TERM, begin_position
        self._chain_crc = self.begin_chain_crc
        self._next.drop()

    # -------------------------------------------------------------------------------------------------- flushing

    def begin_flush(self) -> EntriesTicket:
        """Return a ticket whose `sync` makes all entries written so far durable."""
        files = self._data.take_dirty()
        # The index is synced only sometimes, because it can be rebuilt, but often enough that little is left to sync at
        # the end of a file.
        if self.last_index - self._flushed_index >= _UNSYNCED_UNITS_MAX:
            files += self._index.queue.take_dirty()
            self._flushed_index = self.last_index + 1
        return self._flush.begin(self.last_index, files)

    def end_flush(self, ticket: EntriesTicket) -> None:
        """Record that a ticket was synced; `durable_index` advances, but not over truncated entries."""
        self._flush.end(ticket)

    def begin_checkpoint(self, committed_index: int) -> CheckpointTicket:
        """Return a checkpoint of the durable index and `committed_index`, which any thread may save."""
        self._committed_index, end_index = committed_index, self._flush.durable_index
        return CheckpointTicket(self._parts.checkpoint_file, Checkpoint(end_index, min(committed_index, end_index)))

    # -------------------------------------------------------------------------------------------------- helpers

    def _begin_at(self, head: LogHead) -> None:
        self.begin_index, self.begin_position = head.begin_index, head.begin_position
        self.begin_prev_term, self.begin_chain_crc = head.prev_term, head.chain_crc

    def _proven_before(self, index: int) -> tuple[int, int]:
        """Return term and chain checksum of the entry before `index`; unknown (-2 and -1) if either is damaged."""
        term = UNKNOWN_TERM
        with suppress(CorruptData):
            term = self.term_before(index)
            self.get(index)  # matches the chain checksum
            return term, self.chain_crc_before(index)
        return term, UNKNOWN

    def _confirmed(self, index: int) -> Fields:
        """Return the index unit of an entry, confirmed by its header or its neighbours; raises as `position_of`."""
        return self._reader.confirmed(index, self.begin_index, self.begin_position, self.last_index)

    def _check_held(self, *indexes: int) -> None:
        for index in indexes:
            if not self.begin_index <= index <= self.last_index:
                raise EntryNotFound(f"with index {index}", self.begin_index, self.last_index)

"""The log on disk: appends, reads, cuts and counts what is durable.

Data files hold the entries, index files say where each one stands; no state is kept per entry in memory. A batch is
joined once and written with one call for each file that it touches. Writes go to the page cache; `begin_flush` hands
out what a sync must cover. All methods belong to one thread, except `FlushTicket.sync` and `CheckpointTicket.save`.

Invariant: behind the last entry's end all bytes of the data files are zero. What is cut off is overwritten, durably,
before anything else may be written there, so that neither a reader nor a recovery can take it for part of the log.

Place on the way of an append: between the driver, which decides nothing about bytes, and the mapped files.
Source: DLedger `DLedgerMmapFileStore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dledger.checkpoint import Checkpoint, CheckpointTicket
from dledger.entry import (
    BLANK_SIZE_MIN,
    ENTRY_NORMAL,
    INDEX_UNIT_SIZE,
    NO_CHAIN,
    Entry,
    encode_batch,
    encode_blank,
)
from dledger.entry_errors import CorruptPush, EntryNotFound, EntryTooLarge
from dledger.entry_flush import FlushProgress, FlushTicket
from dledger.entry_placement import Run, lay_out
from dledger.entry_push import CheckedPush, Predecessor, check_follows, check_payload
from dledger.entry_reader import EntryReader
from dledger.entry_store_config import EntryStoreConfig
from dledger.entry_store_open import OpenLog, open_log
from dledger.types import NO_INDEX, NO_TERM, LogState, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.files import Files

__all__ = [
    "CheckpointTicket",
    "CorruptPush",
    "EntryNotFound",
    "EntryStore",
    "EntryStoreConfig",
    "EntryTooLarge",
    "FlushTicket",
]

_UNSYNCED_UNITS_MAX = 1 << 17  # 4 MiB of index


class EntryStore:
    """An append-only log of entries that can be cut at its end. Construct it by `open`."""

    def __init__(self, config: EntryStoreConfig, parts: OpenLog) -> None:
        self._config = config
        self._file_size = config.data_file_size_bytes
        self._parts = parts
        self._data = parts.data
        self._index = parts.index
        self._reader = EntryReader(parts.data, parts.index, parts.log.begin_index, parts.log.last_index)
        self._last_term = parts.log.last_term
        self._end_position = parts.log.end_position
        self._chain_crc = parts.log.chain_crc
        self._flush = FlushProgress(parts.log.last_index)  # recovery synced all files
        # Index units before these were synced at the last roll, or handed out with a ticket.
        self._rolled_index = self._flushed_index = parts.log.last_index + 1
        self._committed_index = NO_INDEX
        self._checked: CheckedPush | None = None

    # ------------------------------------------------------------------------------------------ opening and closing

    @classmethod
    def open(cls, files: Files, directory: str, config: EntryStoreConfig) -> Self:
        """Lock and recover the log in `directory`, which is created if need be.

        Raises:
            store.errors.DirectoryLocked: another process has it open.
            store.errors.ForeignFile, WrongFileSize, MissingFile, CorruptData: see their messages; nothing was lost.
            store.errors.DiskFull: no room to rebuild the index.
            store.errors.StorageFailed: a file cannot be opened, written or synced.
        """
        return cls(config, open_log(files, directory, config))

    def close(self) -> None:
        """Make everything durable, leave a checkpoint, and give the directory back.

        Raises:
            store.errors.StorageFailed: what was not acknowledged before may be lost; the directory is given back.
        """
        try:
            self._data.sync_all()
            self._index.queue.sync_all()
            committed_index = min(self._committed_index, self._reader.last_index)
            CheckpointTicket(self._parts.checkpoint_file, Checkpoint(self._reader.last_index, committed_index)).save()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the directory back as it is, after a failure that makes any further write or sync unwise."""
        self._data.close()
        self._index.queue.close()
        self._parts.lock.release()

    # ---------------------------------------------------------------------------------------------- what it holds

    @property
    def begin_index(self) -> int:
        """The first entry, or the one that an empty log will begin with."""
        return self._reader.begin_index

    @property
    def last_index(self) -> int:
        """The last entry; `begin_index - 1` when there is none."""
        return self._reader.last_index

    @property
    def last_term(self) -> int:
        """The term of the last entry; -1 when there is none."""
        return self._last_term

    @property
    def begin_position(self) -> int:
        """Where the first entry stands, or will."""
        return self._parts.log.begin_position

    @property
    def end_position(self) -> int:
        """The position behind the last entry."""
        return self._end_position

    @property
    def durable_index(self) -> int:
        """All entries up to this one are durable."""
        return self._flush.durable_index

    @property
    def max_body_bytes(self) -> int:
        """The largest body that an entry of this log can hold."""
        return self._config.max_body_bytes

    @property
    def recovery_notes(self) -> tuple[str, ...]:
        """What opening the log repaired or cut, one sentence each."""
        return self._parts.notes

    @property
    def recovered_checkpoint(self) -> Checkpoint:
        """The checkpoint that was found at opening."""
        return self._parts.checkpoint

    def log_state(self) -> LogState:
        """Return what the consensus core starts from; found by bisecting the index, for terms never fall."""
        return self._reader.log_state()

    # ------------------------------------------------------------------------------------------------- appending

    def reserve(self, sizes_of_bodies: Sequence[int]) -> None:
        """Make room for entries with bodies of these sizes, so that appending them cannot meet a full disk.

        Raises:
            EntryTooLarge: refuse the batch.
            store.errors.DiskFull: refuse the batch; the log is unchanged.
        """
        self._reserve(sizes_of_bodies)

    def append(
        self,
        bodies: Sequence[bytes],
        first_index: int,
        term: int,
        magic: int = ENTRY_NORMAL,
        stamp_at: int | None = None,
    ) -> list[int]:
        """Append an entry for each body, into the page cache; return their positions.

        Args:
            bodies: at least one.
            first_index: must be `last_index + 1`; says what the caller believes.
            term: of all of them; not below `last_term`.
            magic: of all of them.
            stamp_at: where in each body its physical offset is written; None: nowhere.

        Raises:
            EntryTooLarge, store.errors.DiskFull: nothing was appended.
            store.errors.StorageFailed: the node must stop.
        """
        assert first_index == self.last_index + 1, (first_index, self.last_index)
        assert term >= self._last_term, (term, self._last_term)
        sizes = list(map(len, bodies))
        runs = self._reserve(sizes)
        positions: list[int] = []
        for run in runs:
            batch = encode_batch(
                bodies if len(runs) == 1 else bodies[run.begin : run.end],
                first_index=first_index + run.begin,
                term=term,
                position=run.position,
                chain_crc=self._chain_crc,
                magic=magic,
                stamp_at=stamp_at,
            )
            self._write(run.position, batch.data, batch.units, term, batch.chain_crc)
            positions += batch.positions
        return positions

    def check_push(self, span: Span, payload: bytes, prev_term: int | None = None) -> None:
        """Check entries of a peer, before the core may decide to take them.

        Args:
            span: what the peer says of them.
            payload: their bytes.
            prev_term: the term that the peer has before them; if it is known and the local log agrees, place and
                chain checksum of the first entry are checked against the local entry before it.

        Raises:
            CorruptPush: drop the push.
        """
        self._checked = check_payload(span, payload, self._file_size)
        prev_index = span.first_index - 1
        is_here = prev_term is not None and self.begin_index <= prev_index <= self.last_index
        if is_here and self._index.term_at(prev_index) == prev_term:
            check_follows(self._checked, span.first_index, self._predecessor(prev_index), self._file_size)

    def reserve_span(self, span: Span) -> None:
        """Make room for entries of a peer.

        Raises:
            store.errors.DiskFull: tell the peer; the log is unchanged.
        """
        # What does not stand at the end of the log or before it will not be taken: the logs differ.
        if span.position <= self._end_position - self._end_position % self._file_size + self._file_size:
            begin = min(self._end_position, span.position)
            self._data.reserve(begin, span.position + span.length + BLANK_SIZE_MIN)
            self._index.reserve(min(self.last_index + 1, span.first_index), span.last_index)

    def append_encoded(self, span: Span, payload: bytes, first_index: int) -> None:
        """Append the entries of a peer from `first_index` on, as they are, into the page cache.

        Args:
            span: what the peer says of them.
            payload: their bytes; checked here unless `check_push` did.
            first_index: must be `last_index + 1`; entries of the push before it are here already.

        Raises:
            CorruptPush, store.errors.DiskFull: nothing was appended.
            store.errors.StorageFailed: the node must stop.
        """
        assert first_index == self.last_index + 1, (first_index, self.last_index)
        assert span.first_index <= first_index <= span.last_index, (span, first_index)
        assert span.term >= self._last_term, (span.term, self._last_term)
        push = self._checked
        if push is None or push.payload is not payload or push.span != span:
            push = check_payload(span, payload, self._file_size)
        self._checked = None
        check_follows(push, first_index, self._predecessor(self.last_index), self._file_size)
        self.reserve_span(span)
        position, done = push.position_of(first_index), first_index - span.first_index
        data = memoryview(payload)[position - span.position :]
        self._write(position, data, b"".join(push.units[done:] if done else push.units), span.term, push.chain_crc)

    def _reserve(self, sizes: Sequence[int]) -> list[Run]:
        if max(sizes) > self._config.max_body_bytes:
            raise EntryTooLarge(max(sizes), self._config.max_body_bytes)
        runs = lay_out(sizes, self._end_position, self._file_size)
        self._data.reserve(self._end_position, runs[-1].end_position + BLANK_SIZE_MIN)
        last_index = self.last_index
        self._index.reserve(last_index + 1, last_index + len(sizes))
        return runs

    def _write(self, position: int, data: bytes | memoryview, units: bytes, term: int, chain_crc: int) -> None:
        """Write entries that begin at `position`, which is the end of the log or the head of the next file."""
        if position != self._end_position:
            self._leave_file(position)
        self._data.write(position, data)
        self._index.write(self.last_index + 1, units)
        self._end_position = position + len(data)
        self._reader.last_index += len(units) // INDEX_UNIT_SIZE
        self._last_term = term
        self._chain_crc = chain_crc

    def _leave_file(self, next_position: int) -> None:
        """Fill the last data file with a blank; make the log durable, for recovery trusts what lies before a file."""
        self._data.write(self._end_position, encode_blank(next_position - self._end_position))
        self._data.sync(self._end_position, next_position)
        end_index = self.last_index + 1
        self._index.queue.sync(self._rolled_index * INDEX_UNIT_SIZE, end_index * INDEX_UNIT_SIZE)
        self._rolled_index = self._flushed_index = end_index

    def _predecessor(self, index: int) -> Predecessor:
        return self._reader.predecessor(index, self.begin_position)

    # --------------------------------------------------------------------------------------------------- cutting

    def truncate(self, first_index: int) -> None:
        """Cut the entry at `first_index` and all behind it, durably; also a blank before it.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        assert self.begin_index <= first_index <= self.last_index + 1, (first_index, self.last_index)
        if first_index > self.last_index:
            return
        before = self._predecessor(first_index - 1)
        self._parts.checkpoint_file.withdraw(first_index)
        self._flush.cut(first_index)
        self._data.truncate(before.end_position, self._end_position, is_durable=True)
        self._index.truncate(first_index, self.last_index)
        self._rolled_index = min(self._rolled_index, first_index)
        self._flushed_index = min(self._flushed_index, first_index)
        self._checked = None
        self._reader.last_index = first_index - 1
        self._last_term = NO_TERM if first_index == self.begin_index else self.term_at(first_index - 1)
        self._end_position = before.end_position
        self._chain_crc = max(before.chain_crc, NO_CHAIN)

    # --------------------------------------------------------------------------------------------------- reading

    def fit(self, first_index: int, last_index_max: int, size_bytes_max: int) -> Span:
        """Return the longest span from `first_index` to at most `last_index_max` that can travel together.

        That is: of one term, in one data file, and all together at most `size_bytes_max` bytes; but the first entry
        always counts.

        Raises:
            EntryNotFound: `first_index` is not in the log.
        """
        return self._reader.fit(first_index, last_index_max, size_bytes_max)

    def span_of(self, first_index: int, last_index: int) -> Span:
        """Return the span of these entries, which must `fit`; raises as `fit`."""
        return self._reader.span_of(first_index, last_index)

    def read_span(self, span: Span) -> bytes:
        """Return the entries of a span that `fit` or `span_of` returned, as they stand in the file; not checked."""
        return self._reader.read_span(span)

    def read_entries(self, first_index: int, last_index: int) -> list[Entry]:
        """Return these entries, which must `fit`, checked and decoded.

        Raises:
            EntryNotFound: they are not all in the log.
            store.errors.CorruptData: the file does not hold what was written; answer nothing from it.
        """
        return self._reader.read_entries(first_index, last_index)

    def get(self, index: int) -> Entry:
        """Return one entry, checked; raises as `read_entries`."""
        return self._reader.read_entries(index, index)[0]

    def term_at(self, index: int) -> int:
        """Return the term of an entry; raises as `fit`."""
        return self._reader.unit(index).term

    def position_of(self, index: int) -> int:
        """Return where an entry begins; raises as `fit`."""
        return self._reader.unit(index).position

    def end_position_of(self, index: int) -> int:
        """Return the position behind an entry; raises as `fit`."""
        unit = self._reader.unit(index)
        return unit.position + unit.size

    def index_at_position(self, position: int) -> int:
        """Return the index of the entry that begins at `position`.

        Raises:
            EntryNotFound: none begins there.
        """
        return self._reader.index_at_position(position)

    # -------------------------------------------------------------------------------------------------- flushing

    def begin_flush(self) -> FlushTicket:
        """Return a ticket whose `sync` makes everything written so far durable."""
        files = self._data.take_dirty()
        # Not every time, for the index can be rebuilt; but so often that little is left to sync when a file is full.
        if self.last_index - self._flushed_index >= _UNSYNCED_UNITS_MAX:
            files += self._index.queue.take_dirty()
            self._flushed_index = self.last_index + 1
        return self._flush.begin(self.last_index, files)

    def end_flush(self, ticket: FlushTicket) -> None:
        """Take a synced ticket back; `durable_index` follows, except for what was cut off meanwhile."""
        self._flush.end(ticket)

    def begin_checkpoint(self, committed_index: int) -> CheckpointTicket:
        """Return a checkpoint of what is durable now, and of `committed_index`, for any thread to save."""
        self._committed_index = committed_index
        durable_index = self._flush.durable_index
        return CheckpointTicket(
            self._parts.checkpoint_file, Checkpoint(durable_index, min(committed_index, durable_index))
        )

    def save_checkpoint(self, committed_index: int) -> bool:
        """Save a checkpoint now, which takes two syncs; see `begin_checkpoint` and `CheckpointTicket.save`."""
        return self.begin_checkpoint(committed_index).save()

"""The key index: finds the messages with a key, in the files of `index/`, oldest to newest.

A file's name is the store time of its first message (UTC, `yyyyMMddHHmmssSSS`), and greater than the previous name, so
a rebuilt index has the same files. A full file is never written again.

Order of durability: items and slots are synced, then the header that counts them is written, then the header is synced;
after all three steps the items count as flushed.

Source: RocketMQ `IndexService`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from store.errors import CorruptData, WrongFileSize
from store.fs.flush_tickets import DerivedFilesTicket, DerivedFlushProgress, Dispatched
from store.fs.sync_tickets import flush_all
from store.index.file import IndexFile
from store.index.layout import Header, IndexLayout
from store.steps import Steps, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.fs.ports import Files
    from store.model.dispatch_batch import DispatchBatch, Int32s, Int64s

DIRECTORY = "index"
_NAME_DIGITS = 17
_DEFAULT_LAYOUT = IndexLayout()
_TIMESTAMP_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
# Items that one query reads, over all files: half a second in all. Only a key of more than a million messages, or with
# the slot of as many other keys, needs more.
QUERY_ITEMS_MAX: Final = 1 << 20


class KeyHits(NamedTuple):
    """The result of a query.

    Attributes:
        physical_offsets: newest first. Only hashes were compared, and whole seconds: messages with other keys, or
            stored outside of the range (`IndexFile.query_steps`), may be among them.
        faults: chains that were abandoned because they are broken.
        is_complete: False: the query ended early, because it read `QUERY_ITEMS_MAX` items, or files were cut meanwhile.
    """

    physical_offsets: list[int]
    faults: Sequence[CorruptData]
    is_complete: bool


class KeyIndex:
    """The index of one store. Construct, then `load`.

    Args:
        files: the file system.
        root: the store's directory.
        layout: the number of slots and items of each file.

    Attributes:
        cuts: how often files were truncated, removed or closed: a query that began before must not continue.
    """

    __slots__ = (
        "_changed",
        "_directory",
        "_dispatched",
        "_file_system",
        "_files",
        "_headers",
        "_last",
        "_layout",
        "_progress",
        "_sealed",
        "_unsynced_headers",
        "cuts",
    )

    def __init__(self, files: Files, root: str, layout: IndexLayout = _DEFAULT_LAYOUT) -> None:
        self._file_system = files
        self._directory = f"{root}/{DIRECTORY}"
        self._layout = layout
        # Oldest first; only the last one is appended to.
        self._files: list[IndexFile] = []
        self.cuts = 0
        # The last message, and the number of its keys in the index. None: unknown until the next append determines it.
        self._last: tuple[int, int] | None = None
        # By path, both subsets of `_files`: files with items since the last flush began; files with an unsynced header.
        self._changed: dict[str, IndexFile] = {}
        self._unsynced_headers: dict[str, IndexFile] = {}
        # For each open ticket: the headers to write after its items and slots are durable. A header must never count
        # items that a crash can lose.
        self._headers: dict[DerivedFilesTicket, tuple[Dispatched, list[tuple[IndexFile, Header]]]] = {}
        # `flushed <= _sealed <= _dispatched`: items with durable headers, with written headers, in the page cache.
        self._dispatched = Dispatched()
        self._sealed = Dispatched()
        self._progress = DerivedFlushProgress()

    # ------------------------------------------------------------------------------------------------------ files

    def load(self) -> list[str]:
        """Open all files of a cleanly closed index; after a crash `truncate` must follow.

        Returns:
            One sentence for each repair and each foreign file.

        Raises:
            store.errors.WrongFileSize: the index was written with other sizes.
            store.errors.CorruptData: a file is damaged; an index can be rebuilt from the log.
        """
        assert not self._files
        notes: list[str] = []
        names = self._file_system.list_directory(self._directory)
        is_name = {name: len(name) == _NAME_DIGITS and name.isascii() and name.isdigit() for name in names}
        notes += [
            f"{self._directory}/{name}: not an index file; it is left alone" for name in names if not is_name[name]
        ]
        names = [name for name in names if is_name[name]]
        for name in names:
            file = self._file_system.open(f"{self._directory}/{name}")
            if file.size == self._layout.file_size:
                try:
                    self._files.append(IndexFile(file, self._layout))
                except CorruptData:
                    file.close()
                    raise
                continue
            is_cut_short = name == names[-1] and file.size < self._layout.file_size and not any(file.view())
            file.close()
            if not is_cut_short and self._has_right_size(names):
                raise CorruptData(file.path, 0, f"{self._layout.file_size} bytes, as others have", f"{file.size}")
            if not is_cut_short:
                raise WrongFileSize(file.path, self._layout.file_size, file.size)
            self._file_system.remove(file.path)
            self._file_system.sync_directory(self._directory)
            notes.append(f"{file.path}: removed; a crash cut its creation short at {file.size} bytes")
        return notes

    def _has_right_size(self, names: Sequence[str]) -> bool:
        """Return whether any file has the configured size, so that the index was written with these settings."""
        for name in names:
            file = self._file_system.open(f"{self._directory}/{name}")
            file.close()
            if file.size == self._layout.file_size:
                return True
        return False

    @property
    def files(self) -> Sequence[IndexFile]:
        """All files, oldest first."""
        return self._files

    @property
    def max_physical_offset(self) -> int:
        """Physical offset of the last indexed message; 0 if there is none.

        If a header and the last item differ, the lower one is returned: the following messages are dispatched again,
        and existing items are skipped.
        """
        last = self._last_with_items
        return 0 if last is None else min(last.header.end_physical_offset, last.last_physical_offset())

    @property
    def is_end_certain(self) -> bool:
        """Whether header and last item agree on the last indexed message, or there is none."""
        last = self._last_with_items
        return last is None or last.header.end_physical_offset == last.last_physical_offset()

    @property
    def _last_with_items(self) -> IndexFile | None:
        return next((file for file in reversed(self._files) if not file.is_empty), None)

    def digest(self) -> int:
        """Return a checksum of the names of the files and the number of items of each."""
        counts = [(file.file.path.rpartition("/")[2], file.header.next_item) for file in self._files]
        return crc32c("".join(f"{name} {next_item}\n" for name, next_item in counts).encode())

    def _create(self, timestamp: int) -> IndexFile:
        """Create a new file, whose header starts with the end of the previous file."""
        name, before = _name(timestamp), Header()
        if self._files:
            last = self._files[-1]
            before = last.header
            name = max(name, int(last.file.path.rpartition("/")[2]) + 1)
            last.write_slots()  # which also releases the memory of its slots
        self._file_system.make_directory(self._directory)
        path = f"{self._directory}/{name:0{_NAME_DIGITS}d}"
        header = Header(
            before.end_timestamp, before.end_timestamp, before.end_physical_offset, before.end_physical_offset
        )
        created = self._file_system.create(path, self._layout.file_size, is_sparse=True)
        # Size and name are synced now, because only the last file may be incomplete after a crash.
        created.sync()
        self._file_system.sync_directory(self._directory)
        file = IndexFile(created, self._layout, header)
        self._files.append(file)
        return file

    # -------------------------------------------------------------------------------------------------- appending

    def append(self, batch: DispatchBatch) -> None:
        """Add the keys of a range of the log, to the page cache; existing ones are skipped.

        Raises:
            store.errors.DiskFull: some keys may have been added; call it again with the same batch.
            store.errors.StorageFailed: the node must stop.
        """
        offsets = batch.physical_offsets[batch.key_rows]
        begin = self._known_count(offsets)
        if begin < len(offsets):
            self._add(batch.key_hashes[begin:], offsets[begin:], batch.store_timestamps[batch.key_rows[begin:]])
        self._dispatched = self._dispatched.after(batch.next_offset, batch.last_store_timestamp)

    def _add(self, key_hashes: Int32s, offsets: Int64s, timestamps: Int64s) -> None:
        done = 0
        while done < len(offsets):
            file = self._files[-1] if self._files else None
            if file is None or file.is_full:
                file = self._create(int(timestamps[done]))
            self._changed[file.file.path] = file
            taken = file.append(key_hashes[done:], offsets[done:], timestamps[done:])
            self._note_last(offsets[done : done + taken])
            done += taken

    def _note_last(self, offsets: Int64s) -> None:
        """Record the last message, and the number of its keys in the index."""
        offset = int(offsets[-1])
        count = len(offsets) - int(offsets.searchsorted(offsets[-1]))
        if self._last is not None and self._last[0] == offset:
            count += self._last[1]
        self._last = offset, count

    def _known_count(self, offsets: Int64s) -> int:
        """Return the number of these keys that are already indexed; `offsets` are of their messages, ascending."""
        if self._last is None:
            self._last = self._find_last()
        if self._last is None or not len(offsets) or offsets[0] > self._last[0]:
            return 0
        offset, count = self._last
        begin, end = (int(np.searchsorted(offsets, offset, side)) for side in ("left", "right"))
        return min(begin + count, end)

    def _find_last(self) -> tuple[int, int] | None:
        """Return the last message and the number of its keys in the index, which may be in several files."""
        offset, count = -1, 0
        for file in reversed(self._files):
            number = file.header.next_item
            while number > 1:
                found = int(file.items(number - 1, number).physical_offsets[0])
                offset = found if offset < 0 else offset
                if found != offset:
                    return offset, count
                number -= 1
                count += 1
        return (offset, count) if count else None

    # ------------------------------------------------------------------------------------------------------ times

    @property
    def has_certain_begin(self) -> bool:
        """Whether the time is certain from which further items count: that of the last file."""
        return not self._files or self._files[-1].are_times_certain

    def prove_times(self, store_timestamp_of: Callable[[int], int]) -> list[str]:
        """Prove the times of all files whose header and last item contradict each other, or correct them durably.

        Args:
            store_timestamp_of: called with the physical offset of a message; returns 0 if the log does not have it.

        Returns:
            What was corrected, and what could not be, one sentence each. Queries read all items of such a file.
        """
        notes = []
        for file in self._files:
            if file.are_times_certain:
                continue
            is_corrected = file.prove_times(store_timestamp_of)
            if is_corrected:
                notes.append(f"{file.file.path}: the header's times were damaged; corrected from the log")
            elif not file.are_times_certain:
                notes.append(f"{file.file.path}: the header's times contradict the last item; queries ignore them")
        return notes

    # ---------------------------------------------------------------------------------------------------- cutting

    def truncate(self, physical_offset: int, store_timestamp_of: Callable[[int], int]) -> int:
        """Keep the items of messages that begin below `physical_offset`, which must be durable.

        The slots of the last remaining file are rebuilt from its items. All later items are zeroed or removed; so is a
        file whose header contradicts its items, because one of them is damaged.

        Args:
            physical_offset: at which dispatch will continue.
            store_timestamp_of: called with the physical offset of the last kept message.

        Returns:
            The offset at which dispatch must continue so that no item is missing: `physical_offset`, or less if a file
            was damaged.
        """
        self.cuts += 1
        is_whole = self._remove_from_unfilled(physical_offset)
        while self._files:
            last = self._files[-1]
            if not self._is_empty_legitimate(last) or not last.truncate(physical_offset, store_timestamp_of):
                is_whole = False
            elif not last.is_empty:
                break
            self._remove(self._files.pop())
        certain = physical_offset if is_whole else min(physical_offset, self.max_physical_offset)
        self._forget_flushes(Dispatched(certain))
        return certain

    def _remove_from_unfilled(self, physical_offset: int) -> bool:
        """Remove the first file that is not full, and later ones; return whether no item before the offset is lost.

        Only the last file with messages below `physical_offset` may not be full: otherwise a bit of a header has
        changed.
        """
        unfilled = next((number for number, file in enumerate(self._files[:-1]) if not file.is_full), None)
        if unfilled is None:
            return True
        following = self._files[unfilled + 1 :]
        if all(file.is_empty or file.first_physical_offset() >= physical_offset for file in following):
            return True
        while len(self._files) > unfilled:
            self._remove(self._files.pop())
        return False

    def _is_empty_legitimate(self, last: IndexFile) -> bool:
        """Return whether the last file has items, or a valid header of a file without items."""
        before = self._files[-2].header.end_physical_offset if len(self._files) > 1 else 0
        return not last.is_empty or last.header.end_physical_offset in (0, before)

    def expire(self, log_begin: int) -> None:
        """Delete files whose last message is no longer in the log; the last file is kept."""
        while len(self._files) > 1 and _is_expired(self._files[0], self._files[1], log_begin):
            self._remove(self._files.pop(0))

    def remove_all(self) -> None:
        """Remove all files, durably."""
        while self._files:
            self._remove(self._files.pop())
        self._forget_flushes(Dispatched())

    def _remove(self, file: IndexFile) -> None:
        self.cuts += 1
        path = file.file.path
        self._changed.pop(path, None)
        self._unsynced_headers.pop(path, None)
        self._file_system.remove(path)
        self._file_system.sync_directory(self._directory)
        file.file.discard()

    def _forget_flushes(self, dispatched: Dispatched) -> None:
        self._last = None
        self._headers.clear()
        self._dispatched = min(self._dispatched, dispatched)
        self._sealed = min(self._sealed, dispatched)
        self._progress.truncate(dispatched)

    # --------------------------------------------------------------------------------------------------- flushing

    @property
    def flushed(self) -> Dispatched:
        """Messages of the log up to this offset have durable items and headers."""
        return self._progress.flushed

    @property
    def dispatched(self) -> Dispatched:
        """Messages of the log up to this offset were appended since `load`."""
        return self._dispatched

    def begin_flush(self) -> DerivedFilesTicket | None:
        """Return a ticket for appended items; None if all are durable or in open tickets.

        The headers are written when the ticket has ended, and become durable with the next one, so `flushed` advances
        after two tickets.
        """
        if not self._changed and not self._unsynced_headers:
            if self._progress.is_waiting or self.flushed == self._dispatched:
                return None
            self._sealed = self._dispatched
        for file in self._changed.values():
            file.write_slots()
        synced = {**self._changed, **self._unsynced_headers}
        ticket = DerivedFilesTicket(self._sealed, self._file_system, [file.file for file in synced.values()], ())
        self._headers[ticket] = self._dispatched, [(file, file.header) for file in self._changed.values()]
        self._changed, self._unsynced_headers = {}, {}
        return self._progress.begin(ticket)

    def end_flush(self, ticket: DerivedFilesTicket) -> None:
        """Record that a ticket was synced, and write the headers that count its items."""
        self._progress.end(ticket)
        dispatched, headers = self._headers.pop(ticket, (Dispatched(), []))
        for file, header in headers:
            if any(file is kept for kept in self._files):
                file.write_header(header)
                self._unsynced_headers[file.file.path] = file
        self._sealed = max(self._sealed, dispatched)

    def flush(self) -> None:
        """Make everything durable, in this thread.

        Raises:
            store.errors.StorageFailed: the node must stop.
        """
        flush_all(self)

    def close(self) -> None:
        """Close all files without syncing them."""
        self.cuts += 1
        for file in self._files:
            file.file.close()
        self._files.clear()

    # --------------------------------------------------------------------------------------------------- querying

    def query(self, key_hash: int, begin: int, end: int, count_max: int) -> KeyHits:
        """Return the same as `query_steps`, at once."""
        return at_once(self.query_steps(key_hash, begin, end, count_max))

    def query_steps(self, key_hash: int, begin: int, end: int, count_max: int) -> Steps[KeyHits]:
        """Return messages with a key of this hash stored in `[begin, end]`, newest first; yields every few items.

        Items may be appended between steps; if files are cut, the query ends there.

        Args:
            key_hash: `store.model.java_hash.key_hash`.
            begin: milliseconds since 1970.
            end: inclusive.
            count_max: largest number of messages.

        Source: RocketMQ `IndexService.queryOffset`.
        """
        found: list[int] = []
        faults: list[CorruptData] = []
        items_left, cuts = QUERY_ITEMS_MAX, self.cuts
        for file in reversed(self._files.copy()):
            if len(found) >= count_max:
                break
            if items_left <= 0:
                return KeyHits(found, faults, is_complete=False)
            if file.is_empty or file.is_newer_than(end):
                continue
            if file.is_older_than(begin):
                break
            left = count_max - len(found)
            hits = yield from file.query_steps(key_hash, begin, end, left, items_left, lambda: self.cuts != cuts)
            if self.cuts != cuts:
                return KeyHits(found, faults, is_complete=False)
            items_left -= hits.items
            found += hits.physical_offsets
            faults += [hits.fault] if hits.fault is not None else []
            if file.begins_before(begin):
                break
        return KeyHits(found, faults, is_complete=items_left > 0)


def _is_expired(file: IndexFile, following: IndexFile, log_begin: int) -> bool:
    """Return whether all messages of a file begin before `log_begin`, by two fields that agree.

    No checksum covers a header or an item: one changed bit must not delete items of messages that the log still has.
    Each pair refers to the same message, so that one changed bit cannot lower both; the second pair lets a file expire
    in which one field of the first pair was raised.
    """
    if not file.is_empty and max(file.header.end_physical_offset, file.last_physical_offset()) < log_begin:
        return True
    if following.is_empty:
        return False
    return max(following.header.begin_physical_offset, following.first_physical_offset()) < log_begin


def _name(timestamp: int) -> int:
    """Return the digits of a time: `yyyyMMddHHmmssSSS`, UTC."""
    timestamp = min(max(timestamp, 0), _TIMESTAMP_MAX)
    moment = datetime.fromtimestamp(timestamp // 1000, UTC)
    return int(f"{moment:%Y%m%d%H%M%S}") * 1000 + timestamp % 1000

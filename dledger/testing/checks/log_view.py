"""The checkers' view of each node's log, read from its simulated disk, independently of the code under test.

`LogBook` keeps every entry that was ever on any node, once. Each refers to the entry before it, so that two logs with
the same last entry are equal: prefixes are compared by identity, in constant time (log matching, Raft §5.3, is checked
when an entry is first read on a node). `LogView` tracks one node's log by reading only new entries.

The walk below is a second, independent implementation of the format: entry by entry, skipping blanks. It ignores
flipped bits and reads the bytes that the node wrote: detecting the flips is the node's task.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c

from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from dledger.testing.disk.disk import SimDisk
    from dledger.testing.disk.inode import Inode

# magic, size, index, term, pos, channel, chainCrc, bodyCrc, bodyLen (big-endian).
_HEADER = struct.Struct(">iiqqqiIIi")
_BLANK = struct.Struct(">ii")
_BLANK_MAGIC = -1
HEADER_SIZE_BYTES = _HEADER.size
assert HEADER_SIZE_BYTES == 48


# Not frozen: one is created for each entry on each node, and creating a frozen one takes four times as long.
@dataclass(eq=False, slots=True)
class LogEntry:
    """An entry, shared by all nodes; compared by identity.

    Attributes:
        position: byte position in the log, of the header.
        content: header and body.
        blank: head of the blank between the entry before and this one; b"" when they are adjacent.
        previous: the entry before it in every log that contains it; None for the first.
    """

    index: int
    term: int
    position: int
    content: bytes = field(repr=False)
    blank: bytes = field(repr=False)
    previous: LogEntry | None = field(repr=False)

    @property
    def body(self) -> bytes:
        """The bytes after the header."""
        return self.content[HEADER_SIZE_BYTES:]

    @property
    def kind(self) -> tuple[int, int]:
        """Magic and channel, which determine the kind of entry."""
        header = _HEADER.unpack_from(self.content)
        return header[0], header[5]

    @property
    def is_of_client(self) -> bool:
        """Whether a client appended it: magic 1 and channel 0; not a no-op or a membership."""
        header = _HEADER.unpack_from(self.content)
        return bool(header[0] == 1 and header[5] == 0)

    @property
    def end_position(self) -> int:
        """Byte position after the entry."""
        return self.position + len(self.content)


class LogBook:
    """Every entry that was ever on any node, by index and term."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], LogEntry] = {}

    def meet(self, node_id: str, found: LogEntry, *, is_first: bool = False) -> LogEntry:
        """Return the shared record of this entry.

        Args:
            node_id: the node that has it.
            found: the entry as read there.
            is_first: the entries before it on this node are unknown; they were committed and deleted.

        Raises:
            Violation: another node has the same index and term with other bytes, or after another prefix.
        """
        key = (found.index, found.term)
        known = self._records.get(key)
        if is_first:
            if known is None or known.content != found.content:
                raise Violation("log matching", f"{node_id} begins with index {key[0]} of term {key[1]}, which is new")
            return known
        if known is None:
            self._records[key] = found
            _verify_checksum(node_id, found)
            return found
        if known.content != found.content or known.blank != found.blank:
            raise Violation("log matching", f"{node_id} holds index {key[0]} of term {key[1]} with other bytes")
        if known.previous is not found.previous:
            raise Violation("log matching", f"{node_id} holds index {key[0]} of term {key[1]} after another prefix")
        return known


def _verify_checksum(node_id: str, found: LogEntry) -> None:
    expected = _HEADER.unpack_from(found.content)[7]
    actual = crc32c(found.body)
    if expected != actual:
        raise Violation(
            "checksum", f"{node_id} wrote index {found.index} with bodyCrc {expected:#x}, found {actual:#x}"
        )


class LogView:
    """One node's log as read from its disk.

    Attributes:
        begin_index, begin_position: the start of the log.
        records: the entries from `begin_index` on; equal to the page cache after `refresh`.
        durable_index: entries up to this one were found durable, byte for byte; more may be.
    """

    def __init__(self, node_id: str, disk: SimDisk, data_directory: str, file_size: int, book: LogBook) -> None:
        self.node_id = node_id
        self.begin_index = 0
        self.begin_position = 0
        self.records: list[LogEntry] = []
        self.durable_index = -1
        self._disk = disk
        self._data_directory = data_directory
        self._file_size = file_size
        self._book = book
        self._base = -1
        self._inode: Inode | None = None

    @property
    def last_index(self) -> int:
        """Index of the last entry that is known; `begin_index - 1` when there is none."""
        return self.begin_index + len(self.records) - 1

    def get(self, index: int) -> LogEntry | None:
        """Return an entry, if it is known here."""
        return self.records[index - self.begin_index] if self.begin_index <= index <= self.last_index else None

    def holds(self, record: LogEntry) -> bool:
        """Return whether the log is known to have this record at its index."""
        return self.get(record.index) is record

    def second_file(self) -> LogEntry | None:
        """Return the first entry of the second data file."""
        first_end = self.begin_position - self.begin_position % self._file_size + self._file_size
        return next((record for record in self.records if record.position >= first_end), None)

    def begin(self, begin_index: int, begin_position: int) -> None:
        """Forget all entries: the log begins here, or a new process started and the disk may have lost data."""
        self.begin_index, self.begin_position = begin_index, begin_position
        self.records.clear()
        self.durable_index = begin_index - 1
        self._base = -1

    def drop_head(self, begin_index: int, begin_position: int) -> None:
        """Forget the entries before `begin_index`."""
        del self.records[: begin_index - self.begin_index]
        self.begin_index, self.begin_position = begin_index, begin_position
        self.durable_index = max(self.durable_index, begin_index - 1)
        self._base = -1

    def cut(self, first_index: int) -> None:
        """Forget the entries from `first_index` on."""
        del self.records[first_index - self.begin_index :]
        self.durable_index = min(self.durable_index, first_index - 1)

    def refresh(self, last_index: int) -> None:
        """Read the entries up to `last_index` that were not read yet.

        Raises:
            Violation: the bytes are not that entry, or differ from those of other nodes.
        """
        records = self.records
        for index in range(self.begin_index + len(records), last_index + 1):
            previous = records[-1] if records else None
            found = self._read(index, previous)
            records.append(self._book.meet(self.node_id, found, is_first=previous is None and self.begin_index > 0))

    def is_durable(self, index: int) -> bool:
        """Return whether the bytes of the entries up to `index` would survive a power cut now."""
        while self.durable_index < index:
            record = self.get(self.durable_index + 1)
            if record is None or not self._is_record_durable(record):
                return False
            self.durable_index += 1
        return True

    def _read(self, index: int, previous: LogEntry | None) -> LogEntry:
        position = self.begin_position if previous is None else previous.end_position
        blank = b""
        cache = self._cache_at(position)
        offset = position - self._base
        magic, size = _BLANK.unpack_from(cache, offset)
        if magic == _BLANK_MAGIC:
            if size != self._file_size - offset:
                raise Violation("format", f"{self.node_id}: blank of {size} bytes at {position}, not to the file's end")
            blank = bytes(cache[offset : offset + _BLANK.size])
            position += size
            cache, offset = self._cache_at(position), 0
        if offset + HEADER_SIZE_BYTES > self._file_size:
            raise Violation("format", f"{self.node_id}: expected index {index} at {position}, found the file's end")
        header = _HEADER.unpack_from(cache, offset)
        if header[2] != index or header[4] != position or header[1] != HEADER_SIZE_BYTES + header[8]:
            raise Violation("format", f"{self.node_id}: expected index {index} at {position}, found {header}")
        content = bytes(cache[offset : offset + header[1]])
        return LogEntry(index, header[3], position, content, blank, previous)

    def _cache_at(self, position: int) -> bytearray:
        base = position - position % self._file_size
        if base != self._base or self._inode is None:
            self._inode = self._disk.lookup(self._path(base))
            self._base = base
            if self._inode is None:
                raise Violation("format", f"{self.node_id}: no data file at {base}")
        return self._inode.written_cache()

    def _is_record_durable(self, record: LogEntry) -> bool:
        if not self._is_durable_at(record.position, record.content):
            return False
        if not record.blank or record.index == self.begin_index or record.previous is None:
            return True
        return self._is_durable_at(record.previous.end_position, record.blank)

    def _is_durable_at(self, position: int, content: bytes) -> bool:
        base = position - position % self._file_size
        directory = self._disk.directories.get(self._data_directory)
        inode = None if directory is None else directory.durable.get(f"{base:020d}")
        if inode is None:
            return False
        offset = position - base
        return inode.written_durable()[offset : offset + len(content)] == content

    def _path(self, base: int) -> str:
        return f"{self._data_directory}/{base:020d}"

"""Copies entries into the log of a new group: the same entries, but with the group id of the new group.

Each membership in a log names the id of its group. A node that receives the log from its beginning learns the id from
the first of them, and then refuses leaders with another one. So a copy has the new id in all of them; it has the same
length, so all positions, and with them the physical offsets of messages, stay the same. Checksums of entries are
computed again, because each covers all entries before it.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from cluster.backup.errors import BackupError
from commitlog.record.record import CRC_MASK, decode
from commitlog.record.system_records import MEMBERSHIP_CHANNEL
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NORMAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.entries.format.entry import Entry
    from dledger.entries.store import EntryStore

# As in a push of a leader.
_RUN_SIZE_BYTES: Final = 1 << 20
# Written to the page cache between two syncs.
_UNSYNCED_BYTES: Final = 64 << 20
_MEMBERSHIPS: Final = frozenset({(ENTRY_CONFIG_CHANGE, 0), (ENTRY_NORMAL, MEMBERSHIP_CHANNEL)})
# The first key of the object.
_GROUP_ID: Final = re.compile(rb'(\{"groupId":")[0-9a-f]{16}"')
_BODY_CRC_AT: Final = 8
_BODY_CRC: Final = struct.Struct(">i")


class WrongSizes(BackupError):
    """The settings of the new node do not fit the entries that it gets. The directory was not made."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}. The directory was not made. Give the new nodes the file size "
            "of the group that has the log now (mapped_file_size_for_entry_data)"
        )
        self.expected = expected
        self.found = found


class LogCopy:
    """Appends entries of another log to an open one.

    Args:
        store: of the new node; its last entry is the one before the first that is copied.
        group_id: of the new group.
        directory: of the new node, for messages.
    """

    def __init__(self, store: EntryStore, group_id: int, directory: str) -> None:
        self._store = store
        self._group_id = b"%016x" % group_id
        self._directory = directory
        self._unsynced = 0

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries, which follow the last one.

        Raises:
            WrongSizes: an entry would have another position than in its own log, so its messages other offsets.
            store.errors.DiskFull, store.errors.StorageFailed: the copy is incomplete.
        """
        for run in _runs_of(entries):
            first = run[0]
            bodies = [self._body_of(entry) for entry in run]
            positions = self._store.append(bodies, first.index, first.term, first.magic, first.channel)
            for entry, position in zip(run, positions, strict=True):
                # The position in an entry of Java, which has no checksum, may be that of another replica.
                if entry.chain_crc and position != entry.position:
                    found = f"position {position} in data files of {self._store.data_file_size} bytes"
                    raise WrongSizes(self._directory, f"position {entry.position} of entry {entry.index}", found)
            self._unsynced += sum(map(len, bodies))
            if self._unsynced >= _UNSYNCED_BYTES:
                self.sync()

    def sync(self) -> None:
        """Make all copied entries durable."""
        ticket = self._store.begin_flush()
        ticket.sync()
        self._store.end_flush(ticket)
        self._unsynced = 0

    def _body_of(self, entry: Entry) -> bytes:
        if (entry.magic, entry.channel) not in _MEMBERSHIPS:
            return entry.body
        body = _GROUP_ID.sub(rb'\g<1>%b"' % self._group_id, entry.body, count=1)
        return _with_checksum(body) if entry.channel else body


def _with_checksum(record: bytes) -> bytes:
    """Return a message record with the checksum of its body."""
    checksum = crc32(decode(memoryview(record), 0).body) & CRC_MASK
    return record[:_BODY_CRC_AT] + _BODY_CRC.pack(checksum) + record[_BODY_CRC_AT + _BODY_CRC.size :]


def _runs_of(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield runs of entries of one term and kind, of about 1 MiB, which one call appends."""
    begin = 0
    while begin < len(entries):
        first, end, size = entries[begin], begin, 0
        while end < len(entries) and (end == begin or size + entries[end].size <= _RUN_SIZE_BYTES):
            entry = entries[end]
            if (entry.term, entry.magic, entry.channel) != (first.term, first.magic, first.channel):
                break
            size += entry.size
            end += 1
        yield entries[begin:end]
        begin = end

"""Logs in real files, as sources of backups, and what tests ask of backups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.backup.create import BackupRun, SourceFacts
from cluster.backup.folder import BackupFolder
from cluster.backup.throttle import Throttle
from cluster.cli.entry_kinds import AnyLogChecks
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.types import Member, Membership
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cluster.backup.manifest import BackupManifest
    from dledger.entries.format.entry import Entry

NOW_MS = 1_795_000_000_000
GROUP_ID = 0x5C1F3A0BE2D94F17
# Small files, so that a few hundred entries fill several.
SIZES = EntryStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=3200)
MEMBERS = Membership((Member("n0", "h:1"), Member("n1", "h:2"), Member("n2", "h:3")), GROUP_ID)


class Interrupted(Exception):
    """The process of the backup ends here."""


@dataclass
class StoredLog:
    """A log that a group has committed: `LogSource` of a backup.

    Attributes:
        store: its files.
        group_id: of its group; empty: none yet.
        fails_at: reading this entry raises `Interrupted`; -1: none.
        read: indexes of the entries that were read.
        has_state: the log has messages.
        begin_position: to be said instead of the store's.
    """

    store: EntryStore
    group_id: str = f"{GROUP_ID:016x}"
    fails_at: int = -1
    read: list[int] = field(default_factory=list)
    has_state: bool = False
    begin_position: int | None = None

    def facts(self) -> SourceFacts:
        begin_position = self.store.begin_position if self.begin_position is None else self.begin_position
        commit_index = self.store.last_index
        begin_index = self.store.begin_index
        return SourceFacts("g", self.group_id, "h:1", begin_index, begin_position, commit_index, self.has_state)

    def entries(self, begin: int) -> Iterator[Entry]:
        for index in range(begin, self.store.last_index + 1):
            if index == self.fails_at:
                raise Interrupted
            self.read.append(index)
            yield self.store.get(index)


def new_log(path: Path, bodies: Sequence[bytes], *, codec: EntryCodec = RAW_ENTRY_CODEC, term: int = 1) -> StoredLog:
    """Return a log that begins with a membership, and has these entries of clients after it."""
    store = EntryStore.open(OsFiles(), str(path), SIZES, codec)
    first = codec.membership(MEMBERS)
    store.append([first.body], 0, term, first.magic, first.channel, first.stamp_at)
    log = StoredLog(store)
    append(log, bodies, term)
    return log


def append(log: StoredLog, bodies: Sequence[bytes], term: int = 1, stamp_at: int | None = None) -> None:
    if bodies:
        log.store.append(bodies, log.store.last_index + 1, term, stamp_at=stamp_at)


def folder_of(path: Path) -> BackupFolder:
    return BackupFolder(OsFiles(), str(path))


def back_up(path: Path, source: StoredLog) -> BackupManifest:
    """Make one backup, as `dledger backup create` does."""
    folder = folder_of(path)
    lock = folder.lock()
    try:
        return BackupRun(folder, source, throttle=Throttle(0), checks=AnyLogChecks(), now_ms=lambda: NOW_MS).run()
    finally:
        lock.release()


def bodies_of(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number * 20 for number in range(first, first + count)]

"""Restores a backup to the directory of one node of a new group; each of its nodes is restored in the same way.

The node gets the entries of the backup up to a chosen end, with the id of the new group (`cluster.backup.log_copy`),
and then an entry with its members. The id is the same on all nodes: it is computed from the backup, the chosen end, the
members, the name of the group and the name of the restore, so nodes that were restored differently refuse each other.
Queues, index and broker state are made from the log at the start.

The directory is made under another name, and renamed when it is complete: an interrupted restore leaves no directory
from which a node could start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from cluster.backup.errors import BackupError, NoBackup
from cluster.backup.log_copy import LogCopy, WrongSizes
from cluster.backup.manifest import UNKNOWN_TIME
from cluster.backup.new_group import NewDirectory, complete, remove_tree
from cluster.backup.part_entries import store_time_of
from cluster.backup.verify import BackupReader
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE
from dledger.entries.log_head import is_begin_position
from dledger.entries.store import EntryStore
from dledger.storage.membership_codec import membership_to_object, to_json
from dledger.types import GROUP_ID_END, UNKNOWN_TERM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cluster.backup.folder import BackupFolder
    from cluster.backup.manifest import BackupManifest
    from dledger.entries.config import EntryStoreConfig
    from dledger.entries.format.codec import EntryChecks, EntryCodec
    from dledger.entries.format.entry import Entry
    from dledger.types import Membership
    from store.fs.ports import Files

RECORD_NAME: Final = "restored"
_STAGING: Final = ".restoring"


class DirectoryInUse(BackupError):
    """The directory for a restored node exists already. Nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: expected no such file or directory, found one. Nothing was changed. Move it away")
        self.path = path


@dataclass(frozen=True, slots=True)
class RestoreEnd:
    """The end of a restored log; without both it is the end of the backup.

    Attributes:
        index: the last entry; None: not limited.
        time_ms: messages that were stored later are left out, in milliseconds since 1970; None: not limited.
    """

    index: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class NewNode:
    """The node that is made from a backup.

    Attributes:
        base_directory: in which its directory `dledger-<id>` is made.
        node_id, group: as in its settings.
        membership: of the new group, without an id.
        sizes: of its files.
        new_codec: makes the codec of the entries, from the store time of an entry of its own, in milliseconds.
        has_messages: whether its log has messages of a broker.
        other_names: files and directories of a store in the base directory, which must not exist.
    """

    base_directory: str
    node_id: str
    group: str
    membership: Membership
    sizes: EntryStoreConfig
    new_codec: Callable[[int], EntryCodec]
    has_messages: bool = False
    other_names: Sequence[str] = ()

    @property
    def directory(self) -> str:
        """The directory of the node."""
        return f"{self.base_directory}/dledger-{self.node_id}"


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """The result of a restore.

    Attributes:
        first_index, last_index, last_term: of the entries of the backup that the node has.
        left_out: entries of the backup after them.
        last_time_ms: store time of the last message; -1: not known.
        group_id: of the new group: 16 hexadecimal digits.
    """

    first_index: int
    last_index: int
    last_term: int
    left_out: int
    last_time_ms: int
    group_id: str


class Restore:
    """Makes one node from a backup.

    Args:
        files: the file system.
        folder: of the backup.
        manifests: up to the backup that is restored.
        node: to be made.
        checks: which entries of a backup may be a leader's own, in logs of both kinds.
        end: of its log.
        run: name of this restore, the same on all its nodes, and another one for each restore.
    """

    def __init__(
        self,
        files: Files,
        folder: BackupFolder,
        manifests: Sequence[BackupManifest],
        node: NewNode,
        *,
        checks: EntryChecks,
        end: RestoreEnd,
        run: str,
    ) -> None:
        self._files = files
        self._folder = folder
        self._manifests = manifests
        self._node = node
        self._checks = checks
        self._end = end
        self._run_name = run
        self._last_time_ms = UNKNOWN_TIME
        self._last_term = 0

    def run(self, draw: Callable[[int, int], int], on_progress: Callable[[int], None] = lambda _: None) -> RestoredLog:
        """Make the directory.

        Args:
            draw: returns a random number in a half-open range.
            on_progress: called with the bytes of each part that was read.

        Raises:
            NoBackup: the backup has no such end.
            BackupDamaged: nothing was made.
            DirectoryInUse, WrongSizes: nothing was made.
            store.errors.StoreError: the disk is full, or a file cannot be written; repeat the restore.
        """
        self._check()
        node, staging = self._node, self._node.directory + _STAGING
        remove_tree(self._files, staging)
        store = EntryStore.open(self._files, staging, node.sizes, node.new_codec(0))
        try:
            self._begin(store)
            self._write_entries(store, on_progress)
            restored, membership = self._result(store)
        except BaseException:
            store.abandon()
            raise
        record = self._record_of(restored)
        new = NewDirectory(staging, node.node_id, node.group, membership, RECORD_NAME, record)
        # The timestamp of the entry is that of the last message: equal on all nodes, and not before it.
        codec = node.new_codec(max(self._last_time_ms, 0))
        complete(self._files, new, store, codec=codec, term=self._last_term + 1, draw=draw)
        self._files.rename(staging, node.directory)
        self._files.sync_directory(node.base_directory)
        return restored

    # -------------------------------------------------------------------------------------------------- checks

    def _check(self) -> None:
        names = (f"dledger-{self._node.node_id}", *self._node.other_names)
        for path in (f"{self._node.base_directory}/{name}" for name in names):
            if self._files.exists(path):
                raise DirectoryInUse(path)
        last, path = self._manifests[-1], self._folder.path
        if last.end.index < last.begin_index:
            raise NoBackup(path, "a backup with entries", "none")
        index = self._end.index
        if index is not None and not last.begin_index <= index <= last.end.index:
            raise NoBackup(path, f"entry {index} in the backup", f"entries {last.begin_index} to {last.end.index}")
        if self._end.time_ms is not None and last.last_time_ms == UNKNOWN_TIME:
            raise NoBackup(path, "messages, which have times", "a log of raw entries: name its last index instead")

    # ------------------------------------------------------------------------------------------------- entries

    def _begin(self, store: EntryStore) -> None:
        first = self._manifests[0]
        if not first.begin_index:
            return
        if not is_begin_position(first.begin_position, store.data_file_size):
            expected = f"position {first.begin_position} as the first of a log"
            raise WrongSizes(self._node.directory, expected, f"data files of {store.data_file_size} bytes")
        store.reset(first.begin_index, first.begin_position, UNKNOWN_TERM)

    def _write_entries(self, store: EntryStore, on_progress: Callable[[int], None]) -> None:
        reader = BackupReader(self._folder, self._manifests, self._checks)
        copy = LogCopy(store, self._group_id(), self._node.directory)
        for part in reader.parts:
            entries = reader.read(part)
            self._check_kind(entries)
            kept = self._kept(entries)
            copy.write(kept)
            on_progress(part.size)
            if len(kept) < len(entries):
                break
        if store.last_index < store.begin_index:
            raise NoBackup(self._folder.path, "an entry before the chosen end", "none")

    def _check_kind(self, entries: list[Entry]) -> None:
        """Check that the entries of leaders are of the kind of log that the settings of the node say."""
        found = {bool(entry.channel) for entry in entries if entry.channel or entry.magic == ENTRY_CONFIG_CHANGE}
        if not found <= {self._node.has_messages}:
            kinds = {True: "messages (the setting broker)", False: "raw entries (no setting broker)"}
            expected = f"a log of {kinds[self._node.has_messages]}, as the settings of the node say"
            raise NoBackup(self._folder.path, expected, f"a log of {kinds[not self._node.has_messages]}")

    def _kept(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries of a part up to the chosen end; notes term and time of the last one."""
        kept: list[Entry] = []
        for entry in entries:
            time_ms = store_time_of(entry)
            is_later = self._end.time_ms is not None and (time_ms or 0) > self._end.time_ms
            if is_later or (self._end.index is not None and entry.index > self._end.index):
                break
            kept.append(entry)
            self._last_term = entry.term
            self._last_time_ms = self._last_time_ms if time_ms is None else time_ms
        return kept

    # -------------------------------------------------------------------------------------------------- result

    def _result(self, store: EntryStore) -> tuple[RestoredLog, Membership]:
        last = self._manifests[-1]
        group_id = self._group_id()
        restored = RestoredLog(
            store.begin_index,
            store.last_index,
            self._last_term,
            last.end.index - store.last_index,
            self._last_time_ms,
            f"{group_id:016x}",
        )
        return restored, replace(self._node.membership, group_id=group_id)

    def _group_id(self) -> int:
        """Return the id of the new group, from 1 to 2^63 - 1: a function of everything that its nodes must share."""
        members = to_json(membership_to_object(self._node.membership))
        digest = self._folder.digest(self._manifests[-1])
        end = f"{self._end.index} {self._end.time_ms}"
        text = f"{digest}\n{end}\n{self._node.group}\n{members}\n{self._run_name}"
        return 1 + int.from_bytes(sha256(text.encode()).digest()[:16]) % (GROUP_ID_END - 1)

    def _record_of(self, restored: RestoredLog) -> dict[str, str]:
        last = self._manifests[-1]
        return {
            "backup": self._folder.digest(last),
            "serial": str(last.serial),
            "run": self._run_name,
            "sourceGroup": last.group,
            "sourceGroupId": last.group_id,
            "groupId": restored.group_id,
            "lastIndex": str(restored.last_index),
            "leftOut": str(restored.left_out),
        }

"""Recovers a group that lost its majority: makes of one stopped node the only member of a new group.

No node can know what the lost ones had committed. So this is unsafe by nature, and an operator decides, with the
numbers of `RecoveryPlan`, by typing the id of the group. All entries of the node are kept, also those that were not
known to be committed.

The log is copied with the id of the new group (`cluster.backup.log_copy`), so nodes of the old group are refused, and
new members learn no other id from it. The directory itself is not changed: it is renamed, and the copy takes its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from cluster.backup.errors import BackupError
from cluster.backup.log_copy import LogCopy
from cluster.backup.manifest import UNKNOWN_TIME
from cluster.backup.new_group import NewDirectory, complete, remove_tree
from cluster.backup.part_entries import store_time_of
from commitlog.conversion.saved_manifest import FILE_NAME as MANIFEST_NAME
from dledger.entries.membership_file import FILE_NAME as MEMBERSHIP_NAME
from dledger.entries.membership_file import MembershipFile, drop_unheld
from dledger.entries.store import EntryStore
from dledger.storage.hard_state import FILE_NAME as HARD_STATE_NAME
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.types import GROUP_ID_END, NO_GROUP, Member, Membership

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dledger.entries.config import EntryStoreConfig
    from dledger.entries.damaged_tail import DamagedTail
    from dledger.entries.format.codec import EntryCodec
    from dledger.types import HardState
    from store.fs.ports import Files

RECORD_NAME: Final = "recovered"
_STAGING: Final = ".recovering"
_SNAPSHOTS: Final = "snapshot"
_READ_SIZE_BYTES: Final = 1 << 20
# Entries that are read to find the last message; leaders' own entries are between messages.
_LOOKED_AT_MAX: Final = 100_000


class NotRecoverable(BackupError):
    """A group cannot be made of this directory, or must not be. Nothing was changed.

    Attributes:
        path: the directory.
        expected, found: of the directory.
    """

    def __init__(self, path: str, expected: str, found: str, advice: str) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}. Nothing was changed. {advice}")
        self.path = path
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a recovery keeps and may lose, as far as this directory shows it.

    Attributes:
        group_id: of the group that lost its majority.
        membership: in force in the log of this node.
        is_voter: whether this node votes in it, and has not lost its vote.
        term: the newest term that the node knows.
        begin_index, last_index, last_term: of its log; last_index is begin_index - 1 if it is empty.
        committed_index: entries up to this one are known here to be committed; below begin_index: none of the log.
        last_time_ms: store time of the last message in milliseconds since 1970; -1: not known.
    """

    group_id: int
    membership: Membership
    is_voter: bool
    term: int
    begin_index: int
    last_index: int
    last_term: int
    committed_index: int
    last_time_ms: int

    @property
    def uncertain(self) -> int:
        """Entries of this log that are not known to be committed: a recovery commits them."""
        return self.last_index - max(self.committed_index, self.begin_index - 1)


@dataclass(frozen=True, slots=True)
class SurvivingNode:
    """The node of which a group is made.

    Attributes:
        directory: of the node (`dledger-<id>`).
        node_id, group, address: as in its settings; the address is that of its peer transport.
        sizes: of its files.
        codec: of its entries.
    """

    directory: str
    node_id: str
    group: str
    address: str
    sizes: EntryStoreConfig
    codec: EntryCodec


class Recovery:
    """The open directory of a survivor; a context manager, which holds the lock of the directory.

    Opening it does what a start does: a write that a crash tore is cut from the end of the log.

    Args:
        files: the file system.
        node: the survivor.

    Attributes:
        plan: what would be kept and lost.
    """

    def __init__(self, files: Files, node: SurvivingNode) -> None:
        self._files = files
        self._node = node
        _check_identity(files, node)
        self._hard_state = _checked_hard_state(files, node)
        self._store = EntryStore.open(files, node.directory, node.sizes, node.codec, _refuse_damaged_tail)
        try:
            self.plan = self._plan()
        except BaseException:
            self._store.abandon()
            raise

    def __enter__(self) -> Self:
        """Return the recovery itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Unlock the directory."""
        self._store.abandon()

    def _plan(self) -> RecoveryPlan:
        node, store = self._node, self._store
        entries = MembershipFile(self._files, f"{node.directory}/{MEMBERSHIP_NAME}").load()
        if entries is None:
            raise NotRecoverable(node.directory, "memberships", "none", "No node of a group ran here")
        membership = drop_unheld(entries, store)[-1].membership
        if membership.group_id == NO_GROUP:
            advice = "The group never had a leader: start all of its nodes"
            raise NotRecoverable(node.directory, "a group with an id", "none", advice)
        if membership.voters == (node.node_id,):
            advice = "It needs no recovery: start it"
            raise NotRecoverable(node.directory, "a group of more voters than this node", "this node alone", advice)
        own = membership.get(node.node_id)
        return RecoveryPlan(
            membership.group_id,
            membership,
            own is not None and own.is_voter and own.incarnation == self._hard_state.incarnation,
            max(self._hard_state.term, store.last_term),
            store.begin_index,
            store.last_index,
            store.last_term,
            min(store.recovered_checkpoint.committed_index, store.last_index),
            self._last_time_ms(),
        )

    def _last_time_ms(self) -> int:
        store = self._store
        for index in range(store.last_index, max(store.begin_index, store.last_index - _LOOKED_AT_MAX) - 1, -1):
            time_ms = store_time_of(store.get(index))
            if time_ms is not None:
                return time_ms
        return UNKNOWN_TIME

    def apply(self, typed_group_id: str, *, draw: Callable[[int, int], int], codec: EntryCodec, now_ms: int) -> int:
        """Make the new group; return its id. The old directory is kept under the name `kept_path`.

        Args:
            typed_group_id: id of the group that lost its majority, as an operator typed it.
            draw: returns a random number in a half-open range.
            codec: makes the entry with the new membership.
            now_ms: the wall clock, in milliseconds since 1970.

        Raises:
            NotRecoverable: the id is not that of this group.
            store.errors.StoreError: the disk is full, or a file cannot be written; run the recovery again.
        """
        plan, node = self.plan, self._node
        if typed_group_id != f"{plan.group_id:016x}":
            advice = "Type the id that the plan shows"
            raise NotRecoverable(node.directory, f"group id {plan.group_id:016x}", typed_group_id, advice)
        group_id = draw(1, GROUP_ID_END)
        membership = Membership((Member(node.node_id, node.address),), group_id)
        record = _record_of(plan, group_id, now_ms)
        new = NewDirectory(node.directory + _STAGING, node.node_id, node.group, membership, RECORD_NAME, record)
        remove_tree(self._files, new.path)
        complete(self._files, new, self._copied(new.path, group_id), codec=codec, term=plan.term + 1, draw=draw)
        self._files.rename(node.directory, kept_path(node.directory, plan.group_id))
        finish_begun(self._files, node.directory)
        return group_id

    def _copied(self, path: str, group_id: int) -> EntryStore:
        """Return a new log with all entries, open, beside copies of the other files that belong to it."""
        source = self._store
        files, head = self._files, source.head
        copied = EntryStore.open(files, path, self._node.sizes, source.codec)
        try:
            if head.begin_index or head.begin_position:
                copied.reset(head.begin_index, head.begin_position, head.prev_term, head.prev_chain_crc)
            copy = LogCopy(copied, group_id, path)
            while copied.last_index < source.last_index:
                span = source.fit(copied.last_index + 1, source.last_index, _READ_SIZE_BYTES)
                copy.write(source.read_entries(span.first_index, span.last_index))
            self._copy_files(path)
        except BaseException:
            copied.abandon()
            raise
        return copied

    def _copy_files(self, path: str) -> None:
        """Copy the snapshots, and the manifest of the files before the log."""
        directory = self._node.directory
        snapshots = [f"{_SNAPSHOTS}/{name}" for name in self._files.list_directory(f"{directory}/{_SNAPSHOTS}")]
        complete_ones = [name for name in snapshots if name.rpartition("/")[2].isdecimal()]
        if complete_ones:
            self._files.make_directory(f"{path}/{_SNAPSHOTS}")
        for name in (*complete_ones, MANIFEST_NAME):
            content = self._files.read_bytes(f"{directory}/{name}")
            if content is not None:
                self._files.create_from(f"{path}/{name}", [content])


def kept_path(directory: str, group_id: int) -> str:
    """Return the name under which the directory of the old group is kept."""
    return f"{directory}.before-recovery-{group_id:016x}"


def finish_begun(files: Files, directory: str) -> bool:
    """Finish a recovery that was interrupted after the old directory was renamed; return whether there was one."""
    if files.exists(directory) or not files.exists(f"{directory}{_STAGING}/{RECORD_NAME}"):
        return False
    files.rename(directory + _STAGING, directory)
    files.sync_directory(directory.rpartition("/")[0])
    return True


def _check_identity(files: Files, node: SurvivingNode) -> None:
    path = node.directory
    if IdentityFile.check(files, path, node.node_id, node.group).read() is None:
        raise NotRecoverable(path, "the directory of a node", "none", "Check self_id and store_base_dir")


def _checked_hard_state(files: Files, node: SurvivingNode) -> HardState:
    file = HardStateFile(files, f"{node.directory}/{HARD_STATE_NAME}")
    saved = file.load()
    if saved.is_founding or not file.exists:
        advice = "Its disk was empty, and it has met no leader since: choose another node"
        raise NotRecoverable(node.directory, "a node that took part in its group", "a founding one", advice)
    return saved


def _refuse_damaged_tail(damage: DamagedTail) -> str:
    raise damage.refusal(
        ". This may be the only copy of that entry. To continue without it, start the node once, which cuts it, stop "
        "it, and recover then"
    )


def _record_of(plan: RecoveryPlan, group_id: int, now_ms: int) -> dict[str, str]:
    return {
        "groupId": f"{group_id:016x}",
        "lostGroupId": f"{plan.group_id:016x}",
        "lostMembers": ",".join(f"{each.id}-{each.address}" for each in plan.membership.members),
        "recoveredMs": str(now_ms),
        "lastIndex": str(plan.last_index),
        "lastTerm": str(plan.last_term),
        "committedIndex": str(plan.committed_index),
        "uncertainEntries": str(plan.uncertain),
        "lastTimeMs": str(plan.last_time_ms),
    }

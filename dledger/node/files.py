"""All files of one node, opened, read and closed together."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entries.log_head import LogHeadFile, note_beginning
from dledger.entries.membership_file import FILE_NAME as MEMBERSHIP_NAME
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.node.lost_vote import VoteGivenUp, restore_vote
from dledger.node.persistent_state import PersistentState, SavedMemberships, has_state
from dledger.storage.hard_state import FILE_NAME as HARD_STATE_NAME
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.storage.peer_directories import PeerDirectories
from dledger.storage.snapshot_store import SnapshotStore
from dledger.types import NO_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from store.fs.ports import Files

_NEWEST_FILES_COUNT = 3


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of a node.

    Attributes:
        directory: their directory.
        store: the recovered log, which holds the directory's lock.
        hard_state: term and vote.
        memberships: the file of memberships.
        persistent: the persistent state, from the last two.
        snapshots: of the state machine; None without one.
        peer_directories: the directory's identity, and those of the peers' directories.
        last_written_s: when the log was written last before it was opened: seconds since 1970; None: not known.
    """

    directory: str
    store: EntryStore
    hard_state: HardStateFile
    memberships: SavedMemberships
    persistent: PersistentState
    snapshots: SnapshotStore | None
    peer_directories: PeerDirectories
    last_written_s: float | None

    @classmethod
    def open(
        cls,
        files: Files,
        config: NodeConfig,
        draw: Callable[[int, int], int],
        *,
        has_state_machine: bool,
        codec: EntryCodec = RAW_ENTRY_CODEC,
    ) -> Self:
        """Lock, recover and read everything.

        Args:
            files: the file system.
            config: identity, sizes, and the members of the group.
            draw: random numbers for the ids of directory and life, and for the new incarnation after a damaged tail.
            has_state_machine: the node has snapshots.
            codec: of the entries.

        Raises:
            dledger.storage.identity.WrongDirectory: the directory is another node's, or of an unknown node.
            store.errors.StoreError: the directory is locked, damaged or full.
            dledger.storage.membership_codec.MembershipUnreadable: the saved membership cannot be read.
        """
        directory = f"{config.store_base_dir}/dledger-{config.self_id}"
        sizes = EntryStoreConfig(
            config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index, config.is_flush_sync
        )
        identity_file = IdentityFile.check(files, directory, config.self_id, config.group)
        HardStateFile(files, f"{directory}/{HARD_STATE_NAME}").load()  # refused before anything is changed
        MembershipFile(files, f"{directory}/{MEMBERSHIP_NAME}").load()
        with ExitStack() as on_failure:
            settings = config.membership()
            give_up = VoteGivenUp(files, directory, self_id=config.self_id, settings=settings, draw=draw)
            last_written_s = _last_written_s(files, directory)
            store = EntryStore.open(files, directory, sizes, codec, give_up)
            on_failure.callback(store.abandon)
            hard_state = HardStateFile.open(files, directory)
            membership_file = MembershipFile.open(files, directory)
            identity = identity_file.begin(
                config.self_id,
                config.group,
                has_state=has_state(store, hard_state, membership_file),
                is_adopting=config.is_adopting,
                draw=draw,
            )
            note_beginning(LogHeadFile.open(files, directory), store.head)
            restore_vote(files, directory, config.self_id, hard_state, membership_file)
            memberships = SavedMemberships(membership_file)
            persistent = memberships.load(store, hard_state, settings)
            snapshots = SnapshotStore.open(files, directory) if has_state_machine else None
            if snapshots is not None:
                on_failure.callback(snapshots.close)
            peer_directories = PeerDirectories.open(files, directory, identity)
            on_failure.pop_all()
        peer_directories.learn(persistent.memberships)
        return cls(directory, store, hard_state, memberships, persistent, snapshots, peer_directories, last_written_s)

    def close(self, *, is_clean: bool, committed_index: int = NO_INDEX) -> None:
        """Close all files.

        Args:
            is_clean: make the log durable first; False: leave the files as they are.
            committed_index: all entries up to this one are committed.

        Raises:
            store.errors.StorageFailed: the last sync failed.
        """
        if self.snapshots is not None:
            self.snapshots.close()
        if is_clean:
            self.store.close(committed_index)
        else:
            self.store.abandon()


def _last_written_s(files: Files, directory: str) -> float | None:
    """Return the time of the last write to the log; call it before recovery, which may write. None: no log."""
    data = f"{directory}/data"
    names = files.list_directory(data) if files.exists(data) else []
    # The last one or two may be preallocated and empty.
    newest = [f"{data}/{name}" for name in names if name.isdecimal()][-_NEWEST_FILES_COUNT:]
    return max((files.modified_time(path) for path in newest), default=None)

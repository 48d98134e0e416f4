"""All files of one node: opened together, read together, closed together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from dledger.config import NodeConfig
from dledger.entry_codec import RAW_ENTRY_CODEC, EntryCodec
from dledger.entry_store import EntryStore, EntryStoreConfig
from dledger.hard_state import HardStateFile
from dledger.membership_file import MembershipFile
from dledger.snapshot_store import SnapshotStore
from dledger.standing import MembershipKeeper, Standing
from dledger.types import NO_INDEX
from dledger.voice import VoiceGivenUp
from store.files import Files


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """What a node keeps on its disk.

    Attributes:
        directory: where.
        store: the log, recovered; it holds the lock.
        hard_state: term and vote.
        keeper: memberships.
        standing: what the last two said.
        snapshots: of the state machine; None without one.
    """

    directory: str
    store: EntryStore
    hard_state: HardStateFile
    keeper: MembershipKeeper
    standing: Standing
    snapshots: SnapshotStore | None

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
        """Lock, recover and read everything; `draw` gives the incarnation that a damaged tail costs (`dledger.voice`).

        Raises:
            store.errors.StoreError: the directory is locked, damaged or full.
            dledger.membership_codec.MembershipUnreadable: who belongs to the group cannot be read.
        """
        directory = f"{config.store_base_dir}/dledger-{config.self_id}"
        sizes = EntryStoreConfig(config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index)
        with ExitStack() as on_failure:
            give_up = VoiceGivenUp(
                files,
                directory,
                self_id=config.self_id,
                settings=config.membership(),
                draw=draw,
            )
            store = EntryStore.open(files, directory, sizes, codec, give_up)
            on_failure.callback(store.abandon)
            hard_state = HardStateFile.open(files, directory)
            keeper = MembershipKeeper(MembershipFile.open(files, directory))
            standing = keeper.load(store, hard_state, config.membership())
            snapshots = SnapshotStore.open(files, directory) if has_state_machine else None
            on_failure.pop_all()
        return cls(directory, store, hard_state, keeper, standing, snapshots)

    def close(self, *, is_clean: bool, committed_index: int = NO_INDEX) -> None:
        """Give everything back.

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

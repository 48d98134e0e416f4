"""A machine of a script: a persistent disk and clock, and the nodes that run on it one after the other."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from dledger.core.config import RaftConfig
from dledger.core.state.consensus import LIFE_END
from dledger.errors import DLedgerError
from dledger.testing.disk.disk import SECTOR_SIZE_BYTES, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts
from dledger.testing.script.node import ScriptNode
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.events import Event
    from dledger.testing.disk.inode import Inode
    from dledger.testing.script.links import Links
    from dledger.testing.script.safety import Safety
    from dledger.testing.script.transcript import Transcript

# A wider range is not for a timeout but for an incarnation.
_TIMES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings from a script's first line; `snapshot_threshold` 0: the nodes have no state machine.

    `group_id` 0: drawn by the first leader.
    """

    node_ids: tuple[str, ...]
    raft: RaftConfig = field(default_factory=RaftConfig)
    data_file_size_bytes: int = 4096
    index_file_size_bytes: int = 1024
    snapshot_threshold: int = 0
    group_id: int = 1


@dataclass(frozen=True, slots=True)
class ScriptEnvironment:
    """The objects shared by all machines of a script."""

    settings: Settings
    transcript: Transcript
    links: Links
    checks: Safety


class ScriptMachine:
    """One machine.

    Attributes:
        id: of the machine and its node.
        node: the running node; None while it is down.
        now_ms: its clock.
        is_adopting: the operator declares, for the next start, that a directory without identity is this node's.
        is_sync_held: syncs begin but do not end.
        is_sync_failing: syncs fail.
        has_old_disk: the disk was replaced by a copy.
        disk: the simulated disk.
    """

    def __init__(self, environment: ScriptEnvironment, node_id: str, number: int) -> None:
        self.id = node_id
        self.node: ScriptNode | None = None
        self.now_ms = 0
        # Directories that a script writes before the start have no identity.
        self.is_adopting = True
        self.is_sync_held = False
        self.is_sync_failing = False
        self.has_old_disk = False
        self._copy: SimDisk | None = None
        self._environment = environment
        self._number = number
        self._incarnations_count = 0
        self._lives_count = 0
        self.wipe()

    def draw(self, begin: int, end: int) -> int:
        """Return a predictable number in [begin, end): node 1 has the shortest timeout.

        Reads of node 3 have the ids 3001001, 3001002 … in its first process, and 3002001 … in the next.
        """
        if end == LIFE_END:
            self._lives_count += 1
            return 1_000_000 * self._number + 1_000 * self._lives_count
        if end - begin > _TIMES_MAX:
            self._incarnations_count += 1
            return begin - 1 + 100 * self._number + self._incarnations_count
        return begin + (end - begin) * self._number // (len(self._environment.settings.node_ids) + 2)

    @property
    def files(self) -> SimFiles:
        """Return the disk's interface for a new process."""
        return SimFiles(self.disk, Random(0), FaultCounts())

    def start(self) -> None:
        """Start a node; the transcript records a refusal."""
        try:
            self.node = ScriptNode(self._environment, self, self.files)
            self.is_adopting = False
        except (DLedgerError, StoreError) as error:
            self._environment.transcript.add(self.id, f"does not start: {_short(error)}")

    def guard(self, work: Callable[[ScriptNode], None]) -> None:
        """Run an action of the node, if it runs; an error that must stop the node ends it."""
        if self.node is None:
            return
        try:
            work(self.node)
        except (DLedgerError, StoreError) as error:
            self._environment.transcript.add(self.id, f"stops: {_short(error)}")
            self.node = None

    def feed(self, event: Event) -> None:
        """Pass an event to the node, if it runs."""
        self.guard(lambda node: node.feed(event))

    def crash(self, torn_sectors: int | None) -> None:
        """End the node by a power cut; None: by kill -9, which keeps the page cache.

        In each file, the unsynced data in its first `torn_sectors` unsynced sectors survives (a disk writes whole
        sectors); unsynced names are lost.
        """
        self.node = None
        if torn_sectors is None:
            return
        for directory in self.disk.directories.values():
            directory.pending.clear()
            directory.cached = dict(directory.durable)
            for inode in directory.cached.values():
                _lose_unsynced(inode, torn_sectors)

    def keep_copy(self) -> None:
        """Keep a copy of the disk."""
        self._copy = deepcopy(self.disk)

    def put_copy(self) -> None:
        """Replace the disk by the kept copy."""
        assert self._copy is not None, self.id
        self.disk = deepcopy(self._copy)
        self.has_old_disk = True

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.node = None
        self.has_old_disk = False
        self.disk = SimDisk(Random(0), FaultCounts())


def _lose_unsynced(inode: Inode, torn_sectors: int) -> None:
    first = min((position for position, _ in inode.pending), default=0) // SECTOR_SIZE_BYTES
    end = (first + torn_sectors) * SECTOR_SIZE_BYTES
    for position, data in inode.pending:
        inode.put_durable(position, data[: max(0, end - position)])
    inode.pending.clear()
    inode.drop_clean_pages()


def _short(error: Exception) -> str:
    """Return the name of an error and its first sentence, with the file but not its folder."""
    return re.sub(r"/store/dledger-n\d+/", "", f"{type(error).__name__}: {str(error).partition('. ')[0]}")

"""A node of another group with the name of a node that is down: its operator started it on the wrong directory.

It runs the production code on its own disk and exchanges messages with the nodes of the run. Neither side may accept
the other: the foreign log, group id and term must not change, and no node of the run may adopt the foreign term.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.store import EntryStoreConfig
from dledger.testing.checks.all_checks import make_checks
from dledger.testing.clock import SimClock
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import Violation
from dledger.testing.machine.process import SimProcess
from dledger.testing.machine.wrong_directories import Foreign, put_foreign
from dledger.testing.work import WorkCounts
from dledger.types import Member, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.testing.world import World

_TRUE_PPM = 1_000_000
_ENTRIES_MAX = 20
_GROUP_ID_END = 1 << 60
# Far above every term that elections reach in a run, and within the bounds of terms.
_TERM_MIN = 100_000
_TERM_END = 1_000_000


class ForeignNode:
    """The machine of such a node; it runs from its construction on.

    Args:
        world: the shared state of the run.
        node_id: the name.
        random: determines its log and term.

    Attributes:
        process: the running node.
        sync_delay_us, clock, is_adopting: see `dledger.testing.world.MachinePort`.
    """

    def __init__(self, world: World, node_id: str, random: Random) -> None:
        self.sync_delay_us = 0
        self.is_adopting = False
        self.clock = SimClock(world.scheduler, _TRUE_PPM)
        options = replace(world.options, snapshot_threshold=0)
        disk = SimDisk(Random(random.random()), world.counts)
        files = SimFiles(disk, random, world.counts, self.clock)
        members = tuple(Member(founder) for founder in options.node_ids)
        bodies = [random.randbytes(8) for _ in range(random.randint(0, _ENTRIES_MAX))]
        self._foreign = Foreign(
            members, random.randrange(1, _GROUP_ID_END), random.randrange(_TERM_MIN, _TERM_END), bodies
        )
        sizes = EntryStoreConfig(options.data_file_size_bytes, options.index_file_size_bytes)
        codec = world.parts.make_message_codec() if options.is_message_log else RAW_ENTRY_CODEC
        put_foreign(files, node_id, sizes, self._foreign, codec)
        # Its own group has separate checks.
        apart = replace(world, options=options, checks=make_checks(options, {node_id: disk}), work=WorkCounts())
        self.process = SimProcess(apart, self, node_id, files, random)
        self.process.memberships.trust(self.process.raft.state.memberships[0])
        self.process.run()

    def died(self) -> None:
        """Fail the run: no crash of this process is planned."""
        raise AssertionError(self.process.node_id)

    def failed(self, error: Exception) -> None:
        """Fail the run: the disk of this process has no faults.

        Raises:
            Exception: `error`.
        """
        raise error

    def dismiss(self, others: Iterable[SimProcess]) -> None:
        """End the node.

        Args:
            others: the running nodes of the run.

        Raises:
            Violation: one side accepted the other.
        """
        raft, foreign = self.process.raft, self._foreign
        found = (raft.last_index, raft.term, raft.role is Role.LEADER, raft.state.committed_group_id)
        if found[:3] != (len(foreign.bodies), foreign.term, False) or found[3] not in (foreign.group_id, 0):
            raise Violation("foreign group", f"{self.process.node_id} of another group became {found}, was {foreign}")
        for process in others:
            if process.raft.term >= foreign.term:
                raise Violation("foreign group", f"{process.node_id} is in term {process.raft.term} of a foreign group")
        self.process.is_dead = True

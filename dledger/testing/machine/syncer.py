"""The syncer port of a simulated node: at the end of a sync its writes become durable, or it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.testing.faults import Fault
from store.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from dledger.entries.store import EntriesTicket
    from dledger.testing.disk.files import SimFiles, SyncedWrites
    from dledger.testing.world import MachinePort, World

# A sync that takes at least this long counts as stuck.
STUCK_US = 1_000_000


class SimSyncer:
    """`dledger.driver.driver.Syncer`, one sync at a time.

    Args:
        world, machine, files, random: of the process.
        on_synced: called after each successful sync.
        on_failed: called after a failed one.
    """

    def __init__(
        self,
        world: World,
        machine: MachinePort,
        files: SimFiles,
        random: Random,
        *,
        on_synced: Callable[[EntriesTicket], None],
        on_failed: Callable[[StorageFailed], None],
    ) -> None:
        self._world = world
        self._machine = machine
        self._files = files
        self._random = random
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._end_us = 0

    @property
    def is_stuck(self) -> bool:
        """Whether the running sync will take very long."""
        return self._end_us - self._world.scheduler.now_us > STUCK_US

    def start(self, ticket: EntriesTicket) -> None:
        """Start a sync for the driver."""
        covered: SyncedWrites = []
        self._files.open_sync = covered
        try:
            ticket.sync()
        finally:
            self._files.open_sync = None
        options = self._world.options
        delay_us = options.sync_min_us + int(self._random.random() * (options.sync_max_us - options.sync_min_us))
        extra_us = self._machine.sync_delay_us
        if extra_us:
            self._world.counts.add(Fault.SLOW_SYNC if extra_us < STUCK_US else Fault.STUCK_SYNC)
        self._end_us = self._world.scheduler.now_us + delay_us + extra_us
        self._world.scheduler.after(delay_us + extra_us, self._end, ticket, covered)

    def _end(self, ticket: EntriesTicket, covered: SyncedWrites) -> None:
        if self._files.crash_point.is_dead:
            return
        try:
            for path, inode, written_count in covered:
                self._files.sync(path, inode, written_count)
        except StorageFailed as error:
            self._on_failed(error)
        else:
            self._on_synced(ticket)

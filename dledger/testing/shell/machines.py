"""A simulated machine of a node: a persistent disk, clocks, and the processes that run on it one after the other.

Not here: the processes (`dledger.testing.shell.process`).
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from dledger.testing.clock import SimClock
from dledger.testing.disk.disk import UNLIMITED_BYTES, SimDisk
from dledger.testing.faults import SimulatedCrash, Violation
from dledger.testing.shell.options import ShellFault
from dledger.testing.shell.process import NodeProcess
from dledger.testing.shell.state import SAVE_PARTS
from dledger.testing.shell.world import config_of, names_directory
from store.errors import DiskFull, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.testing.shell.history import Life
    from dledger.testing.shell.world import ShellWorld

# With a state machine the disk is full enough for the deletion of old files, but not for the refusal of appends.
_OTHERS_RATIO = 0.87


class ShellMachine:
    """One node's machine.

    Args:
        world: shared by all machines.
        node_id: the node that runs here; its machine has the same name.
        number: of the machine, for its clock.
        on_down: called after the process has ended, for any reason.

    Attributes:
        process: the running one; None while it is down.
        disk, clock: outlive processes.
        sync_delay_us: additional duration of a sync at present.
        directory_fault: the damage to the disk, because of which the node may refuse to run; None: none, or repaired.
        is_refused: the node has stopped since, with the reason.
        is_held: it is kept down for now, whatever else is scheduled.
        is_quiet: programs around its node begin no further calls.
        apply_delay_us: additional time of the state machine for an entry at present.
        on_saving: called when the node begins to save a snapshot.
        lives_count: number of processes so far.
    """

    def __init__(self, world: ShellWorld, node_id: str, number: int, on_down: Callable[[ShellMachine], None]) -> None:
        options = world.options
        self.node_id = node_id
        self.process: NodeProcess | None = None
        self.sync_delay_us = 0
        self.directory_fault: str | None = None
        self.is_refused = False
        self.is_held = False
        self.is_quiet = False
        self.apply_delay_us = 0
        self.on_saving: Callable[[ShellMachine], None] = _ignore
        self.lives_count = 0
        self.disk = SimDisk(Random(f"{options.seed}/disk/{node_id}"), world.disk_counts)
        self.disk.others_ratio = 0.0 if options.state is None else _OTHERS_RATIO
        self.clock = SimClock(world.scheduler, options.clock_rates_ppm[number])
        self.config = config_of(world.options, node_id)
        self._world = world
        self._on_down = on_down
        self._random = Random(f"{options.seed}/machine/{node_id}")
        self._is_death_a_power_cut = False

    def sync_us(self) -> int:
        """Draw the present duration of a sync, in microseconds."""
        if self.sync_delay_us:
            self._world.tally.add(ShellFault.SLOW_SYNC)
        return 50 + int(self._random.random() * self._world.options.sync_max_us) + self.sync_delay_us

    def save_us(self) -> int:
        """Draw the present duration of a part of a save, without its disk operations, in microseconds."""
        state = self._world.options.state
        assert state is not None, "there is a state machine"
        return 1 + int(self._random.random() * state.save_max_us / SAVE_PARTS)

    def apply_us(self) -> int:
        """Return the present time of the state machine for an entry, in microseconds."""
        if self.apply_delay_us:
            self._world.tally.add(ShellFault.SLOW_APPLY)
        return self.apply_delay_us

    def boot(self) -> None:
        """Start a process if none runs."""
        if self.process is None:
            self._world.network.power_is_back(self.node_id)
            self.lives_count += 1
            self.process = NodeProcess(self._world, self, self.lives_count)

    def stop(self) -> None:
        """Request a clean stop of the process; it ends later."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End the process between two handles; the page cache is kept."""
        if self.process is not None:
            self._world.tally.add(ShellFault.KILLED)
            self._end_life("is killed")

    def cut_power(self) -> None:
        """End the process, if one runs, and lose all data that is not durable; its connections are not closed."""
        self._world.tally.add(ShellFault.POWER_CUT)
        self._world.network.power_lost(self.node_id)
        self._end_life("loses power")
        self.disk.cut_power()

    def arm(self, operations: int) -> None:
        """Kill the process in its `operations`-th operation on its disk from now on."""
        if self.process is not None:
            self._is_death_a_power_cut = self._world.options.is_flush_sync and self._random.random() < 0.5
            self.process.files.crash_point.arm(operations)

    def crashed(self) -> None:
        """Record that the process died at its crash point."""
        self._world.tally.add(ShellFault.CRASHED_IN_STEP)
        if self.process is not None and self.process.is_saving:
            self._world.tally.add(ShellFault.DIED_IN_SAVE)
        if self._is_death_a_power_cut:
            self._world.network.power_lost(self.node_id)
        self._end_life("dies in a step")
        if self._is_death_a_power_cut:
            self.disk.cut_power()

    def ended(self, error: BaseException | None) -> None:
        """Record that the process has ended by itself."""
        process = self.process
        assert process is not None, "a process ends that does not run"
        if isinstance(error, (StorageFailed, DiskFull)):
            self._world.tally.add(ShellFault.NODE_FAILED)
            self.is_refused = self.directory_fault is not None
        elif self.directory_fault is not None and names_directory(error, self.node_id):
            self._world.trace.note(self.node_id, "refuses %s: %s", self.directory_fault, error)
            self._world.tally.add(ShellFault.REFUSED_BY_NAME)
            self.is_refused = True
        elif error is not None and not isinstance(error, SimulatedCrash):
            violation = Violation("a node runs on a good disk", f"{self.node_id}: {type(error).__name__}: {error}")
            violation.__cause__ = error
            self._world.violate(violation)
        else:
            self._world.tally.add(ShellFault.STOPPED)
            left = [task for task in asyncio.all_tasks(process.loop) if not task.done()]
            if left:
                self._world.violate(Violation("a node that stops leaves nothing", f"{self.node_id}: {left}"))
        self._end_life("has ended")

    def replace_disk(self) -> None:
        """Replace the disk of a machine that is down by an empty one."""
        assert self.process is None, self.node_id
        self.disk.wipe()
        self.disk.write_fault.heal()
        self.disk.sync_fault.heal()
        self.directory_fault, self.is_refused = None, False

    @property
    def is_counted(self) -> bool:
        """Whether a process runs whose vote counts."""
        return self.life is not None and self.life.is_counted

    @property
    def life(self) -> Life | None:
        """The recorded state of the running process, after its node has started."""
        return None if self.process is None else self.process.life

    @property
    def is_leading(self) -> bool:
        """Whether a process runs that considers itself the leader."""
        return self.process is not None and self.process.node.is_leader

    @property
    def is_installing(self) -> bool:
        """Whether a process runs that is receiving a snapshot."""
        life = self.life
        return life is not None and life.node.is_running and life.install_term is not None

    def stop_calls(self) -> None:
        """Make the programs around the node begin no further calls."""
        self.is_quiet = True
        if self.process is not None and self.process.program is not None:
            self.process.program.is_stopping = True

    @property
    def links_count(self) -> int:
        """The number of connections of the process."""
        if self.process is None:
            return 0
        links = self.process.node._transport._links.values()  # noqa: SLF001 - a check looks inside
        return sum(len(link.connections()) for link in links)

    @property
    def has_met_any(self) -> bool:
        """Whether the process is connected to any other node."""
        return self.life is not None and any(map(self.life.has_met, self._others))

    @property
    def _others(self) -> list[str]:
        return [peer.id for peer in self.config.peers if peer.id != self.node_id]

    def pause(self, *, is_clock_stopped: bool) -> None:
        """Suspend the process, and optionally the monotonic clock."""
        if self.process is not None and not self.process.loop.is_paused:
            self._world.tally.add(ShellFault.CLOCK_STOPPED if is_clock_stopped else ShellFault.PAUSED)
            self._world.trace.note(self.node_id, "is paused")
            self.process.loop.pause()
            if is_clock_stopped:
                self.clock.stop()

    def resume(self) -> None:
        """Resume a paused process."""
        self.clock.resume()
        if self.process is not None and self.process.loop.is_paused:
            self._world.trace.note(self.node_id, "resumes")
            self.process.loop.resume()

    def heal(self) -> None:
        """Repair everything and start the process if it is down."""
        self.sync_delay_us = self.apply_delay_us = 0
        self.is_held = False
        self.disk.capacity_bytes = UNLIMITED_BYTES
        self.disk.write_fault.heal()
        self.disk.sync_fault.heal()
        if self.process is not None:
            self.process.files.crash_point.disarm()
        self.resume()
        self.boot()

    def _end_life(self, how: str) -> None:
        process, self.process = self.process, None
        self.clock.resume()
        if process is None:
            return
        self._world.trace.note(self.node_id, how)
        process.files.crash_point.is_dead = True
        if process.program is not None:
            process.program.died()
        process.saver.cut()
        self._world.left += process.loop.kill()
        self._world.network.process_ended(self.node_id)
        self._on_down(self)


def _ignore(_machine: ShellMachine) -> None:
    """Ignore the start of a save."""

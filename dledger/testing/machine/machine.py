"""A simulated machine: a persistent disk, and the processes that run on it one after the other."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from dledger.storage.identity import WrongDirectory
from dledger.testing.checks.all_checks import node_directory
from dledger.testing.checks.logs import ProcessEnd
from dledger.testing.clock import SimClock
from dledger.testing.disk.disk import UNLIMITED_BYTES, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import Fault, SimulatedCrash, Violation
from dledger.testing.machine.process import STARTING_ERRORS, SimProcess
from dledger.testing.options import NemesisOp
from store.errors import DiskFull, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.testing.machine.foreign_node import ForeignNode
    from dledger.testing.world import World

# Longer than any run, so that the sync ends only with the process.
STUCK_PERMANENTLY_US = 1 << 40


class SimMachine:
    """One node's machine.

    Args:
        world: shared by all machines.
        node_id: of the node on this machine.
        disk: its disk.
        on_down: called after the process has ended, for any reason.

    Attributes:
        process: the running node; None while it is down.
        sync_delay_us: additional duration of a sync at present.
        clock: its clocks; they outlive its processes.
        is_adopting: the operator declares that a directory without identity belongs to this node.
        foreign_node: a foreign node with this node's name, which runs while this node is down; usually None.
    """

    def __init__(self, world: World, node_id: str, disk: SimDisk, on_down: Callable[[SimMachine], None]) -> None:
        self.node_id = node_id
        self.disk = disk
        self.process: SimProcess | None = None
        self.sync_delay_us = 0
        self.is_adopting = False
        self.foreign_node: ForeignNode | None = None
        self.clock = SimClock(world.scheduler, world.options.clock_rates_ppm[world.options.all_ids.index(node_id)])
        self._world = world
        self._on_down = on_down
        self._random = Random(f"{world.options.seed}/machine/{node_id}")
        self._files: SimFiles | None = None
        self._is_death_a_power_cut = False
        self._process_end = ProcessEnd()

    @property
    def listener(self) -> SimProcess | None:
        """The process that receives this node's messages."""
        return self.process if self.foreign_node is None else self.foreign_node.process

    def boot(self, *, die_after: int = 0) -> None:
        """Start a process if none runs; `die_after` > 0: it dies in that file operation of its start.

        Raises:
            store.errors.StoreError: recovery refuses the files.
            Violation: the recovered state violates an invariant.
        """
        if self.process is not None or self.foreign_node is not None:
            return
        world = self._world
        is_damaged = world.checks.damage.is_damaged(self.node_id)
        self._files = SimFiles(self.disk, self._random, world.counts, self.clock)
        if die_after:
            self._files.crash_point.arm(die_after)
            self._is_death_a_power_cut = self._may_lose_power()
        try:
            process = SimProcess(world, self, self.node_id, self._files, self._random)
        except SimulatedCrash:
            world.counts.add(Fault.CRASH_IN_START)
            self._end_process(is_in_step=True, is_power_cut=self._is_death_a_power_cut)
            return
        except STARTING_ERRORS as error:
            self._cannot_start(error)
            return
        self._files.crash_point.disarm()
        world.trace.note(self.node_id, "is up: last index %d, term %d", process.store.last_index, process.raft.term)
        process_end = replace(self._process_end, is_damaged=is_damaged)
        has_lost = world.checks.log.recovered(self.node_id, process.store, process_end)
        if is_damaged and not world.checks.damage.came_back(self.node_id, process.raft, has_lost=has_lost):
            world.checks.log.forget_loss(self.node_id)
        if world.checks.damage.look_again(self.node_id):
            world.counts.add(Fault.DAMAGE_REPAIRED)
        self._process_end = ProcessEnd()
        self.is_adopting = False
        self.process = process
        world.network.started(self.node_id)
        process.run()

    def _cannot_start(self, error: Exception) -> None:
        """After a justified refusal to start (the disk is full, failing or damaged), retry later, after a repair.

        Raises:
            Exception: `error`, if the disk has no fault.
        """
        self._world.trace.note(self.node_id, "cannot start: %s", error)
        self._end_process(is_in_step=True, is_power_cut=False, is_lossy=isinstance(error, StorageFailed))
        self._repair(error)

    def failed(self, error: Exception) -> None:
        """Record that the process stopped because of a failed disk; some machines are then restarted.

        Raises:
            Exception: `error`, if the disk has no fault.
        """
        self._world.counts.add(Fault.NODE_FAILED)
        self._world.trace.note(self.node_id, "has stopped: %s", error)
        is_lossy = isinstance(error, StorageFailed)
        self._end_process(is_in_step=True, is_power_cut=self._may_lose_power(), is_lossy=is_lossy)
        self._repair(error)

    def _repair(self, error: Exception) -> None:
        """Repair a damaged disk from a copy, or replace it by an empty one, if the node found damage."""
        if isinstance(error, (DiskFull, StorageFailed)):
            return
        world = self._world
        if not world.checks.damage.is_damaged(self.node_id):
            raise error
        world.counts.add(Fault.DAMAGE_FOUND)
        world.checks.damage.repair(self.node_id)
        is_replaced = NemesisOp.WIPE in world.options.nemesis_ops and self._random.random() < 0.5
        if is_replaced and world.checks.damage.can_lose(self.node_id):
            self.wipe()

    def must_refuse(self) -> None:
        """Check that the node refuses to start on a directory that is not known to be its own.

        Raises:
            Violation: the node starts.
        """
        world = self._world
        files = SimFiles(self.disk, self._random, world.counts, self.clock)
        try:
            SimProcess(world, self, self.node_id, files, self._random)
        except WrongDirectory as error:
            world.counts.add(Fault.DIRECTORY_REFUSED)
            world.trace.note(self.node_id, "cannot start: %s", error)
            return
        raise Violation("identity", f"{self.node_id} starts on a directory that is not known to be its own")

    def wipe(self) -> None:
        """Replace the disk by an empty one; a running process dies."""
        world = self._world
        self.kill()
        world.counts.add(Fault.WIPED)
        world.trace.note(self.node_id, "has an empty disk")
        world.checks.damage.wipe(self.node_id)
        world.checks.log.wiped(self.node_id)
        world.checks.elections.wiped(self.node_id)
        world.network.wiped(self.node_id)
        self._process_end = ProcessEnd()

    def cut_head(self) -> None:
        """Kill the process and delete the oldest data file, as an operator may, if no node needs it."""
        process, checks = self.process, self._world.checks
        if process is None or process.is_paused or checks.damage.is_damaged(self.node_id):
            return
        found = checks.log.second_file(self.node_id)
        if found is None or found.index > min(process.retention_floor, process.raft.commit_index):
            return
        self.kill()
        self._world.counts.add(Fault.HEAD_CUT)
        self._world.trace.note(
            self.node_id, "has lost its first data file to another program; begins at %d", found.index
        )
        directory = node_directory(self.node_id)
        self.disk.forget(f"{directory}/data", found.position)
        # Without it, the node treats the files as lost.
        SimFiles(self.disk, self._random, self._world.counts, self.clock).replace(
            f"{directory}/begin-at.{found.position}", b""
        )
        checks.log.drop_head(self.node_id, found.index, found.position)

    def stop(self) -> None:
        """Stop the process cleanly."""
        process = self.process
        if process is None:
            return
        process.close()
        if self.process is not None:
            self._world.counts.add(Fault.CLEAN_STOP)
            self._end_process(is_in_step=False, is_power_cut=False)

    def kill(self) -> None:
        """End the process between two event batches; the page cache is kept."""
        if self.process is not None:
            self._world.counts.add(Fault.PROCESS_CRASH)
            self._end_process(is_in_step=False, is_power_cut=False)

    def cut_power(self) -> None:
        """End the process, if one runs, and lose all data that is not durable."""
        self._end_process(is_in_step=False, is_power_cut=True)

    def arm(self, operations: int) -> None:
        """Kill the process in its `operations`-th operation on disk or network from now on."""
        if self._files is not None and self.process is not None:
            self._is_death_a_power_cut = self._may_lose_power()
            self._files.crash_point.arm(operations)

    def died(self) -> None:
        """Record that the process died at its crash point."""
        self._world.counts.add(Fault.CRASH_IN_STEP)
        self._end_process(is_in_step=True, is_power_cut=self._is_death_a_power_cut)

    def pause(self, *, is_clock_stopped: bool = False) -> None:
        """Suspend the process with its pending events, and optionally its monotonic clock."""
        if self.process is not None and not self.process.is_paused:
            self._world.counts.add(Fault.CLOCK_STOPPED if is_clock_stopped else Fault.PAUSE)
            self._world.trace.note(self.node_id, "is paused")
            self.process.is_paused = True
            if is_clock_stopped:
                self.clock.stop()

    def resume(self) -> None:
        """Resume a paused process."""
        self.clock.resume()
        if self.process is not None and self.process.is_paused:
            self._world.trace.note(self.node_id, "resumes")
            self.process.resume()

    def set_clock(self, offset_us: int) -> None:
        """Set the time of day to the true one plus `offset_us`."""
        self.clock.set_wall(offset_us)
        if self.process is not None:
            self._world.counts.add(Fault.CLOCK_SET)

    def leave_dead(self) -> None:
        """Leave the machine dead or stalled for the rest of the run."""
        self._world.counts.add(Fault.LEFT_DEAD)
        self._world.trace.note(self.node_id, "stays dead or stalled")
        kind = self._random.randrange(3)
        if kind == 0:
            self.kill()
        elif kind == 1:
            self.pause()
        else:
            self.sync_delay_us = STUCK_PERMANENTLY_US

    def heal(self) -> None:
        """Repair everything and start the process if it is down; restart it if a sync hangs."""
        self.sync_delay_us = 0
        self.disk.capacity_bytes = UNLIMITED_BYTES
        self.disk.read_fault.heal()
        self.disk.write_fault.heal()
        self.disk.sync_fault.heal()
        if self._files is not None:
            self._files.crash_point.disarm()
        self.resume()
        is_stuck = self.process is not None and self.process.is_stuck
        if is_stuck:
            self.kill()
        damage = self._world.checks.damage
        if damage.is_damaged(self.node_id):
            # The node must start once on the damaged disk before the repair.
            self.kill()
            self.boot()
        if damage.is_damaged(self.node_id):
            self.kill()
            damage.repair(self.node_id)
        self.boot()

    def _may_lose_power(self) -> bool:
        return self._world.options.is_flush_sync and self._random.random() < 0.5

    def _end_process(self, *, is_in_step: bool, is_power_cut: bool, is_lossy: bool = False) -> None:
        world = self._world
        since = self._process_end
        self._process_end = ProcessEnd(since.is_in_step or is_in_step, since.is_lossy or is_power_cut or is_lossy)
        if self._files is not None:
            self._files.crash_point.is_dead = True
        self.clock.resume()
        world.checks.damage.changing.discard(self.node_id)
        was_up, self.process = self.process, None
        if was_up is not None:
            was_up.is_dead = True
        if is_power_cut:
            world.counts.add(Fault.POWER_CUT)
            self.disk.cut_power()
        world.trace.note(
            self.node_id, "is down%s%s", " in a step" if is_in_step else "", ", power cut" if is_power_cut else ""
        )
        self._on_down(self)

"""A simulated machine of a node: a disk that stays, clocks, and the processes that live on it one after the other.

A process is what `dledger.testing.shell` is for: the node as it ships (`dledger.node.node.Node`) with its services,
started and stopped as the command line does it.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import CollectorRegistry

from dledger.metrics import NodeMetrics
from dledger.node.host import NodeHost
from dledger.node.node import Node
from dledger.service.log import log_services
from dledger.testing.clock import SimClock
from dledger.testing.disk.disk import UNLIMITED_BYTES, SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import SimulatedCrash, Violation
from dledger.testing.shell.history import Life
from dledger.testing.shell.options import CLIENT_PORT, ShellFault
from dledger.testing.shell.program import StateProgram
from dledger.testing.shell.promises import PromiseWatch
from dledger.testing.shell.rpc.server import RpcServer
from dledger.testing.shell.sim_loop import SimLoop
from dledger.testing.shell.sim_worker import DiskTime, SimWorker
from dledger.testing.shell.state import SAVE_PARTS, ShellStateMachine, StateWork
from dledger.testing.shell.stepped_worker import SteppedCrashPoint, SteppedWorker
from dledger.testing.shell.world import config_of, names_directory
from store.errors import DiskFull, StorageFailed, StoreError
from store.fs.retention_rules import ClockReading

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc.aio

    from dledger.testing.shell.world import ShellWorld

_NOON_HOUR = 12
# Shorter than in production, as all is here.
_GRACE_S = 0.1
# With a state machine the disk is so full that old files are deleted, and not so full that appends are refused.
_OTHERS_RATIO = 0.87


class NodeProcess:
    """One life of a node, from its start to its end; it exists as long as something of it may run.

    Args:
        world: what the run shares.
        machine: where it lives.
        number: of this life, from 1.
    """

    def __init__(self, world: ShellWorld, machine: ShellMachine, number: int) -> None:
        options, self.node_id = world.options, machine.node_id
        self._world = world
        self._machine = machine
        self._random = Random(f"{options.seed}/life/{self.node_id}/{number}")
        self.files = SimFiles(machine.disk, self._random, world.disk_counts, machine.clock)
        self.loop = SimLoop(  # type: ignore[abstract]  # (a run uses no more of asyncio than there is)
            world.scheduler,
            machine.clock,
            world.network,
            self.node_id,
            random=self._random,
            turn_max_us=options.turn_max_us,
            on_error=self._on_error,
            is_crashed=self._is_crashed,
            after_step=self._after_step,
        )
        disk_time = DiskTime(self.loop, machine.sync_us)
        # Saves snapshots.
        self.saver = SteppedWorker(world.scheduler, self.loop, self._random)
        if options.state is not None:
            self.files.crash_point = SteppedCrashPoint(self.saver.operate)
        self.files.after_sync = lambda: self._synced(disk_time)
        host = NodeHost(
            now_s=self.loop.now_s,
            random=Random(f"{options.seed}/node/{self.node_id}/{number}"),
            new_worker=lambda name: (
                self.saver if name.startswith("snapshot") else SimWorker(world.scheduler, self.loop, disk_time)
            ),
            read_clocks=self._read_clocks,
        )
        metrics = NodeMetrics(CollectorRegistry(), machine.config.group, self.node_id)
        self.state = None if options.state is None else self._new_state(options.state.pieces_count)
        self.node = Node(machine.config, metrics, self.files, state_machine=self.state, host=host)
        self.life: Life | None = None
        self.program: StateProgram | None = None
        # Whether the job of `saver` saves a snapshot.
        self._has_begun_save = False
        self._stopping: asyncio.Future[None] = self.loop.create_future()
        self._main = self.loop.run(self._serve())

    async def _serve(self) -> None:
        """Run a node until it is stopped or fails."""
        node, server = self.node, RpcServer(self.loop)
        await node.start()
        self.life = Life(self.node_id, node, node.open())
        PromiseWatch(node, self._step_ms, lambda: int(self.loop.now_s() * 1000), self._world.violate)
        for served in log_services(node):
            served.add(served.servicer, cast("grpc.aio.Server", server))
        await server.start(self.node_id, CLIENT_PORT)
        self._world.trace.note(self.node_id, "is up: last index %d", self.life.store.last_index)
        run = self._run_program()
        ends: list[asyncio.Future[Any]] = [node.failed, self._stopping]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await server.stop(_GRACE_S)
        if self.program is not None:
            self.program.is_stopping = True
        await node.stop()
        if run is not None:
            await run
        if node.failed.done():
            raise node.failed.result()

    @property
    def is_saving(self) -> bool:
        """Whether a snapshot is being saved."""
        return self._has_begun_save and self.saver.is_busy

    def _synced(self, disk_time: DiskTime) -> None:
        if self.saver.is_moving:
            self.saver.take(self._machine.sync_us())
        else:
            disk_time.synced()

    def _new_state(self, pieces_count: int) -> ShellStateMachine:
        return ShellStateMachine(
            pieces_count=pieces_count,
            spend=self.loop.spend,
            delay_us=self._machine.apply_us,
            on_saving=self._saving,
            take_save_time=lambda: self.saver.take(self._machine.save_us()),
            on_loaded=self._loaded,
        )

    def _saving(self) -> None:
        self._has_begun_save = True
        self._world.states.add(StateWork.SNAPSHOT_SAVED)
        self._machine.on_saving(self._machine)

    def _loaded(self) -> None:
        is_install = self.life is not None
        self._world.states.add(StateWork.SNAPSHOT_INSTALLED if is_install else StateWork.SNAPSHOT_LOADED)

    def _run_program(self) -> asyncio.Task[None] | None:
        """Start the program around the node, and look for old files far more often than in production."""
        state = self._world.options.state
        if state is None:
            return None
        interval_s = state.retention_interval_us / 1e6

        def look() -> None:
            if self.node.is_running:
                retention = self.node._retention  # noqa: SLF001 - the only way to shorten the interval
                self.node._event_batches.soon(lambda _: retention.look())  # noqa: SLF001 - as above
                self.loop.call_later(interval_s, look)

        self.loop.call_later(interval_s, look)
        self.program = StateProgram(self._world, self.node, self._random)
        self.program.is_stopping = self._machine.is_quiet
        return self.loop.create_task(self.program.run())

    def stop(self) -> None:
        """Ask it to stop in good order (SIGTERM)."""
        self.loop.call_soon(self._ask_stop)

    def _ask_stop(self) -> None:
        if not self._stopping.done():
            self._stopping.set_result(None)

    def _step_ms(self) -> int:
        return self._machine.clock.now_us() // 1000

    def _read_clocks(self) -> ClockReading:
        return ClockReading(self._machine.clock.wall_us() / 1e6, self.loop.now_s(), _NOON_HOUR)

    def _is_crashed(self) -> bool:
        return self.files.crash_point.is_dead

    def _on_error(self, message: str, error: BaseException | None) -> None:
        self._world.on_error(self.node_id, message, error)

    def _after_step(self) -> None:
        if self._is_crashed():
            self._machine.crashed()
        elif self._main.done():
            self._machine.ended(None if self._main.cancelled() else self._main.exception())
        elif self.life is not None and self.node.is_running:
            # One that failed may be in the middle of a step: it is silent, whatever it believes. One that stops commits
            # what waits for its answer, and saves it in a snapshot, until it leaves its group and closes its store.
            try:
                self._world.history.look(self.life)
                if self.state is not None:
                    self._has_begun_save = self.is_saving
                    self._world.states.look(self.life, self.state)
            except Violation as violation:
                self._world.violate(violation)
            except StoreError as error:
                self._commits_unread(error)
        elif self.life is not None and self.node.failed.done():
            self._look_at_failed(self.life)

    def _look_at_failed(self, life: Life) -> None:
        """Take in what a node committed, and answered, in the step in which it failed."""
        try:
            self._world.history.look_at_commits(life)
        except Violation as violation:
            self._world.violate(violation)
        except StoreError as error:
            self._commits_unread(error)

    def _commits_unread(self, error: StoreError) -> None:
        """Note that what a node committed cannot be read: its disk changed it, or the check of the run fails."""
        if self._machine.hurt is None:
            self._on_error("the store cannot be read", error)
        self._world.history.commits_unread(self.node.commit_index)


class ShellMachine:
    """One node's machine.

    Args:
        world: what all machines share.
        node_id: the node that runs here; its machine has the same name.
        number: of the machine, for its clock.
        on_down: called when the process has ended, for any reason.

    Attributes:
        process: the running one; None while it is down.
        disk, clock: outlive processes.
        sync_delay_us: how much longer a sync takes now.
        hurt: what was done to the disk, so that the node need not run on it; None: nothing, or it was mended.
        is_refused: since then the node has stopped, and said why.
        is_held: it is kept down for now, whatever else is ordered.
        is_quiet: programs around its node begin nothing any more.
        apply_delay_us: how much longer the state machine takes for an entry now.
        on_saving: is called when the node begins to save a snapshot.
        lives_count: processes so far.
    """

    def __init__(self, world: ShellWorld, node_id: str, number: int, on_down: Callable[[ShellMachine], None]) -> None:
        options = world.options
        self.node_id = node_id
        self.process: NodeProcess | None = None
        self.sync_delay_us = 0
        self.hurt: str | None = None
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
        """Draw how long a sync takes now, in microseconds."""
        if self.sync_delay_us:
            self._world.tally.add(ShellFault.SLOW_SYNC)
        return 50 + int(self._random.random() * self._world.options.sync_max_us) + self.sync_delay_us

    def save_us(self) -> int:
        """Draw how long a part of a save takes now, besides its operations on the disk, in microseconds."""
        state = self._world.options.state
        assert state is not None, "there is a state machine"
        return 1 + int(self._random.random() * state.save_max_us / SAVE_PARTS)

    def apply_us(self) -> int:
        """Return the time that the state machine now takes for an entry, in microseconds."""
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
        """Ask the process to stop in good order; it ends when it has."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End the process between two handles; the page cache stays."""
        if self.process is not None:
            self._world.tally.add(ShellFault.KILLED)
            self._fall("is killed")

    def cut_power(self) -> None:
        """End the process, if one runs, and lose what was not durable; the network gets no word of it."""
        self._world.tally.add(ShellFault.POWER_CUT)
        self._world.network.power_lost(self.node_id)
        self._fall("loses power")
        self.disk.cut_power()

    def arm(self, operations: int) -> None:
        """Kill the process in its `operations`-th operation on its disk from now."""
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
        self._fall("dies in a step")
        if self._is_death_a_power_cut:
            self.disk.cut_power()

    def ended(self, error: BaseException | None) -> None:
        """Record that the process has ended by itself."""
        process = self.process
        assert process is not None, "a process ends that does not run"
        if isinstance(error, (StorageFailed, DiskFull)):
            self._world.tally.add(ShellFault.NODE_FAILED)
            self.is_refused = self.hurt is not None
        elif self.hurt is not None and names_directory(error, self.node_id):
            self._world.trace.note(self.node_id, "refuses %s: %s", self.hurt, error)
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
        self._fall("has ended")

    def replace_disk(self) -> None:
        """Replace the disk of a machine that is down by an empty one."""
        assert self.process is None, self.node_id
        self.disk.wipe()
        self.disk.write_fault.heal()
        self.disk.sync_fault.heal()
        self.hurt, self.is_refused = None, False

    @property
    def is_counted(self) -> bool:
        """Whether a process runs whose vote counts."""
        return self.life is not None and self.life.is_counted

    @property
    def life(self) -> Life | None:
        """What is known of the running process, once its node has begun."""
        return None if self.process is None else self.process.life

    @property
    def is_leading(self) -> bool:
        """Whether a process runs that leads, as far as it knows."""
        return self.process is not None and self.process.node.is_leader

    @property
    def is_installing(self) -> bool:
        """Whether a process runs that is receiving a snapshot."""
        life = self.life
        return life is not None and life.node.is_running and life.install_term is not None

    def quieten(self) -> None:
        """Let the programs around the node begin nothing any more."""
        self.is_quiet = True
        if self.process is not None and self.process.program is not None:
            self.process.program.is_stopping = True

    @property
    def links_count(self) -> int:
        """Connections that the process uses."""
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
        """Stop the process in its tracks, and perhaps the monotonic clock, too."""
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

    def _fall(self, how: str) -> None:
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
    """Do nothing when a snapshot is saved."""

"""One process of a simulated node: the production node, with its services and its program, on its own loop.

It is started and stopped like by the command line. Not here: its machine, and the faults that end it early
(`dledger.testing.shell.machines`).
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
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import Violation
from dledger.testing.shell.history import Life
from dledger.testing.shell.lease_watch import LeaseWatch
from dledger.testing.shell.loop.sim_loop import SimLoop
from dledger.testing.shell.loop.sim_worker import DiskTime, SimWorker
from dledger.testing.shell.loop.stepped_worker import SteppedCrashPoint, SteppedWorker
from dledger.testing.shell.options import CLIENT_PORT
from dledger.testing.shell.program import StateProgram
from dledger.testing.shell.rpc.server import RpcServer
from dledger.testing.shell.state import ShellStateMachine, StateWork
from store.errors import StoreError
from store.fs.retention_rules import ClockReading

if TYPE_CHECKING:
    import grpc.aio

    from dledger.testing.shell.machines import ShellMachine
    from dledger.testing.shell.world import ShellWorld

_NOON_HOUR = 12
# Shorter than in production, like all times here.
_GRACE_S = 0.1


class NodeProcess:
    """One process of a node, from its start to its end.

    Args:
        world: the shared state of the run.
        machine: on which it runs.
        number: of this process, from 1.
    """

    def __init__(self, world: ShellWorld, machine: ShellMachine, number: int) -> None:
        options, self.node_id = world.options, machine.node_id
        self._world = world
        self._machine = machine
        self._random = Random(f"{options.seed}/life/{self.node_id}/{number}")
        self.files = SimFiles(machine.disk, self._random, world.disk_counts, machine.clock)
        self.loop = SimLoop(  # type: ignore[abstract]  # (a run uses only the implemented part of asyncio)
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
        world = self._world
        LeaseWatch(node, self._step_ms, lambda: int(self.loop.now_s() * 1000), world.violate, world.lease_rounds)
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
        """Start the program around the node, and check for old files far more often than in production."""
        state = self._world.options.state
        if state is None:
            return None
        interval_s = state.retention_interval_us / 1e6

        def look() -> None:
            if self.node.is_running:
                retention = self.node._retention  # noqa: SLF001 - the only way to shorten the interval
                self.node._event_batches.soon(lambda _: retention.check())  # noqa: SLF001 - as above
                self.loop.call_later(interval_s, look)

        self.loop.call_later(interval_s, look)
        self.program = StateProgram(self._world, self.node, self._random)
        self.program.is_stopping = self._machine.is_quiet
        return self.loop.create_task(self.program.run())

    def stop(self) -> None:
        """Request a clean stop (SIGTERM)."""
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
            # A failed node may be in the middle of a step, and no longer sends. A stopping node still commits pending
            # appends, and may save them in a snapshot, until it leaves its group and closes its store.
            try:
                self._world.history.check(self.life)
                if self.state is not None:
                    self._has_begun_save = self.is_saving
                    self._world.states.check(self.life, self.state)
            except Violation as violation:
                self._world.violate(violation)
            except StoreError as error:
                self._commits_unread(error)
        elif self.life is not None and self.node.failed.done():
            self._look_at_failed(self.life)

    def _look_at_failed(self, life: Life) -> None:
        """Record the commits and answers of the step in which a node failed."""
        try:
            self._world.history.look_at_failed(life)
        except Violation as violation:
            self._world.violate(violation)
        except StoreError as error:
            self._commits_unread(error)

    def _commits_unread(self, error: StoreError) -> None:
        """Record that a node's committed entries cannot be read; without damage to its disk this fails the run."""
        if self._machine.directory_fault is None:
            self._on_error("the store cannot be read", error)
        self._world.history.commits_unread(self.node.commit_index)

"""One process of a simulated broker: the production replica, its leader tasks, and a program that puts messages.

Source of the parts around it: `dledger.testing.shell.process`.
"""

import asyncio
from dataclasses import replace
from random import Random

from prometheus_client import CollectorRegistry

from cluster.replica.replicated import ReplicatedConfig, ReplicatedReplica
from commitlog.record.system_records import MessageEntryCodec
from commitlog.replicated.commit_log import DLedgerCommitLogConfig
from dledger.metrics import NodeMetrics
from dledger.node.host import NodeHost
from dledger.testing.disk.files import SimFiles
from dledger.testing.shell.loop.sim_loop import SimLoop
from dledger.testing.shell.loop.sim_worker import DiskTime, SimWorker
from dledger.testing.shell.machines import ShellMachine
from store.fs.retention_rules import ClockReading
from store.model.config import MessageStoreConfig
from tests.support.brokers.base_log import bootstrap_alone

_NOON_HOUR = 12
# Small enough that a run writes several files of each kind, saves snapshots, and starts from them.
_STORE = MessageStoreConfig(
    mapped_file_size_consume_queue=20 * 64,
    max_hash_slot_num=16,
    max_index_num=64,
    access_message_in_memory_max_bytes=1 << 20,
    dispatch_size_bytes=8_192,
    flush_interval_consume_queue_ms=200,
    flush_consume_queue_thorough_interval_ms=1_000,
    checkpoint_interval_ms=700,
)
_SNAPSHOT_THRESHOLD = 40


class _NoThread:
    """No step of a job of this process is simulated one by one."""

    is_busy = False

    def cut(self):
        """Do nothing."""


class BrokerProcess:
    """One process of a node, from its start to its end; for `ShellMachine`.

    Args:
        world: the shared state of the run.
        machine: on which it runs.
        number: of this process, from 1.
        new_tasks: returns the coroutines that run beside the replica, given this process.

    Attributes:
        replica: None until it is open.
    """

    # Of raw logs: `ShellMachine` looks for them.
    life = program = None
    is_saving = False

    def __init__(self, world, machine, number, new_tasks):
        options, self.node_id = world.options, machine.node_id
        self.machine, self.replica, self.saver = machine, None, _NoThread()
        self.random = Random(f"{options.seed}/life/{self.node_id}/{number}")
        self._world, self._new_tasks = world, new_tasks
        self.files = SimFiles(machine.disk, self.random, world.disk_counts, machine.clock)
        self.loop = SimLoop(
            world.scheduler,
            machine.clock,
            world.network,
            self.node_id,
            random=self.random,
            turn_max_us=options.turn_max_us,
            on_error=lambda message, error: world.on_error(self.node_id, message, error),
            is_crashed=lambda: self.files.crash_point.is_dead,
            after_step=self._after_step,
        )
        disk_time = DiskTime(self.loop, machine.sync_us)
        self.files.after_sync = disk_time.synced
        self._host = NodeHost(
            now_s=self.loop.now_s,
            random=Random(f"{options.seed}/node/{self.node_id}/{number}"),
            new_worker=lambda _name: SimWorker(world.scheduler, self.loop, disk_time),
            read_clocks=lambda: ClockReading(machine.clock.wall_us() / 1e6, self.loop.now_s(), _NOON_HOUR),
        )
        self._stopping = self.loop.create_future()
        self._main = self.loop.run(self._serve())

    @property
    def node(self):
        """The node; it is asked for only after the process has begun to serve, or for `is_leader`."""
        return self if self.replica is None else self.replica.node

    # Of a node that is not open yet.
    is_leader = False

    def wall_ms(self):
        """Return the time of day of the machine, in milliseconds since 1970."""
        return self.machine.clock.wall_us() // 1_000

    async def _serve(self):
        node = replace(self.machine.config, snapshot_threshold=_SNAPSHOT_THRESHOLD)
        config = ReplicatedConfig(node, "broker-a", _STORE, DLedgerCommitLogConfig(4_096))
        bootstrap_alone(self.files, node, MessageEntryCodec(self.wall_ms))
        metrics = NodeMetrics(CollectorRegistry(), node.group, self.node_id)
        self.replica = ReplicatedReplica.open(self.files, config, metrics, host=self._host)
        await self._run_until_end(self.replica)
        await self.replica.stop()

    async def _run_until_end(self, replica):
        """Run until a stop is requested, or a part has failed."""
        await replica.start()
        tasks = [self.loop.create_task(each) for each in self._new_tasks(self)]
        ends = [replica.failure, self._stopping, *tasks]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            # None ends by itself: its error is that of the process.
            if task.done():
                task.result()
            task.cancel()

    def stop(self):
        """Request a clean stop (SIGTERM)."""
        self.loop.call_soon(lambda: None if self._stopping.done() else self._stopping.set_result(None))

    def _after_step(self):
        if self.files.crash_point.is_dead:
            self.machine.crashed()
        elif self._main.done():
            self.machine.ended(None if self._main.cancelled() else self._main.exception())


class BrokerMachine(ShellMachine):
    """A machine whose processes are brokers."""

    def __init__(self, world, node_id, number, on_down, new_tasks):
        super().__init__(world, node_id, number, on_down)
        self._new_tasks = new_tasks

    def boot(self):
        """Start a process if none runs."""
        if self.process is None:
            self._world.network.power_is_back(self.node_id)
            self.lives_count += 1
            self.process = BrokerProcess(self._world, self, self.lives_count, self._new_tasks)

"""Brokers of one Raft group in this process, over loopback: opened, started, stopped; for tests of all kinds."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client import CollectorRegistry

from cluster.local.node import choose_ports
from cluster.protocol.errors import RequestFailed, failure_of, reason_of_put
from cluster.replica.port import ReadMode
from cluster.replica.replicated import ReplicatedConfig, ReplicatedReplica
from commitlog.record.system_records import MessageEntryCodec
from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig
from dledger.core.state.roles import Leader
from dledger.core.transitions import waiting_time_ms
from dledger.driver.disk_watch import DiskWatch
from dledger.errors import DLedgerError
from dledger.metrics import NodeMetrics
from dledger.node.host import NodeHost
from store.errors import Certainty, StoreError
from store.fs.linux.files import OsFiles
from store.fs.retention_rules import ClockReading
from store.model.config import MessageStoreConfig
from store.model.message import Message, QueueKey
from tests.support.brokers.base_log import bootstrap_alone
from tests.support.waiting import PATIENCE_S, until

FILE_SIZE = 1 << 16
INDEX_FILE_SIZE = 32 << 12
STORE = MessageStoreConfig(
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
    flush_interval_consume_queue_ms=20,
    flush_consume_queue_thorough_interval_ms=40,
    checkpoint_interval_ms=20,
    clean_resource_interval_ms=50,
)
# Long time limits, so that a slow machine leaves no operation unfinished.
WAIT_ACK_MS = int(1000 * PATIENCE_S)
RAFT = RaftConfig(heart_beat_time_interval_ms=50, min_election_timeout_ms=300, max_election_timeout_ms=600)
# Election timeouts of a leader that must stay leader even if the machine stalls.
STEADY_MS = WAIT_ACK_MS


def free_port():
    return Address("127.0.0.1", choose_ports(1, None)[0])


class WallClock:
    """A clock whose wall time is set by the test; its monotonic time runs."""

    def __init__(self, wall_s=1_700_000_000.0):
        self.wall_s = wall_s

    def __call__(self):
        return ClockReading(self.wall_s, 0.0, 12)


def configs_in(root, count=3, store=STORE, **node_settings):
    """Return the settings of the nodes n0, n1, … of one group, each with its store in `root/<id>`."""
    peers = tuple(Peer(f"n{number}", free_port()) for number in range(count))
    settings = {
        "group": "test",
        "mapped_file_size_for_entry_data": FILE_SIZE,
        "mapped_file_size_for_entry_index": INDEX_FILE_SIZE,
        "checkpoint_interval_ms": 50,
        "max_wait_ack_time_ms": WAIT_ACK_MS,
        "raft": RAFT,
        **node_settings,
    }
    return [
        ReplicatedConfig(
            NodeConfig(
                self_id=peer.id,
                peers=peers,
                store_base_dir=str(root / peer.id),
                client_address=free_port(),
                **settings,
            ),
            broker="broker-a",
            store=store,
        )
        for peer in peers
    ]


class Group:
    """The nodes that are open now, by id; see `running_group`."""

    def __init__(self, configs, files=None, clocks=None):
        self.configs = {config.node.self_id: config for config in configs}
        self.open = {}
        self._files = files or {}
        self._clocks = clocks or WallClock()
        self._steady_blocks = 0

    def open_node(self, name):
        config = self.configs[name]
        metrics = NodeMetrics(CollectorRegistry(), config.node.group, name)
        files = self._files.get(name) or OsFiles()
        # No other node is contacted: the stores of a test's nodes are equal by default.
        bootstrap_alone(files, config.node, MessageEntryCodec(lambda: 0))
        replica = ReplicatedReplica.open(files, config, metrics, host=NodeHost(read_clocks=self._clocks))
        self.open[name] = replica
        return replica

    async def start(self, *names):
        for name in names or self.configs:
            await self.open_node(name).start()

    async def stop(self, *names):
        for name in names or list(self.open):
            await self.open.pop(name).stop()

    async def leader(self):
        """Wait for a replica that accepts puts, and return it."""
        serving = lambda: [each for each in self.open.values() if each.status().is_serving_puts]  # noqa: E731
        return (await until(serving, "a node takes puts"))[0]

    def name_of(self, replica):
        return next(name for name, each in self.open.items() if each is replica)

    async def followers(self):
        leader = await self.leader()
        return [each for each in self.open.values() if each is not leader]

    async def of_leader(self, ask, limit_s=PATIENCE_S):
        """Return (the leader, the result of `ask`); retry with the new leader after a change.

        A leader that has just lost its quorum still acts as leader. During the call no stall can depose it, which would
        leave requests with an unknown outcome.

        Args:
            ask: called with the leader; may raise if it has changed nothing.
            limit_s: seconds after which a refusal is raised.
        """
        deadline = asyncio.get_running_loop().time() + limit_s
        while True:
            try:
                async with self.steady_leader() as leader:
                    return leader, await ask(leader)
            except (DLedgerError, StoreError) as error:
                if not failure_of(error).is_worth_trying or asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(0.005)

    @asynccontextmanager
    async def steady_leader(self, name=""):
        """Yield the leader, or the named node, which stays leader during the block even if machine or disk stall."""
        while True:
            leader = await (self.lead(name) if name else self.leader())
            # No message is received between this check and the block.
            if self._is_followed_by_all(leader):
                break
            await asyncio.sleep(0.005)
        self._steady_blocks += 1
        self._set_election_timeouts(lambda _: (STEADY_MS, 2 * STEADY_MS))
        try:
            yield leader
        finally:
            self._steady_blocks -= 1
            if not self._steady_blocks:
                self._set_election_timeouts(lambda raft: (raft.min_election_timeout_ms, raft.max_election_timeout_ms))

    def _is_followed_by_all(self, leader):
        address = str(leader.node.config.client_address)
        statuses = [each.status() for each in self._running]
        return leader.status().is_serving_puts and {each.leader_address for each in statuses} == {address}

    def _set_election_timeouts(self, timeouts_of):
        for each in self._running:
            state = each.node._raft.state
            min_ms, max_ms = timeouts_of(each.node.config.raft)
            state.config = replace(state.config, min_election_timeout_ms=min_ms, max_election_timeout_ms=max_ms)
            if (driver := each.node._event_batches._driver) is not None:  # it has not stopped
                driver._disk = DiskWatch(max_ms)
            if not isinstance(state.role_state, Leader):
                state.role_state.deadline_ms = state.now_ms + waiting_time_ms(state.config, state.draw)

    @property
    def _running(self):
        return [each for each in self.open.values() if each._is_started and not each.failure.done()]

    async def put(self, *messages):
        """Put messages to the leader; return (the leader, their offsets)."""
        return await self.of_leader(lambda leader: put(leader, *messages))

    async def lead(self, name):
        """Make a node the leader, by leadership transfers, until it accepts puts."""
        replica, deadline = self.open[name], asyncio.get_running_loop().time() + PATIENCE_S
        while (leader := await self.leader()) is not replica:
            assert asyncio.get_running_loop().time() < deadline, f"{name} did not get the lead in time"
            await leader.node.transfer_leadership(name)
            await asyncio.sleep(0.005)
        return replica

    async def level(self):
        """Wait until all open nodes have applied and dispatched the whole log of the leader."""

        async def committed(leader):
            await leader.confirm(ReadMode.LINEARIZABLE)
            return leader.node.commit_index

        leader, index = await self.of_leader(committed)

        def is_level():
            return all(
                each.node.commit_index >= index
                and each.node.status().applied_index >= index
                and each.store.derived.dispatcher.offset >= each.parts.log.end_offset_of(index)
                for each in self.open.values()
            )

        await until(is_level)
        return leader

    async def durable(self):
        """Wait until all open nodes have dispatched the same messages, and queues and index are durable.

        The log may have no-ops of a new leader after the last message, which are in no queue.
        """
        await self.level()
        for each in self.open.values():
            derived = each.store.derived
            await until(lambda derived=derived: derived.durable_offset >= derived.queues.max_physical_offset)


@asynccontextmanager
async def running_group(configs, **options):
    """Yield a `Group` without running nodes; stop all running nodes at the end."""
    group = Group(configs, **options)
    try:
        yield group
    finally:
        for name in list(group.open):
            replica = group.open.pop(name)
            if not replica.failure.done():
                await replica.stop()


async def put(replica, *messages):
    """Put messages; return their offsets.

    Raises: cluster.protocol.errors.RequestFailed: the node refuses the messages; nothing was stored.
    """
    outcome = await replica.serving_puts().begin_put(messages)
    if outcome.certainty is Certainty.NOT_APPENDED:
        raise RequestFailed(reason_of_put(outcome.status), outcome.detail)
    assert outcome.certainty is Certainty.APPENDED, outcome
    return outcome.places


def numbered(numbers, topic="T", queue_id=0, size=300):
    """Return messages with their number in the body and one key each."""
    return [
        Message(topic, b"%d " % number + b"x" * size, queue_id=queue_id, properties={"KEYS": f"key-{number}"})
        for number in numbers
    ]


def read_queue(replica, topic="T", queue_id=0, begin=None):
    """Return (queue offset, first word of the body) for all messages of a queue."""
    store, found = replica.store, []
    offset = store.min_offset(topic, queue_id) if begin is None else begin
    while messages := store.get(topic, queue_id, offset, 1000).messages:
        found += [(each.queue_offset, each.body.split()[0]) for each in messages]
        offset = messages[-1].queue_offset + 1
    return found


def units_of(replica):
    """Return all units of all queues, by queue."""
    queues = replica.store.derived.queues
    found = {}
    for key in queues:
        queue = queues.get(key)
        found[QueueKey(*key)] = (queue.min_offset, queue.unit_tuples(queue.min_offset, queue.max_offset))
    return found

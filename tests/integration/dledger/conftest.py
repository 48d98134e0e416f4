"""Fixtures of the network tests: an event loop to run in, free ports, settings of a cluster, a bounded wait."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from prometheus_client import CollectorRegistry

from cluster.local.node import choose_ports
from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig
from dledger.errors import RequestRefused, ResponseCode
from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from tests.support import waiting
from tests.support.brokers.replicated import WAIT_ACK_MS

if TYPE_CHECKING:
    from dledger.node.state_machine import StateMachine
    from dledger.pending.appends import AppendResult
    from store.fs.ports import Files

_RETRIABLE = (
    ResponseCode.NOT_LEADER,
    ResponseCode.LEADER_TRANSFERRING,
    ResponseCode.LEADER_NOT_READY,
    ResponseCode.TERM_CHANGED,
)

Condition = Callable[[], object]


class Run(Protocol):
    def __call__(self, main: Coroutine[Any, Any, None]) -> None: ...


@pytest.fixture
def run() -> Run:
    """Run a coroutine on the event loop that a node uses, for some minutes at most."""
    return waiting.run


@pytest.fixture(autouse=True)
def patient_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not count a peer as silent that is only slow to greet: nodes of one process share its stalls."""
    monkeypatch.setattr("dledger.peer.connection.HELLO_TIMEOUT_S", waiting.PATIENCE_S)
    monkeypatch.setattr("dledger.peer.bootstrap._DIAL_TIMEOUT_S", waiting.PATIENCE_S)
    monkeypatch.setattr("dledger.peer.dialing.HANDSHAKE_TIMEOUT_S", waiting.PATIENCE_S)


@pytest.fixture
def eventually() -> Callable[[Condition], Coroutine[Any, Any, None]]:
    """Wait until a condition holds; fail after a minute."""
    return waiting.until


@pytest.fixture
def free_address() -> Callable[[], Address]:
    """Return loopback addresses without a listener, each only once."""
    return lambda: Address("127.0.0.1", choose_ports(1, None)[0])


@pytest.fixture
def configs(free_address: Callable[[], Address], tmp_path: Path) -> dict[str, NodeConfig]:
    """Return the settings of three nodes: small files, fast elections."""
    peers = tuple(Peer(f"n{number}", free_address()) for number in range(3))
    raft = RaftConfig(heart_beat_time_interval_ms=40, min_election_timeout_ms=200, max_election_timeout_ms=400)
    return {
        peer.id: NodeConfig(
            group="test",
            self_id=peer.id,
            peers=peers,
            store_base_dir=str(tmp_path),
            client_address=free_address(),
            mapped_file_size_for_entry_data=1 << 20,
            mapped_file_size_for_entry_index=32 << 12,
            max_wait_ack_time_ms=WAIT_ACK_MS,
            raft=raft,
        )
        for peer in peers
    }


class Cluster:
    """Three nodes that are started and stopped one by one; `nodes` holds those that run."""

    def __init__(
        self,
        configs: dict[str, NodeConfig],
        eventually: Callable[[Condition], Awaitable[None]],
        free_address: Callable[[], Address],
    ) -> None:
        self._free_address = free_address
        self.configs = configs
        self.eventually = eventually
        self.nodes: dict[str, Node] = {}
        self.registries: dict[str, CollectorRegistry] = {}
        self.machines: dict[str, StateMachine | None] = {}

    async def start(
        self,
        *node_ids: str,
        files: Files | None = None,
        make_machine: Callable[[], StateMachine] | None = None,
        **changes: Any,
    ) -> None:
        for node_id in node_ids or tuple(self.configs):
            config = replace(self.configs[node_id], **changes)
            registry = self.registries[node_id] = CollectorRegistry()
            machine = self.machines[node_id] = make_machine() if make_machine else None
            node = Node(config, NodeMetrics(registry, config.group, node_id), files, state_machine=machine)
            await node.start()
            self.nodes[node_id] = node

    async def stop(self, *node_ids: str) -> None:
        for node_id in node_ids or tuple(self.nodes):
            await self.nodes.pop(node_id).stop()

    def silence_others(self, node: Node) -> None:
        """Silence all other nodes at once; `stop` ends them.

        Stopping takes as long as their disks do, and `node` would give up the lead meanwhile.
        """
        for other in self.nodes.values():
            if other is not node:
                other.fail(RuntimeError("silenced by the test"))

    def invite(self, node_id: str) -> NodeConfig:
        """Return the settings of a node that joins; it is not started."""
        first = next(iter(self.configs.values()))
        peers = (*first.peers, Peer(node_id, self._free_address()))
        self.configs[node_id] = replace(
            first, self_id=node_id, peers=peers, client_address=self._free_address(), is_joining=True
        )
        return self.configs[node_id]

    def wipe(self, node_id: str) -> None:
        """Delete all files of a node that does not run."""
        assert node_id not in self.nodes
        shutil.rmtree(f"{self.configs[node_id].store_base_dir}/dledger-{node_id}")

    @property
    def leaders(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_leader]

    async def leader(self) -> Node:
        """Wait until one node leads, the others follow it, and the group is founded."""

        def is_settled() -> bool:
            ids = {node.leader().id for node in self.nodes.values()}
            return len(ids) == 1 and len(self.leaders) == 1 and self.leaders[0].commit_index >= 0

        await self.eventually(is_settled)
        return self.leaders[0]

    async def linked(self) -> None:
        """Wait until every node is connected to every other one that runs."""
        pairs = [(one, other) for one in self.nodes.values() for other in self.nodes if other != one.config.self_id]
        await self.eventually(lambda: all(one._transport.is_connected_to(other) for one, other in pairs))

    async def in_contact(self) -> Node:
        """Wait until the leader has an answer of every other running node, and counts it; return the leader.

        A node that knows the leader has not answered it yet.
        """
        leader = await self.leader()
        await self.eventually(lambda: all(peer.is_live and peer.is_counted for peer in leader.status().peers))
        return leader

    async def follower(self) -> Node:
        leader = await self.leader()
        return next(node for node in self.nodes.values() if node is not leader)

    async def append(self, *bodies: bytes) -> AppendResult:
        """Append through the leader until it is known to have succeeded; raises if the outcome is unknown."""
        while True:
            leader = await self.leader()
            result = await leader.append(list(bodies))
            if result.code is ResponseCode.SUCCESS:
                return result
            assert result.code in _RETRIABLE, result

    async def read_index(self, node: Node) -> int:
        """Return a read index of `node`: it is asked again when an election leaves it without a leader to ask."""
        while True:
            await self.leader()
            try:
                return await node.read_index()
            except RequestRefused as refused:
                if refused.code not in _RETRIABLE:
                    raise

    def bodies(self, node: Node, last_index: int) -> list[bytes]:
        """Return the clients' bodies in the log of `node` up to `last_index`."""
        cursor = node.reader.cursor(node.reader.at_index(node.status().begin_index, last_index))
        bodies = []
        while entries := cursor.read_entries(last_index):
            bodies += [entry.body for entry in entries if entry.magic == 1]
        return bodies


@pytest.fixture
def cluster(
    configs: dict[str, NodeConfig],
    eventually: Callable[[Condition], Awaitable[None]],
    free_address: Callable[[], Address],
) -> Cluster:
    """Return three nodes that are not started yet."""
    return Cluster(configs, eventually, free_address)

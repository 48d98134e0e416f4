"""A replicated dictionary: a state machine whose commands are JSON in the bodies of entries, and three nodes of it.

    {"op":"put","key":"a","value":1}                     the value that was there before
    {"op":"delete","key":"a"}                            the same
    {"op":"swap","key":"a","expected":1,"value":2}       whether it was done: only if the value was `expected`

Every node applies the same commands in the same order and so has the same dictionary. A command that makes no sense
is answered, not raised: an exception would stop every node, one after the other, at the same entry.

    python docs/examples/key_value.py

starts three nodes in this process, stops the leader, takes the disk of a node away, and shows what the dictionary
holds after each step.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from cluster.local.node import choose_ports
from dledger.config import Address, NodeConfig, Peer
from dledger.core.config import RaftConfig
from dledger.errors import ResponseCode, outcome_of
from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from dledger.pending.reads import RequestRefused
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.entries.format.entry import Entry

_CHUNK_KEYS = 1000


def put(key: str, value: Any) -> bytes:
    """Return the body that sets a key."""
    return _encode({"op": "put", "key": key, "value": value})


def delete(key: str) -> bytes:
    """Return the body that removes a key."""
    return _encode({"op": "delete", "key": key})


def swap(key: str, expected: Any, value: Any) -> bytes:
    """Return the body that sets a key if its value is `expected`; None means that the key does not exist."""
    return _encode({"op": "swap", "key": key, "expected": expected, "value": value})


class KeyValueMachine:
    """`dledger.node.state_machine.StateMachine`: a dictionary of JSON values."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """Return a value, None when there is none; linearizable, because it waits until the read index is applied."""
        return self._values.get(key)

    def apply(self, entries: Sequence[Entry]) -> list[Any]:
        """Run the commands."""
        return [self._run(entry.body) for entry in entries]

    def snapshot_save(self) -> Iterator[bytes]:
        """Yield the dictionary as lines of JSON, some keys in each."""
        items = list(self._values.items())
        for begin in range(0, len(items), _CHUNK_KEYS):
            yield _encode(dict(items[begin : begin + _CHUNK_KEYS])) + b"\n"

    def snapshot_load(self, content: bytes) -> None:
        """Take over the dictionary that `snapshot_save` wrote."""
        self._values = {}
        for line in content.splitlines():
            self._values.update(json.loads(line))

    def _run(self, body: bytes) -> Any:
        try:
            command = json.loads(body)
            operation, key = command["op"], command["key"]
            before = self._values.get(key)
            if operation == "delete":
                self._values.pop(key, None)
                return before
            if operation == "put":
                self._values[key] = command["value"]
                return before
            if operation == "swap":
                is_done = before == command["expected"]
                if is_done:
                    self._values[key] = command["value"]
                return is_done
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"no command: {error!r}"}
        return {"error": f"no operation {operation!r}"}


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


# ------------------------------------------------------------------------------------------- three nodes of it


class Replica:
    """One node with its copy of the dictionary."""

    def __init__(self, config: NodeConfig) -> None:
        self.machine = KeyValueMachine()
        metrics = NodeMetrics(CollectorRegistry(), config.group, config.self_id)
        self.node = Node(config, metrics, state_machine=self.machine)

    async def run(self, command: bytes) -> Any:
        """Have the group run a command; return its result (None if another leader saw to it). Only the leader can.

        Raises:
            RequestRefused: see the code; for a code whose outcome is unknown the command may have been run.
        """
        done = await self.node.append([command])
        if done.code is not ResponseCode.SUCCESS:
            raise RequestRefused(done.code, done.message)
        return done.results[0] if done.results else None

    async def get(self, key: str) -> Any:
        """Return a value as it is after every command that was answered before this call. Any node can.

        Raises:
            TimeoutError: no leader could be asked for ten seconds.
        """
        async with asyncio.timeout(10):
            while True:
                try:
                    await self.node.wait_applied(await self.node.read_index())
                except RequestRefused:  # no leader just now: a read can always be asked again
                    await asyncio.sleep(0.05)
                else:
                    return self.machine.get(key)


class Group:
    """Three replicas in one process; on three machines each would have its own."""

    def __init__(self, folder: Path) -> None:
        addresses = _free_addresses(6)
        peers = tuple(Peer(f"n{number}", addresses[number]) for number in range(3))
        raft = RaftConfig(heart_beat_time_interval_ms=50, min_election_timeout_ms=300, max_election_timeout_ms=600)
        self._configs = {
            peer.id: NodeConfig(
                group="dictionary",
                self_id=peer.id,
                peers=peers,
                store_base_dir=str(folder),
                client_address=addresses[3 + number],
                mapped_file_size_for_entry_data=4 << 20,
                mapped_file_size_for_entry_index=32 << 10,
                snapshot_threshold=20,
                raft=raft,
            )
            for number, peer in enumerate(peers)
        }
        self.replicas: dict[str, Replica] = {}

    async def start(self, *node_ids: str) -> None:
        """Start some nodes, or all."""
        for node_id in node_ids or tuple(self._configs):
            replica = Replica(self._configs[node_id])
            await replica.node.start()
            self.replicas[node_id] = replica

    async def stop(self, *node_ids: str) -> None:
        """Stop some nodes, or all that run."""
        for node_id in node_ids or tuple(self.replicas):
            await self.replicas.pop(node_id).node.stop()

    def wipe(self, node_id: str) -> None:
        """Take the disk of a stopped node away."""
        shutil.rmtree(f"{self._configs[node_id].store_base_dir}/dledger-{node_id}")

    async def leader(self) -> Replica:
        """Wait for a leader that all running nodes follow."""
        while True:
            ids = {replica.node.leader().id for replica in self.replicas.values()}
            if len(ids) == 1 and (leader := self.replicas.get(ids.pop())) is not None and leader.node.is_leader:
                return leader
            await asyncio.sleep(0.02)

    async def run(self, command: bytes) -> Any:
        """Run a command on the leader, with a retry if it was certainly not run; return its result.

        Raises:
            RequestRefused: the command may have been run, or not.
        """
        while True:
            try:
                return await (await self.leader()).run(command)
            except RequestRefused as refused:
                if outcome_of(refused.code) is not Certainty.NOT_APPENDED:
                    raise

    async def show(self, title: str) -> None:
        """Print what each running node answers, each as of now."""
        values = {
            node_id: {key: await replica.get(key) for key in ("colour", "count", "stock")}
            for node_id, replica in sorted(self.replicas.items())
        }
        print(title, *(f"  {node_id}  {json.dumps(value)}" for node_id, value in values.items()), sep="\n")


async def main() -> None:
    """Show a group through its days."""
    with tempfile.TemporaryDirectory(prefix="dictionary-") as folder:
        group = Group(Path(folder))
        await group.start()
        await group.run(put("colour", "blue"))
        for number in range(50):
            await group.run(put("count", number))
        was_done = [await group.run(swap("stock", expected, 7)) for expected in (1, None, None)]
        await group.show(f"Fifty-one puts, and a swap tried three times: {was_done}")

        stopped = (await group.leader()).node.config.self_id
        await group.stop(stopped)
        before = await group.run(put("colour", "green"))
        await group.show(f"{stopped} led and is stopped; another one leads; the colour was {before}")

        group.wipe(stopped)
        await group.start(stopped)
        await group.run(delete("count"))
        await group.show(f"{stopped} lost its disk, and is filled again; the count is deleted")
        await group.stop()


def _free_addresses(count: int) -> list[Address]:
    return [Address("127.0.0.1", port) for port in choose_ports(count, None)]


if __name__ == "__main__":
    asyncio.run(main())

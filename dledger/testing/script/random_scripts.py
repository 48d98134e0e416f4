"""Random scripts: verbs in random order, then a phase without faults in which the group must make progress.

Unlike in the simulator, each message may be delivered, dropped or delayed individually, clocks advance independently,
and all logs are compared entry by entry after every command. A failing run is printed as a script, to be minimised and
kept in a file.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from dledger.testing.faults import Violation
from dledger.testing.script.script import ScriptRunner
from dledger.testing.script.transcript import ScriptError
from dledger.types import Role

if TYPE_CHECKING:
    from dledger.testing.script.cluster import Cluster
    from dledger.testing.script.node import ScriptNode

# By then every node has recovered, and every wiped one was readmitted.
_QUIET_MS = 16_000
# The weight of each command. In braces: two nodes, times, an index, the effect of a crash, bodies.
_KINDS = {
    "run {time}": 22,
    "settle": 6,
    "settle {a} {b}": 6,
    "deliver": 8,
    "drop {a}->{b}": 4,
    "append {a} {bodies}": 12,
    "campaign {a}": 6,
    "tick {a} {time}": 4,
    "crash {a} {loss}": 4,
    "restart {a}": 8,
    "cut {a}": 1,
    "cut {a}-{b}": 0.5,
    "cut {a}->{b}": 0.5,
    "heal": 4,
    "transfer {a}->{b}": 2,
    "hold-sync {a}": 2,
    "sync {a}": 3,
    "add {a} {b}": 0.7,
    "promote {a} {b}": 0.7,
    "remove {a} {b}": 0.7,
    "join": 0.3,
    "wipe": 0.5,
    "delete-before {a} {index}": 1.5,
    "fill-disk {a}": 0.5,
    "free-disk {a}": 0.5,
    "read {a}": 0.5,
    "lease-read {a}": 0.5,
    "disconnect {a}->{b}": 1,
}
_TIMES_MS = (10, 50, 100, 300, 700, 1_500)
_BODY_SIZES = (10, 40, 100)
_LOSSES = ("keep", "lose-unsynced", "torn 1", "torn 2")
_INDEX_END = 40
# Of the commands of a script with old copies.
_COPY_SHARE = 0.1
_RESTORE_SHARE = 0.06


class RandomScript:
    """One random script.

    Args:
        seed: determines the script.
        length: commands before the phase without faults.
        has_old_copies: nodes are also restarted on old copies of their directories, while the group works without them.

    Attributes:
        commands: the commands so far.
    """

    def __init__(self, seed: int, length: int, *, has_old_copies: bool = False) -> None:
        self.commands: list[str] = []
        self._random = Random(f"wild/{seed}")
        self._length = length
        self._runner = ScriptRunner()
        self._nodes: list[int] = []
        self._body_count = 0
        self._has_joined = False
        self._has_wiped = False
        self._has_old_copies = has_old_copies
        # Last index and incarnation of each node when its directory was copied.
        self._copied: dict[int, tuple[int, int]] = {}

    @property
    def text(self) -> str:
        """The commands so far, as a script."""
        return "\n".join(
            ["# A random script", "# Source: dledger.testing.script.random_scripts", "", *self.commands, "----", ""]
        )

    def run(self) -> None:
        """Run the script to its end.

        Raises:
            Violation: an invariant is broken; `text` reproduces it.
        """
        random = self._random
        count = random.choice((3, 3, 4, 5))
        machine = random.choice(("", " snapshot_threshold=4 snapshot_chunk_size_bytes=30"))
        sizes = f"data_file_size_bytes={random.choice((512, 1024))} index_file_size_bytes=128"
        self._do(f"nodes {count} {sizes} max_push_window={random.choice((1, 4))}{machine}")
        self._nodes = list(range(1, count + 1))
        self._do("campaign 1")
        self._do("settle")
        for _ in range(self._length):
            self._step()
        self._stop_faults()
        self._check_life()

    # ------------------------------------------------------------------------------------------------------- chaos

    def _step(self) -> None:
        random = self._random
        kind = random.choices(tuple(_KINDS), weights=tuple(_KINDS.values()))[0]
        a, b = random.sample(self._nodes, 2)
        if self._has_old_copies:
            self._copy_or_restore(a)
        if kind == "deliver":
            self._deliver_one()
        elif kind == "join":
            self._join()
        elif kind == "wipe":
            self._wipe(a)
        elif not (self._has_wiped and kind.startswith("remove")):
            values = {"time": random.choice(_TIMES_MS), "loss": random.choice(_LOSSES), "bodies": self._bodies()}
            self._do(kind.format(a=a, b=b, index=random.randrange(_INDEX_END), **values))

    def _deliver_one(self) -> None:
        waiting = self._cluster.links.waiting()
        if waiting:
            envelope = self._random.choice(waiting)
            self._do(f"deliver {envelope.source[1:]}->{envelope.target[1:]} 1")

    def _bodies(self) -> str:
        self._body_count += 1
        count = self._random.choice((1, 1, 2, 4))
        return " ".join(f"v{self._body_count}.{number}/{self._random.choice(_BODY_SIZES)}" for number in range(count))

    def _join(self) -> None:
        if not self._has_joined:
            self._has_joined = True
            self._nodes.append(len(self._nodes) + 1)
            self._do(f"join {len(self._nodes)}")

    def _wipe(self, number: int) -> None:
        """Lose a disk while all others have all committed entries; from then on no node is removed.

        A group of three does not tolerate a lost disk and a removed node at the same time.
        """
        self._stop_faults()
        raft = self._leader().raft
        voters = [self._cluster.machines[voter].node for voter in raft.state.voters]
        commit_indexes = {None if node is None else node.raft.commit_index for node in voters}
        if len(voters) > 2 and len(raft.state.memberships) == 1 and commit_indexes == {raft.commit_index}:
            self._has_wiped = True
            self._do(f"wipe {number}")

    def _copy_or_restore(self, number: int) -> None:
        """Sometimes copy the directory of a running node, or put its copy in place."""
        node = self._cluster.machines[f"n{number}"].node
        choice = self._random.random()
        if choice < _COPY_SHARE and node is not None and not node.raft.state.is_founding:
            self._copied[number] = (node.raft.last_index, node.raft.state.incarnation)
            self._do(f"copy {number}")
        elif choice > 1 - _RESTORE_SHARE and number in self._copied:
            self._restore(number)

    def _restore(self, number: int) -> None:
        """Restart a follower on its copy, if the copy lacks entries that it has acknowledged to the present leader.

        Raises:
            Violation: it did not give up its vote.
        """
        self._stop_faults()
        leader, node_id = self._leader().raft, f"n{number}"
        state, (last_index, incarnation) = leader.state, self._copied[number]
        is_member = state.incarnations.get(node_id) == incarnation and node_id != state.self_id
        nodes = [self._cluster.machines[voter].node for voter in state.voters]
        is_quiet = {None if node is None else node.raft.commit_index for node in nodes} == {leader.commit_index}
        is_old = last_index < leader.match_index_of(node_id)
        if not (is_member and is_old and is_quiet and len(nodes) > 2 and len(state.memberships) == 1):
            return
        self._has_wiped = True
        for command in ("crash {} keep", "put-copy {}", "restart {}", "run 300"):
            self._do(command.format(number))
        node = self._cluster.machines[node_id].node
        if node is not None and node.raft.state.incarnation == incarnation:
            raise Violation("old copy", f"{node_id} has lost entries up to {leader.match_index_of(node_id)} and votes")

    # ------------------------------------------------------------------------------------------------------- peace

    def _stop_faults(self) -> None:
        for number in self._nodes:
            self._do(f"sync {number}")
            self._do(f"free-disk {number}")
            self._do(f"restart {number}")
        self._do("heal")
        self._do(f"run {_QUIET_MS}")

    def _check_life(self) -> None:
        """Check that without faults a leader is elected and replicates an entry to all members (invariant I14)."""
        leader = self._leader()
        before = leader.raft.commit_index
        self._do(f"append {leader.raft.state.self_id[1:]} last")
        self._do("run 3000")
        if leader.raft.commit_index <= before:
            raise Violation("liveness", "a leader commits nothing")
        for member in leader.raft.state.memberships[-1].membership.members:
            node = self._cluster.machines[member.id].node
            if node is None or node.raft.commit_index != leader.raft.commit_index:
                raise Violation("liveness", f"{member.id} does not catch up")

    def _leader(self) -> ScriptNode:
        for machine in self._cluster.machines.values():
            if machine.node is not None and machine.node.raft.role is Role.LEADER:
                return machine.node
        raise Violation("liveness", f"there is no leader after {_QUIET_MS} ms without faults")

    @property
    def _cluster(self) -> Cluster:
        assert self._runner.cluster is not None
        return self._runner.cluster

    def _do(self, command: str) -> None:
        """Run a command; one that is not valid now (starting a running node) is ignored."""
        self.commands.append(command)
        try:
            self._runner.do(command, frozenset())
        except ScriptError:
            self.commands.pop()
        stops = [line for line in self._cluster.transcript.take() if " stops: " in line]
        if stops:
            raise Violation("liveness", f"a node stopped that had no reason to: {stops[0]}")

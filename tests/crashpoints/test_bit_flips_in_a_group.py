"""One node of three starts with one changed byte: no acknowledged entry is lost, and the node is repaired.

The damaged node refuses to start, or stops when it reads the damage, or continues with intact entries; it never serves,
pushes or votes on the changed byte. A node that cannot continue is wiped: it is re-synced, readmitted and counted. The
short form tries a sample of bytes; `make bit-flips` tries every byte.
"""

import os
from collections import Counter

import pytest

from dledger.core.config import RaftConfig
from dledger.testing.script.cluster import Cluster
from dledger.testing.script.machine import Settings
from dledger.types import Role
from store.errors import CorruptData
from tests.crashpoints.images import killed

IS_LONG = os.environ.get("DLEDGER_BIT_FLIPS") == "long"
NODES = ("n1", "n2", "n3")
STRIDE = {"data": 1 if IS_LONG else 29, "index": 1 if IS_LONG else 29}
FILLER_STRIDE = 211
SETTINGS = Settings(
    NODES,
    RaftConfig(
        heart_beat_time_interval_ms=20,
        min_election_timeout_ms=60,
        max_election_timeout_ms=120,
        max_push_time_out_ms=60,
        preferred_leader_interval_ms=100,
    ),
    data_file_size_bytes=2048,
    index_file_size_bytes=256,
)
# Long enough for an election, and for two readmissions.
PATIENCE_MS = 1_500


class Group:
    """Three nodes on disks that may have data."""

    def __init__(self, disks=None):
        self.cluster = Cluster(SETTINGS)
        for node_id, disk in (disks or {}).items():
            self.cluster.machines[node_id].disk = killed(disk).disk
        self.count = 0
        self.cluster.begin()

    def machine(self, node_id):
        return self.cluster.machines[node_id]

    def run(self, until):
        """Advance time until a condition holds; return whether it holds."""
        machines = list(self.cluster.machines.values())
        for _ in range(0, PATIENCE_MS, 10):
            self.cluster.pass_time(machines, 10, lambda: self.cluster.settle(NODES))
            if until():
                self.cluster.check()
                return True
        return False

    def leader(self):
        """Return the leading node that others follow, with its no-op committed."""
        for machine in self.cluster.machines.values():
            node = machine.node
            if node is not None and node.raft.role is Role.LEADER:
                state = node.raft.state
                if state.commit_index >= state.leader.term_start_index:
                    return machine
        return None

    def append(self, *bodies):
        """Append entries and wait for the acknowledgements."""
        assert self.run(lambda: self.leader() is not None), "no leader"
        leader = self.leader()
        before = leader.node.store.last_index
        self.count += 1
        leader.guard(lambda node: node.append([(f"a{self.count}.{at}", body) for at, body in enumerate(bodies)]))
        wanted = before + len(bodies)
        assert self.run(lambda: leader.node is not None and leader.node.raft.commit_index >= wanted), "not committed"

    def are_equal(self):
        nodes = [machine.node for machine in self.cluster.machines.values()]
        if None in nodes or self.leader() is None:
            return False
        ends = {(node.store.last_index, node.raft.commit_index, node.raft.memberships) for node in nodes}
        return len(ends) == 1

    def are_ends_equal(self):
        nodes = [machine.node for machine in self.cluster.machines.values() if machine.node is not None]
        return len({node.store.last_index for node in nodes}) == 1

    def entries(self, node_id):
        store = self.machine(node_id).node.store
        return [store.get(index) for index in range(store.begin_index, store.last_index + 1)]


@pytest.fixture(scope="module", params=["all are equal", "n3 lags"])
def past(request):
    """Return three disks with acknowledged entries of two terms in three files, the entries, and the damaged nodes."""
    is_lagging = request.param == "n3 lags"
    group = Group()
    group.append(*(bytes([number]) * (60 * number) for number in range(1, 9)))
    group.append(b"x" * 900)
    group.machine("n1").crash(None)
    group.append(b"y" * 700, b"z" * 30)
    group.machine("n1").start()
    if is_lagging:
        group.machine("n3").crash(None)
    group.append(b"w" * 500)
    group.append(b"last")
    assert is_lagging or group.run(group.are_equal)
    for machine in group.cluster.machines.values():
        if machine.node is not None:
            machine.node.store.begin_checkpoint(machine.node.store.last_index - 2).save()
    entries = group.entries("n2")
    assert len({entry.term for entry in entries}) >= 2
    assert entries[-1].position > 2 * SETTINGS.data_file_size_bytes
    victims = NODES[:2] if is_lagging else NODES
    return {node_id: group.machine(node_id).disk for node_id in NODES}, entries, victims


def places(disk, kind):
    """Yield (directory, name, position, new byte)."""
    turn = 0
    for path, directory in sorted(disk.directories.items()):
        for name, inode in sorted(directory.cached.items()):
            if kind not in (name, path.rpartition("/")[2]):
                continue
            stride = STRIDE.get(kind, 1)
            used = len(inode.cache.rstrip(b"\0 "))
            for position in range(0, len(inode.cache), stride):
                if position < used or position % FILLER_STRIDE < stride:
                    byte = inode.cache[position]
                    values = sorted({byte ^ 1 << position % 8, 0, 0xFF} - {byte})
                    turn += 1
                    for value in values if IS_LONG else values[turn % len(values) :][:1]:
                        yield path, name, position, value


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data", "index", "currterm", "checkpoint", "membership"])
def test_nothing_acknowledged_is_lost_by_one_changed_byte_of_one_node(past, kind, capsys):
    disks, entries, victims = past
    counts = Counter()
    for number, node_id in enumerate(victims):
        for place in list(places(disks[node_id], kind))[number :: 1 if IS_LONG else len(victims)]:
            try:
                counts[try_damage(disks, entries, node_id, place)] += 1
            except Exception as error:
                raise AssertionError(f"{node_id} {place}: {type(error).__name__}: {error}") from error

    with capsys.disabled():
        print(f"\nchanged bytes of {kind} on one of three nodes, {counts.total()}: {dict(counts)}")
    assert counts.total() > 0


@pytest.mark.slow
@pytest.mark.parametrize("past", ["n3 lags"], indirect=True)
def test_leader_whose_disk_changes_a_byte_stops_before_it_pushes_it(past, capsys):
    disks, entries, _ = past
    counts = Counter()
    for place in places(disks["n1"], "data"):
        group = Group({node_id: disks[node_id] for node_id in ("n1", "n2")})
        group.machine("n3").node = None
        group.machine("n3").disk = killed(disks["n3"]).disk
        assert group.run(lambda group=group: group.leader() is not None)
        leader = group.leader()
        assert leader.id == "n1"
        flip(leader.disk, place)
        group.machine("n3").start()
        try:
            counts[repair(group, entries, "n1")] += 1
        except Exception as error:
            raise AssertionError(f"{place}: {type(error).__name__}: {error}") from error

    with capsys.disabled():
        print(f"\nchanged bytes of a leader while a follower catches up, {counts.total()}: {dict(counts)}")
    assert counts["stopped"] > 0


def flip(disk, place):
    path, name, position, value = place
    inode = disk.directories[path].cached[name]
    inode.cache[position] = inode.durable[position] = value


def try_damage(disks, entries, damaged_id, place):
    """Start three nodes, one of them damaged; return the outcome."""
    disks = {node_id: killed(disk).disk for node_id, disk in disks.items()}
    flip(disks[damaged_id], place)
    return repair(Group(disks), entries, damaged_id)


def repair(group, entries, damaged_id):
    """Continue with or without the damaged node; wipe it if necessary; check all entries, and that its vote counts."""
    damaged = group.machine(damaged_id)
    end = "was right" if damaged.node is not None else "did not start"
    group.append(b"after the damage")
    assert group.run(lambda: damaged.node is None or group.are_ends_equal())
    if end == "was right" and damaged.node is None:
        end = "stopped"
    if damaged.node is not None and not is_readable(damaged.node.store):
        end = "could not read an entry"
        damaged.node = None
    if damaged.node is None:
        damaged.wipe()
        damaged.start()
    assert group.run(group.are_equal), f"not equal: {end}"
    for node_id in NODES:
        assert group.entries(node_id)[: len(entries)] == entries, f"{node_id} lost entries"
    check_that_it_counts(group, damaged_id)
    return end


def is_readable(store):
    try:
        for index in range(store.begin_index, store.last_index + 1):
            store.get(index)
    except CorruptData:
        return False
    return True


def check_that_it_counts(group, repaired_id):
    """Without one of the others, the repaired node is needed for the majority."""
    other_id = next(node_id for node_id in NODES if node_id != repaired_id)
    group.machine(other_id).crash(None)
    group.append(b"with the repaired node")

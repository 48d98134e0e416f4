"""When a simulated disk may be damaged, and when the vote of a node that lost data counts again."""

from random import Random
from types import SimpleNamespace

import pytest

from dledger.testing.checks.damage import Damage
from dledger.testing.checks.logs import Copy
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, Violation
from dledger.types import NO_GROUP, Member, Membership, MembershipEntry


def members(count: int, **incarnations: int) -> Membership:
    return Membership(tuple(Member(f"n{n}", incarnation=incarnations.get(f"n{n}", 0)) for n in range(count)))


class Group:
    """Nodes with only the attributes that `Damage` reads."""

    def __init__(self, count: int) -> None:
        self.counts = FaultCounts()
        self.disks = {f"n{n}": SimDisk(Random(n), self.counts) for n in range(count)}
        self.damage = Damage(self.disks, tuple(self.disks))
        for node_id in self.disks:
            self.runs(node_id, members(count))

    def runs(self, node_id: str, *known: Membership, incarnation: int = 0) -> list[str]:
        memberships = [MembershipEntry(index, membership) for index, membership in enumerate(known)]
        state = SimpleNamespace(
            memberships=memberships,
            is_founding=False,
            incarnation=incarnation,
            committed_group_id=known[0].group_id,
            founding_group_id=NO_GROUP,
        )
        return self.damage.runs(node_id, SimpleNamespace(state=state))


@pytest.mark.parametrize(("count", "spared"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_any_minority_may_lose_its_disks_and_no_more(count, spared):
    group = Group(count)
    hit = 0
    for node_id in group.disks:
        if group.damage.can_lose(node_id):
            group.damage.wipe(node_id)
            hit += 1

    assert hit == spared


def test_every_membership_that_some_node_considers_in_force_bounds_the_damage():
    group = Group(5)
    group.runs("n4", members(5), members(2))

    assert not group.damage.can_lose("n0")


def test_nothing_is_damaged_while_the_members_change():
    group = Group(3)
    group.damage.changing.add("n0")

    assert not group.damage.can_lose("n1")


def test_node_that_lost_its_disk_counts_when_every_other_voter_knows_that_it_is_readmitted():
    group = Group(3)
    group.damage.wipe("n1")
    after = members(3, n1=77)

    assert group.runs("n1", members(3), incarnation=77) == []
    assert group.runs("n0", members(3), after) == []
    assert group.runs("n0", after) == []
    assert group.runs("n1", after, incarnation=77) == []
    assert group.damage.non_voting == ["n1"]
    assert group.runs("n2", after) == ["n1"]
    assert group.damage.non_voting == []


def test_node_that_lost_data_and_keeps_its_incarnation_is_a_violation():
    group = Group(3)
    group.runs("n1", members(3, n1=5), incarnation=5)
    group.damage.lose_vote("n1")

    with pytest.raises(Violation, match="n1 lost what it acknowledged"):
        group.runs("n1", members(3, n1=5), incarnation=5)


def test_misdirected_sector_can_be_repaired():
    group = Group(3)
    files = SimFiles(group.disks["n1"], Random(1), group.counts)
    files.make_directory("/store/data")
    for name, fill in (("a", b"a"), ("b", b"b")):
        file = files.create(f"/store/data/{name}", 1024)
        file.write(fill * 1024, 0)
        file.sync()
    files.sync_directory("/store/data")
    written = {name: bytes(inode.cache) for name, inode in group.disks["n1"].directories["/store/data"].cached.items()}

    paths = [group.damage.misdirect("n1", Random(seed), group.counts) for seed in range(20)]

    assert [path for path in paths if path] != []
    assert group.damage.is_damaged("n1")
    now = dict(group.disks["n1"].directories["/store/data"].cached)
    assert {name: bytes(inode.cache) for name, inode in now.items()} != written
    group.damage.repair("n1")
    assert {name: bytes(inode.cache) for name, inode in now.items()} == written


def test_lost_entries_are_remembered_as_they_were():
    records = [SimpleNamespace(index=index) for index in range(3, 6)]
    copy = Copy(3, records)

    assert [copy.holds(record) for record in records] == [True, True, True]
    assert copy.holds(SimpleNamespace(index=2))
    assert not copy.holds(SimpleNamespace(index=4))
    assert not copy.holds(SimpleNamespace(index=6))

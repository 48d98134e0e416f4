"""The handling of a damaged tail: the node gives up its vote if the group can restore it, else it refuses to start."""

from dataclasses import replace

import pytest

from dledger.entries.membership_file import MembershipFile
from dledger.node.lost_vote import VoteGivenUp
from dledger.storage.hard_state import HardStateFile
from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.types import HardState, Member, Membership, MembershipEntry
from store.errors import CorruptData

DIRECTORY = "/n0"
THREE = Membership((Member("n0"), Member("n1"), Member("n2")))
FOUNDED = (MembershipEntry(-1, THREE),)
SAVED = HardState(7, "n1", incarnation=5)
DRAWN = 99


class Node:
    """A node's files, with three entries of which the last is damaged."""

    def __init__(self, machine, memberships=FOUNDED):
        self.machine = machine
        self.files = machine.process()
        MembershipFile.open(self.files, DIRECTORY).save(memberships)
        self.hard_state = HardStateFile.open(self.files, DIRECTORY)
        self.hard_state.save(SAVED)
        *_, (self.begin, self.end) = machine.write_log([60, 300, 200])
        machine.patch_data(self.end - 100, b"\xff\x00")
        self.image = machine.data_image()

    def open(self, settings=THREE):
        draw = iter(range(DRAWN, DRAWN + 10))
        give_up = VoteGivenUp(
            self.machine.process(), DIRECTORY, self_id="n0", settings=settings, draw=lambda *_: next(draw)
        )
        return self.machine.open(give_up)

    def kept(self):
        return self.files.read_bytes(f"{DIRECTORY}/damaged.{self.begin:020d}")


def test_vote_is_given_up_before_the_tail_is_cut_and_the_bytes_are_kept(machine):
    node = Node(machine)

    store = node.open()

    assert store.last_index == 1
    assert node.hard_state.load() == replace(SAVED, incarnation=DRAWN)
    assert node.kept() == node.image[f"{0:020d}"][node.begin : node.end]
    assert "has no vote until the leader has sent it the missing entries" in store.recovery_notes[-1]


def test_a_crash_anywhere_leaves_the_damage_or_no_vote(machine):
    node = Node(machine)
    counts = {"before": 0, "after": 0}
    disk_before = machine.data_image()

    class Stop(Exception):
        pass

    class CrashAt:
        is_dead = False

        def __init__(self, count):
            self.count = count

        def reach(self):
            self.count -= 1
            if not self.count:
                raise Stop
            return False

    for operation in range(1, 60):
        machine.restore(disk_before)
        node.hard_state.save(SAVED)
        files = machine.process()
        files.crash_point = CrashAt(operation)
        give_up = VoteGivenUp(files, DIRECTORY, self_id="n0", settings=THREE, draw=lambda *_: DRAWN)
        try:
            machine.open(give_up, files).abandon()
        except Stop:
            is_cut = machine.data_image() != disk_before
            assert not is_cut or node.hard_state.load().incarnation == DRAWN, operation
            counts["after" if is_cut else "before"] += 1
            continue
        break
    assert min(counts.values()) > 0


@pytest.mark.parametrize("voters", [("n0",), ("n0", "n1")])
def test_without_a_majority_of_others_it_refuses_until_an_operator_discards_the_entry(machine, voters):
    members = Membership(tuple(Member(voter) for voter in voters))
    node = Node(machine, (MembershipEntry(-1, members),))

    with pytest.raises(CorruptData, match=rf"no majority.*create the empty file {DIRECTORY}/give-up.2 ") as failure:
        node.open()
    assert failure.value.position == node.begin
    assert machine.data_image() == node.image
    assert node.hard_state.load() == SAVED

    node.files.create_from(f"{DIRECTORY}/give-up.1", [])
    with pytest.raises(CorruptData):
        node.open()
    node.files.create_from(f"{DIRECTORY}/give-up.2", [])
    store = node.open()

    assert store.last_index == 1
    assert node.hard_state.load() == SAVED
    assert node.kept()
    assert not node.files.exists(f"{DIRECTORY}/give-up.2")


def test_membership_of_the_damaged_entry_does_not_count(machine):
    """The membership in force without the entry determines the nodes that could send it again."""
    alone = Membership((Member("n0"),))
    node = Node(machine, (MembershipEntry(-1, alone), MembershipEntry(2, THREE)))

    with pytest.raises(CorruptData, match="no majority"):
        node.open()


def test_node_that_is_founding_stays_founding(machine):
    node = Node(machine)
    founding = HardState(3, "n2", is_founding=True)
    node.hard_state.save(founding)

    assert node.open().last_index == 1
    assert node.hard_state.load() == founding


def test_node_that_lost_term_and_vote_already_has_no_vote(machine):
    node = Node(machine)
    node.files.remove(f"{DIRECTORY}/currterm")

    assert node.open().last_index == 1
    assert not node.hard_state.exists


def test_full_disk_does_not_prevent_giving_up_the_vote(machine):
    node = Node(machine)
    machine.disk.capacity_bytes = machine.disk.used_bytes

    assert node.open().last_index == 1
    assert node.kept() is None
    machine.disk.capacity_bytes = UNLIMITED_BYTES
    assert node.hard_state.load().incarnation == DRAWN

"""An operator restores a node's vote if no majority is left that could readmit it."""

from random import Random

import pytest

from dledger.config import Address, NodeConfig, Peer
from dledger.entries.membership_file import MembershipFile
from dledger.node.files import NodeFiles
from dledger.node.lost_vote import restore_vote
from dledger.storage.hard_state import HardStateFile
from dledger.testing.faults import SimulatedCrash
from dledger.types import HardState, Member, Membership, MembershipEntry
from store.fs.linux.files import OsFiles
from tests.unit.dledger.core.conftest import Group


@pytest.fixture
def directory(tmp_path):
    """Return the directory of a node that lost its tail: the group knows it by incarnation 5."""
    members = (Member("n0", incarnation=5), Member("n1"), Member("n2", is_voter=False))
    MembershipFile.open(OsFiles(), str(tmp_path)).save([MembershipEntry(3, Membership(members, 4711))])
    HardStateFile.open(OsFiles(), str(tmp_path)).save(HardState(7, "n1", incarnation=99))
    return tmp_path


def restore(directory, self_id="n0"):
    hard_state = HardStateFile.open(OsFiles(), str(directory))
    restore_vote(OsFiles(), str(directory), self_id, hard_state, MembershipFile.open(OsFiles(), str(directory)))
    return hard_state.load()


def test_permission_of_an_operator_restores_the_vote_once(directory):
    permission = directory / "restore-vote.99"
    permission.touch()

    assert restore(directory) == HardState(7, "n1", incarnation=5)
    assert not permission.exists()


def test_permission_survives_a_crash_before_the_vote_is_saved(directory, monkeypatch):
    permission = directory / "restore-vote.99"
    permission.touch()
    saves = []

    def die(_file, state):
        saves.append((state.incarnation, permission.exists()))
        raise SimulatedCrash

    monkeypatch.setattr(HardStateFile, "save", die)

    with pytest.raises(SimulatedCrash):
        restore(directory)

    assert saves == [(5, True)]


@pytest.mark.parametrize("name", ["restore-vote.98", "restore-vote", "give-up.99"])
def test_permission_for_another_incarnation_restores_nothing(directory, name):
    (directory / name).touch()

    assert restore(directory).incarnation == 99
    assert (directory / name).exists()


@pytest.mark.parametrize("self_id", ["n2", "n9"])
def test_candidate_that_is_no_voter_gets_no_vote(directory, self_id):
    (directory / "restore-vote.99").touch()

    assert restore(directory, self_id).incarnation == 99


def test_node_restores_its_vote_at_its_start(tmp_path):
    config = NodeConfig(
        self_id="n0",
        group="g",
        peers=(Peer("n0", Address("h", 1)), Peer("n1", Address("h", 2)), Peer("n2", Address("h", 3))),
        store_base_dir=str(tmp_path),
        client_address=Address("h", 4),
        mapped_file_size_for_entry_data=2048,
        mapped_file_size_for_entry_index=320,
    )
    NodeFiles.open(OsFiles(), config, Random(1).randrange, has_state_machine=False).close(is_clean=True)
    directory = tmp_path / "dledger-n0"
    HardStateFile.open(OsFiles(), str(directory)).save(HardState(7, "n1", incarnation=99))
    (directory / "restore-vote.99").touch()

    opened = NodeFiles.open(OsFiles(), config, Random(1).randrange, has_state_machine=False)

    assert opened.persistent.hard_state == HardState(7, "n1")
    opened.close(is_clean=True)


def test_one_restored_vote_lets_the_leader_readmit_the_others():
    nodes = Group({"a": [1, 1, 1], "b": [1, 1], "c": [1]})
    for lost, incarnation in (("b", 77), ("c", 78)):
        nodes[lost].raft.state.incarnation = incarnation
    nodes.tick(8_000)
    assert nodes.leaders == []

    nodes["b"].raft.state.incarnation = 0
    nodes.tick(8_000)

    assert nodes.leaders == ["a"]
    assert nodes["b"].terms == nodes["c"].terms == nodes["a"].terms
    assert nodes["a"].raft.membership.get("c").incarnation == 78

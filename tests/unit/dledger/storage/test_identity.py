"""The identity of a directory: written once, compared at each start, adopted only on request."""

from __future__ import annotations

import random

import pytest

import dledger.storage.peer_directories
from dledger.config import MEMBERS_MAX
from dledger.storage.identity import LIVES_MAX, NUMBER_END, IdentityFile, WrongDirectory
from dledger.storage.peer_directories import DIRECTORIES_MAX, PeerDirectories, PeerDirectory, peer_directories_from
from dledger.storage.properties import format_checked
from dledger.types import Member, Membership, MembershipEntry
from store.fs.linux.files import OsFiles

MEMBERSHIP = MembershipEntry(0, Membership((Member("n1"), Member("n2")), 4711))


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path)


def begin(directory, node_id="n1", group="g", *, has_state=False, is_adopting=False):
    file = IdentityFile.check(OsFiles(), directory, node_id, group)
    draw = random.SystemRandom().randrange
    return file.begin(node_id, group, has_state=has_state, is_adopting=is_adopting, draw=draw)


def test_each_start_is_another_life_of_the_same_directory(directory):
    lives = [begin(directory, has_state=number > 0) for number in range(3)]

    assert [each.starts for each in lives] == [1, 2, 3]
    assert len({each.directory_id for each in lives}) == 1
    assert lives[2].lives[:2] == lives[1].lives
    assert len(set(lives[2].lives)) == 3
    assert all(0 < life < NUMBER_END for life in lives[2].lives)


def test_the_number_of_kept_lives_is_bounded(directory):
    for _ in range(LIVES_MAX + 5):
        last = begin(directory)

    assert (last.starts, len(last.lives)) == (LIVES_MAX + 5, LIVES_MAX)


@pytest.mark.parametrize(("node_id", "group"), [("n2", "g"), ("n1", "h")])
def test_directory_of_another_node_or_group_is_refused_with_both_names(directory, node_id, group):
    begin(directory)

    with pytest.raises(WrongDirectory, match=f"node '{node_id}' of group '{group}', found that of node 'n1' of group"):
        IdentityFile.check(OsFiles(), directory, node_id, group)


def test_log_without_a_name_is_refused_until_the_operator_adopts_it_once(directory):
    with pytest.raises(WrongDirectory, match="--adopt"):
        begin(directory, has_state=True)

    assert begin(directory, has_state=True, is_adopting=True).starts == 1
    assert begin(directory, has_state=True).starts == 2


def test_adopting_takes_no_directory_of_another_node(directory):
    begin(directory, "n2")

    with pytest.raises(WrongDirectory, match="exchanged"):
        begin(directory, "n1", has_state=True, is_adopting=True)


@pytest.mark.parametrize("flip", range(0, 100, 7))
def test_damage_of_the_identity_file_is_detected(directory, tmp_path, flip):
    begin(directory)
    path = tmp_path / "identity"
    content = bytearray(path.read_bytes())
    content[flip] ^= 4
    path.write_bytes(content)

    with pytest.raises(WrongDirectory, match="identity: expected"):
        begin(directory)


class Peer:
    """A node that records its peers, in its own directory."""

    def __init__(self, path):
        path.mkdir(exist_ok=True)
        self.path = str(path)
        self.again()

    def again(self):
        self.met = PeerDirectories.open(OsFiles(), self.path, begin(self.path, "n2"))
        self.met.learn([MEMBERSHIP])

    def meet(self, identity, node_id="n1"):
        return self.met.fault_of(node_id, identity.directory_id, identity.starts, identity.lives)


@pytest.fixture
def peer(tmp_path):
    return Peer(tmp_path / "n2")


def copy_of(tmp_path):
    return (tmp_path / "identity").read_bytes()


def test_node_that_starts_again_and_again_is_accepted_after_many_unseen_starts(directory, peer):
    for starts in (1, 1, 5, LIVES_MAX, LIVES_MAX + 9):
        for _ in range(starts):
            identity = begin(directory)
        assert peer.meet(identity) is None
        assert peer.meet(identity) is None


def test_old_copy_of_a_directory_is_distinguished_from_the_original(directory, tmp_path, peer):
    begin(directory)
    copy = copy_of(tmp_path)
    for _ in range(3):
        peer.meet(begin(directory))
    peer.again()
    (tmp_path / "identity").write_bytes(copy)

    assert "old copy" in peer.meet(begin(directory))
    # However often it is started: its processes are not those that connected.
    for _ in range(8):
        assert "old copy" in peer.meet(begin(directory))


def test_copy_that_another_process_uses_is_distinguished_from_the_first(directory, tmp_path, peer):
    begin(directory)
    copy = copy_of(tmp_path)
    peer.meet(begin(directory))
    (tmp_path / "identity").write_bytes(copy)

    assert "another process" in peer.meet(begin(directory))


@pytest.mark.parametrize("content", [b"", b"n1=1,1,1\n", b"#checked\nn1=1,1,1\n"])
def test_known_peers_count_only_with_a_valid_checksum(directory, tmp_path, peer, caplog, content):
    path = tmp_path / "n2" / "peers"
    peer.meet(begin(directory))
    assert list(peer_directories_from(path.read_bytes())) == ["n1"]
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"checksum|what was written"):
        peer_directories_from(content)
    peer.again()
    assert "peers_forgotten" in caplog.text
    assert peer.meet(begin(directory)) is None
    assert list(peer_directories_from(path.read_bytes())) == ["n1"]


def test_emptied_directory_counts_as_another_one(directory, tmp_path, peer):
    for _ in range(3):
        peer.meet(begin(directory))
    (tmp_path / "identity").unlink()

    assert peer.meet(begin(directory)) is None


def test_directory_that_another_one_replaced_is_refused_from_then_on(directory, tmp_path, peer):
    old = begin(directory)
    peer.meet(old)
    copy = copy_of(tmp_path)
    peer.meet(begin(directory))
    (tmp_path / "identity").unlink()
    new = begin(directory)
    assert peer.meet(new) is None
    # The peer restarts: its records are on its disk.
    peer.again()

    (tmp_path / "identity").write_bytes(copy)
    for _ in range(3):
        fault = peer.meet(begin(directory))
        assert f"{old.directory_id:016x}" in fault
        assert f"{new.directory_id:016x}" in fault
        assert "old copy" in fault
    assert peer.meet(new) is None


def test_directories_that_are_remembered_of_a_member_are_bounded(directory, tmp_path, peer):
    identities = []
    for _ in range(DIRECTORIES_MAX + 1):
        identities.append(begin(directory))
        assert peer.meet(identities[-1]) is None
        (tmp_path / "identity").unlink()

    assert len(peer_directories_from((tmp_path / "n2" / "peers").read_bytes())["n1"]) == DIRECTORIES_MAX
    assert all("replaced" in peer.meet(identity) for identity in identities[1:-1])
    # The oldest is dropped: its node was readmitted on a later disk, so it has no vote.
    assert peer.meet(identities[0]) is None


def test_file_of_an_older_version_opens_and_names_one_directory_of_each(directory, tmp_path, peer):
    life = begin(directory)
    line = {"n1": f"{life.directory_id:016x},{life.starts + 1},{life.lives[-1]:016x}"}
    (tmp_path / "n2" / "peers").write_bytes(format_checked(line))
    peer.again()

    assert peer.met.met("n1") == (PeerDirectory(life.directory_id, life.starts + 1, life.lives[-1]),)
    assert "old copy" in peer.meet(life)


def test_largest_content_fits_into_the_reserved_space():
    most = "f" * 16 + f",{NUMBER_END - 1}," + "f" * 16
    names = [f"{number:032d}" for number in range(MEMBERS_MAX)]
    content = format_checked(dict.fromkeys(names, ";".join([most] * DIRECTORIES_MAX)))

    assert list(peer_directories_from(content)) == names
    assert len(content) <= dledger.storage.peer_directories._SIZE_BYTES


def test_nothing_is_stored_of_non_members(directory, peer, tmp_path):
    peer.meet(begin(directory), "n9")

    assert not (tmp_path / "n2" / "peers").exists()


def test_damaged_file_of_known_peers_is_ignored(directory, peer, tmp_path):
    peer.meet(begin(directory))
    (tmp_path / "n2" / "peers").write_bytes(b"#checked\nn1=1,9,2\n#crc32c=00000000\n")
    peer.again()

    assert peer.meet(begin(directory)) is None

"""The greeting: each wrong peer is refused with the code of its fault."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.config import Address, NodeConfig, Peer
from dledger.errors import ResponseCode
from dledger.peer.handshake import Handshake, LateGreeting, PeerRefused, StaleDirectory
from dledger.peer.origin import RawOrigin
from dledger.peer.wire.frames import Hello
from dledger.storage.identity import IdentityFile
from dledger.storage.peer_directories import PeerDirectories
from dledger.types import MembershipEntry
from store.fs.linux.files import OsFiles


def config(self_id: str, *, group: str = "g", ids: str = "n0 n1 n2") -> NodeConfig:
    peers = tuple(Peer(peer_id, Address("127.0.0.1", 1)) for peer_id in ids.split())
    return NodeConfig(group, self_id, peers, "unused", Address("127.0.0.1", 2))


def handshake(node: NodeConfig, *, is_full: bool = False) -> Handshake:
    return Handshake(node, lambda peer_id: peer_id in ("n0", "n1", "n2") or not is_full, RawOrigin())


def hello_of(node: NodeConfig, peer_id: str = "n0") -> Hello:
    return handshake(node).hello(peer_id, is_bulk=True)


CASES = {
    "another group": (hello_of(config("n1", group="other")), ResponseCode.UNKNOWN_GROUP),
    "no member, and too many of them": (hello_of(config("n9", ids="n9 n0")), ResponseCode.UNKNOWN_MEMBER),
    "an empty id": (replace(hello_of(config("n1")), self_id=""), ResponseCode.UNEXPECTED_ARGUMENT),
    "an illegal id": (replace(hello_of(config("n1")), self_id="../n1"), ResponseCode.UNEXPECTED_ARGUMENT),
    "no address to dial back": (replace(hello_of(config("n1")), peer_address="n1"), ResponseCode.UNEXPECTED_ARGUMENT),
    "meant for another node": (hello_of(config("n1"), "n2"), ResponseCode.UNEXPECTED_MEMBER),
    "calls itself like me": (hello_of(config("n0")), ResponseCode.UNEXPECTED_MEMBER),
    "other file sizes": (
        hello_of(replace(config("n1"), mapped_file_size_for_entry_data=4096)),
        ResponseCode.INCONSISTENT_STATE,
    ),
    "another kind of flush": (
        hello_of(replace(config("n1"), is_flush_sync=False)),
        ResponseCode.INCONSISTENT_STATE,
    ),
    "another version": (replace(hello_of(config("n1")), protocol_version=1), ResponseCode.UNEXPECTED_ARGUMENT),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_peer_gets_the_reason(case: str) -> None:
    hello, code = CASES[case]
    answer = handshake(config("n0"), is_full=True).answer(hello)[0]
    assert answer.code == code
    assert answer.message


def test_non_member_is_accepted_while_there_is_a_place() -> None:
    asked = hello_of(config("n9", ids="n9 n0"))
    assert handshake(config("n0")).answer(asked)[0].code == ResponseCode.SUCCESS


def test_right_peer_is_accepted_by_both_sides() -> None:
    asked = hello_of(config("n1"))
    answer, _ = handshake(config("n0")).answer(asked)
    assert answer.code == ResponseCode.SUCCESS
    handshake(config("n1")).check_answer(answer, "n0")


def test_dialling_side_raises_the_received_refusal() -> None:
    answer, _ = handshake(config("n0")).answer(hello_of(config("n1", group="other")))
    with pytest.raises(PeerRefused, match="expected 'g', found 'other'") as refused:
        handshake(config("n1", group="other")).check_answer(answer, "n0")
    assert refused.value.code == ResponseCode.UNKNOWN_GROUP


def test_dialling_side_refuses_another_node_at_the_address() -> None:
    answer = handshake(config("n2")).hello("n1", is_bulk=True)
    with pytest.raises(PeerRefused, match="dialled n0, found n2"):
        handshake(config("n1")).check_answer(answer, "n0")


GROUP = 4711


def knowing(node: NodeConfig, directory: Path, group_id: int = GROUP, starts: int = 1) -> Handshake:
    """Return the greeting of a node that has its group's id, and a directory of its own."""
    directory = directory / node.self_id
    directory.mkdir(exist_ok=True)
    for _ in range(starts):
        file = IdentityFile.check(OsFiles(), str(directory), node.self_id, node.group)
        identity = file.begin(node.self_id, node.group, has_state=False, is_adopting=False, draw=random.randrange)
    peer_directories = PeerDirectories.open(OsFiles(), str(directory), identity)
    peer_directories.learn([MembershipEntry(0, replace(node.membership(), group_id=group_id))])
    return Handshake(node, lambda _: True, RawOrigin(), peer_directories)


def test_members_exchange_the_group_and_their_lives(tmp_path: Path) -> None:
    n0, n1 = knowing(config("n0"), tmp_path), knowing(config("n1"), tmp_path, starts=3)
    asked = n1.hello("n0", is_bulk=False)

    answer, refused = n0.answer(asked)

    assert refused is None
    n1.check_answer(answer, "n0")
    assert (asked.group_id, asked.starts, len(asked.lives)) == (GROUP, 3, 3)
    assert (answer.group_id, answer.starts, len(answer.lives)) == (GROUP, 1, 1)
    assert n0.proves_group(asked)


def test_node_of_another_group_is_refused_without_a_reason_which_is_logged(tmp_path: Path) -> None:
    n0, n1 = knowing(config("n0"), tmp_path), knowing(config("n1"), tmp_path, group_id=GROUP + 1)

    answer, refused = n0.answer(n1.hello("n0", is_bulk=False))

    assert refused is not None
    assert re.search(f"belongs to group {GROUP:016x} .* that of n1 to another .* {GROUP + 1:016x}", refused.message)
    assert answer == Hello("", "", "n1", 0, "", False, code=ResponseCode.UNKNOWN_GROUP, message=answer.message)
    assert "log" in answer.message
    # The address that the other node dials is checked by that node.
    with pytest.raises(PeerRefused, match="another of this name"):
        n1.check_answer(replace(n0.hello("n1", is_bulk=False)), "n0")


@pytest.mark.parametrize(
    "change", [{"group": "x"}, {"peer_id": "n7"}, {"cluster_digest": 1}, {"protocol_version": 1}, {"self_id": "n0"}]
)
def test_refusal_discloses_nothing_to_an_unknown_process(tmp_path: Path, change: dict[str, Any]) -> None:
    n0 = knowing(config("n0"), tmp_path)

    answer, refused = n0.answer(replace(hello_of(config("n1")), **change))

    assert refused is not None
    answered = {answer.group, answer.self_id, answer.client_address, answer.peer_address}
    assert (answered, answer.cluster_digest, answer.group_id, answer.origin, answer.lives) == ({""}, 0, 0, b"", ())
    assert not any(word in answer.message for word in ("n0", "'g'", "digest"))


def test_non_member_does_not_get_the_group_id(tmp_path: Path) -> None:
    n0 = knowing(config("n0"), tmp_path)

    answer, refused = n0.answer(hello_of(config("n9", ids="n9 n0")))

    assert refused is None
    assert (answer.group_id, answer.lives) == (0, ())
    assert n0.hello("n9", is_bulk=False).group_id == 0


def test_node_on_an_old_copy_is_stopped_by_members_only(tmp_path: Path) -> None:
    n0, n1 = knowing(config("n0"), tmp_path), knowing(config("n1"), tmp_path)
    copy = (tmp_path / "n1" / "identity").read_bytes()
    assert n0.answer(knowing(config("n1"), tmp_path).hello("n0", is_bulk=False))[1] is None
    (tmp_path / "n1" / "identity").write_bytes(copy)
    n1 = knowing(config("n1"), tmp_path)

    answer, refused = n0.answer(n1.hello("n0", is_bulk=False))

    assert refused is not None
    assert "move its directory away" in refused.message
    with pytest.raises(StaleDirectory, match="old copy"):
        n1.check_answer(answer, "n0")
    # A peer that does not prove its group is rejected.
    with pytest.raises(PeerRefused) as doubted:
        n1.check_answer(replace(answer, group_id=0), "n0")
    assert not isinstance(doubted.value, StaleDirectory)


def test_late_greeting_of_a_life_that_a_newer_one_follows_is_not_called_an_old_copy(tmp_path: Path) -> None:
    """Its process sent it and died; the next one connected first."""
    n0, dead = knowing(config("n0"), tmp_path), knowing(config("n1"), tmp_path)
    alive = knowing(config("n1"), tmp_path)
    assert n0.answer(alive.hello("n0", is_bulk=False))[1] is None

    answer, refused = n0.answer(dead.hello("n0", is_bulk=False))

    assert isinstance(refused, LateGreeting)
    # Its process should be dead; one that still runs is notified, and stops.
    with pytest.raises(StaleDirectory, match="uses a copy"):
        dead.check_answer(answer, "n0")
    with pytest.raises(LateGreeting):
        n0.check_answer(dead.answer(n0.hello("n1", is_bulk=False))[0], "n1")
    assert n0.answer(alive.hello("n0", is_bulk=False))[1] is None

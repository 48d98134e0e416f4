"""The greeting: each wrong peer is refused with the code that says what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.config import Address, NodeConfig, Peer
from dledger.errors import ResponseCode
from dledger.origin import RawOrigin
from dledger.peer_frames import Hello
from dledger.peer_handshake import Handshake, PeerRefused


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
    "nobody": (replace(hello_of(config("n1")), self_id=""), ResponseCode.UNEXPECTED_ARGUMENT),
    "no id": (replace(hello_of(config("n1")), self_id="../n1"), ResponseCode.UNEXPECTED_ARGUMENT),
    "no address to dial back": (replace(hello_of(config("n1")), peer_address="n1"), ResponseCode.UNEXPECTED_ARGUMENT),
    "meant for another node": (hello_of(config("n1"), "n2"), ResponseCode.UNEXPECTED_MEMBER),
    "calls itself like me": (hello_of(config("n0")), ResponseCode.UNEXPECTED_MEMBER),
    "other file sizes": (
        hello_of(replace(config("n1"), mapped_file_size_for_entry_data=4096)),
        ResponseCode.INCONSISTENT_STATE,
    ),
    "another version": (replace(hello_of(config("n1")), protocol_version=1), ResponseCode.UNEXPECTED_ARGUMENT),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_peer_is_told_why(case: str) -> None:
    hello, code = CASES[case]
    answer = handshake(config("n0"), is_full=True).answer(hello)
    assert answer.code == code
    assert answer.message


def test_node_that_is_no_member_is_let_in_while_there_is_a_place() -> None:
    asked = hello_of(config("n9", ids="n9 n0"))
    assert handshake(config("n0")).answer(asked).code == ResponseCode.SUCCESS


def test_right_peer_is_accepted_by_both_sides() -> None:
    asked = hello_of(config("n1"))
    answer = handshake(config("n0")).answer(asked)
    assert answer.code == ResponseCode.SUCCESS
    handshake(config("n1")).check_answer(answer, "n0")


def test_dialling_side_raises_the_refusal_that_it_got() -> None:
    answer = handshake(config("n0")).answer(hello_of(config("n1", group="other")))
    with pytest.raises(PeerRefused, match="expected 'g', found 'other'") as refused:
        handshake(config("n1", group="other")).check_answer(answer, "n0")
    assert refused.value.code == ResponseCode.UNKNOWN_GROUP


def test_dialling_side_refuses_another_node_at_the_address() -> None:
    answer = handshake(config("n2")).hello("n1", is_bulk=True)
    with pytest.raises(PeerRefused, match="dialled n0, found n2"):
        handshake(config("n1")).check_answer(answer, "n0")

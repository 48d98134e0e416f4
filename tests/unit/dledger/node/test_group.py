"""The group in a node's view: the peers that it dials, its refusals, its messages to the operator."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from dledger.config import MEMBERS_MAX, Address, NodeConfig, Peer
from dledger.core.events import ChangeMembership, Event, MembershipAction
from dledger.errors import ResponseCode
from dledger.node.group import NodeGroup
from dledger.pending.requests import PendingRequests, RequestResult
from dledger.types import Member, Membership, MembershipEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PEERS = tuple(Peer(f"n{number}", Address("new", 1 + number)) for number in range(3))
FOUNDED = Membership(tuple(Member(f"n{number}", f"old:{1 + number}") for number in range(3)))


class Bench:
    """A group whose transport and core only record calls."""

    def __init__(self) -> None:
        self.dialled: list[dict[str, Address]] = []
        self.asked: list[Event] = []
        config = NodeConfig("g", "n0", PEERS, "unused", Address("new", 9))
        self.requests = PendingRequests(timeout_s=5.0)
        self.group = NodeGroup(
            config, peers=self, inbox=self, requests=self.requests, known_peers=self, now_s=perf_counter
        )

    def set_members(self, addresses: Mapping[str, Address]) -> None:
        self.dialled.append(dict(addresses))

    def ask(self, event: Event) -> None:
        self.asked.append(event)

    def learn(self, memberships: Sequence[MembershipEntry]) -> None:
        pass

    def add(self, *arguments: Any) -> asyncio.Future[Any]:
        return self.group.change_membership(MembershipAction.ADD, *arguments)


def test_addresses_of_members_come_from_settings_until_the_log_has_them() -> None:
    bench = Bench()
    bench.group.on_membership([MembershipEntry(-1, FOUNDED)])
    assert bench.dialled[-1] == {peer.id: peer.address for peer in PEERS}
    bench.group.on_membership([MembershipEntry(7, FOUNDED)])
    assert bench.dialled[-1] == {f"n{number}": Address("old", 1 + number) for number in range(3)}


def test_member_that_leaves_is_dialled_until_that_is_committed() -> None:
    bench = Bench()
    left = FOUNDED.without("n2")
    bench.group.on_membership([MembershipEntry(3, FOUNDED), MembershipEntry(7, left)])
    assert set(bench.dialled[-1]) == {"n0", "n1", "n2"}
    bench.group.on_membership([MembershipEntry(7, left)])
    assert set(bench.dialled[-1]) == {"n0", "n1"}


def test_removal_and_outdated_settings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    caplog.set_level(logging.INFO)
    bench.group.on_membership([MembershipEntry(-1, FOUNDED)])
    bench.group.warn_of_settings()
    assert "peers_differ" not in caplog.text
    assert "removed" not in caplog.text
    bench.group.on_membership([MembershipEntry(7, FOUNDED.without("n0").with_member(Member("n3", "h:1")))])
    assert "removed self_id=n0" in caplog.text
    assert not bench.group.is_member
    bench.group.warn_of_settings()
    assert "peers_differ" in caplog.text


def test_member_without_an_address_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.group.on_membership([MembershipEntry(7, FOUNDED.with_member(Member("n3", "")))])
    assert set(bench.dialled[-1]) == {"n0", "n1", "n2"}
    assert "member_without_address" in caplog.text


def test_group_of_the_largest_size_takes_no_more_members() -> None:
    async def main() -> None:
        bench = Bench()
        members = tuple(Member(f"m{number:02}", f"h:{number + 1}") for number in range(MEMBERS_MAX))
        bench.group.on_membership([MembershipEntry(7, Membership(members))])
        result = await bench.add("n9", "h:99")
        assert result.code is ResponseCode.UNEXPECTED_ARGUMENT
        assert "remove one first" in result.message
        again = bench.add("m00", "h:1")
        assert bench.asked == [ChangeMembership(1, MembershipAction.ADD, "m00", "h:1")]
        bench.requests.end(RequestResult(ResponseCode.INTERNAL_ERROR, "the node stopped"))
        assert again.result().code is ResponseCode.INTERNAL_ERROR

    asyncio.run(main())


@pytest.mark.parametrize(
    ("address", "what"),
    [("h" * 300 + ":1", "at most 259 printable characters"), ("a\nb:1", "printable"), ("a b:1", "without spaces")],
)
def test_address_that_no_host_has_is_refused_before_it_gets_into_the_log(address: str, what: str) -> None:
    async def main() -> None:
        bench = Bench()
        bench.group.on_membership([MembershipEntry(7, FOUNDED)])
        result = await bench.add("n9", address)
        assert result.code is ResponseCode.UNEXPECTED_ARGUMENT
        assert what in result.message
        assert len(result.message) < 250
        assert "\n" not in result.message
        assert bench.asked == []

    asyncio.run(main())

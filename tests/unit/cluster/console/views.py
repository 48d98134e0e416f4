"""Groups as the console knows them, for its tests: states of nodes without nodes."""

from __future__ import annotations

from typing import Any

from cluster.console.group_view import GroupView, WatchedNode
from dledger.client.aio.watching import WatchBroken
from dledger.v1.member_pb2 import Member
from dledger.v1.watch_pb2 import WatchEvent, WatchPeer, WatchResponse, WatchState

NAMES = ("n0", "n1", "n2")
ADDRESSES = {name: f"10.0.0.{number}:20921" for number, name in enumerate(NAMES)}
NOW_MS = 1_700_000_000_000


def state(name: str, role: str = "FOLLOWER", **fields: Any) -> WatchState:
    base = {
        "group": "orders",
        "self_id": name,
        "role": role,
        "term": 7,
        "leader_id": "n0",
        "begin_index": 0,
        "last_index": 41_873_102,
        "durable_index": 41_873_100,
        "commit_index": 41_873_099,
        "members": [Member(id=each, is_voter=True) for each in NAMES],
        "is_membership_committed": True,
    }
    return WatchState(**{**base, **fields})


def peer(name: str, **fields: Any) -> WatchPeer:
    base = {"is_voter": True, "is_live": True, "is_counted": True, "match_index": 41_873_061, "answered_ms_ago": 12}
    return WatchPeer(id=name, **{**base, **fields})


def leader(**fields: Any) -> WatchState:
    return state("n0", "LEADER", **{"peers": [peer("n1"), peer("n2")], **fields})


def answer(shown: WatchState, *events: WatchEvent) -> WatchResponse:
    return WatchResponse(code=200, process=5, sequence=9, monotonic_ms=50_000, state=shown, events=events)


def group(*states: WatchState, broken: dict[str, str] | None = None) -> GroupView:
    """Return a group of three nodes, of which those in `states` have answered and those in `broken` fail."""
    view = GroupView("orders", {address: WatchedNode(address) for address in ADDRESSES.values()})
    for each in states:
        view.take(ADDRESSES[each.self_id], answer(each), NOW_MS)
    for name, cause in (broken or {}).items():
        view.take(ADDRESSES[name], WatchBroken(302, cause, is_final=False), NOW_MS)
    return view


def healthy() -> GroupView:
    return group(leader(), state("n1"), state("n2"))

"""The output of `dledger status` and `dledger members list` for answers of nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from cluster.cli.nodes.certificate_expiry import certificate_expiries
from cluster.cli.nodes.members import _row, state_of
from cluster.cli.nodes.members import _table as _members_table
from cluster.cli.nodes.status import _leader_of, _table, _why_no_leader
from cluster.local.node import choose_ports
from dledger.security.settings import PLAIN, Tls
from dledger.v1.admin_pb2 import ListMembersResponse
from dledger.v1.log_pb2 import LeaderHint, PeerStatus, StatusResponse
from dledger.v1.member_pb2 import Member
from tests.support.certificates import new_authority

MEMBERS = [Member(id=f"n{number}", address=f"h:{number}", is_voter=number < 3) for number in range(4)]


def peer(**fields: object) -> PeerStatus:
    good = {"id": "n1", "is_live": True, "is_voter": True, "is_counted": True, "match_index": 5}
    return PeerStatus(**{**good, **fields})


def answer(self_id: str, **fields: object) -> StatusResponse:
    base = {"code": 200, "group": "g", "self_id": self_id, "role": "FOLLOWER", "term": 3, "end_index": 9}
    return StatusResponse(**{"members": MEMBERS, **base, **fields})


def shown(answers: dict[str, StatusResponse | str]) -> list[str]:
    console = Console(width=120, record=True, file=None)
    with console.capture() as capture:
        console.print(_table(answers, _leader_of(answers)))
    return [line.rstrip() for line in capture.get().splitlines()]


def row(answers: dict[str, StatusResponse | str], name: str) -> str:
    (found,) = [line for line in shown(answers) if line.startswith(f" {name} ")]
    return found


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (None, "ok"),
        (peer(), "ok"),
        (peer(is_live=False, is_disk_unhealthy=True), "silent"),
        (peer(match_index=-1), "no answer yet"),
        (peer(match_index=-1, is_contradicting=True), "contradicts the leader"),
        (peer(is_disk_unhealthy=True), "disk stalls or is full"),
        (peer(is_refusing_corrupt=True), "cannot verify pushes"),
        (peer(is_counted=False), "wiped, not counted"),
        (peer(is_counted=False, is_voter=False), "ok"),
    ],
)
def test_state_of_a_member_is_short(found: PeerStatus | None, state: str) -> None:
    assert state == state_of(found)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "ok"),
        ({"is_disk_full": True, "is_disk_stalled": True}, "disk full"),
        ({"is_disk_stalled": True}, "disk stalls"),
        ({"is_founding": True}, "new, waits for its group"),
        ({"members": MEMBERS[:1]}, "no member (yet)"),
    ],
)
def test_row_of_a_node_shows_its_problem(fields: dict[str, object], state: str) -> None:
    answers: dict[str, StatusResponse | str] = {
        "h:1": answer("n0", role="LEADER", peers=[peer()]),
        "h:2": answer("n1", **fields),
    }
    assert row(answers, "n1").endswith(f"  {state}")


def test_learner_and_nodes_that_do_not_answer_have_their_rows_once() -> None:
    peers = [peer(), peer(id="n2", client_address="h:3"), peer(id="n3", is_voter=False, is_live=False)]
    answers: dict[str, StatusResponse | str] = {
        "h:1": answer("n0", role="LEADER", peers=peers),
        "h:2": answer("n1"),
        "h:3": "h:3 is not reachable (Connection refused)",
    }
    assert "LEADER" in row(answers, "n0")
    assert row(answers, "n2").endswith("is not reachable (Connection refused)")
    assert "not known" in row(answers, "n3")
    assert "learner" in row(answers, "n3")
    assert row(answers, "n3").endswith("silent")


def test_reason_for_a_missing_leader() -> None:
    follower = answer("n0", leader=LeaderHint())
    assert "no node answers at h:1" in _why_no_leader("h:1", {"h:1": "h:1 did not answer in time"})
    assert "less than a majority" in _why_no_leader("h:1", {"h:1": follower, "h:2": "no"})
    other = StatusResponse(code=400, message="this node serves group 'b', not 'default'")
    assert "serves group 'b', not 'default'; set the right group with --group" in _why_no_leader("h:1", {"h:1": other})
    assert "all of its nodes (n0, n1, n2) run" in _why_no_leader("h:1", {"h:1": answer("n0", is_founding=True)})


@pytest.mark.parametrize(
    ("group_id", "title"), [("00aa12bb34cc56dd", "group g (00aa12bb34cc56dd), "), ("", "group g, ")]
)
def test_title_distinguishes_groups_of_one_name(group_id: str, title: str) -> None:
    table = shown({"h:1": answer("n1", role="LEADER", group_id=group_id)})
    assert f"{title}term 3, leader n1" in table[0]
    listed = ListMembersResponse(members=MEMBERS, membership_index=4, is_committed=True, group_id=group_id)
    assert _members_table("g", listed, []).title == f"{title}members by entry 4"
    assert _row(MEMBERS[0], listed)["group_id"] == group_id


def test_column_of_certificates_is_there_with_tls_alone() -> None:
    answers: dict[str, StatusResponse | str] = {"h:0": answer("n0"), "h:1": answer("n1"), "h:2": "no answer"}
    now = datetime.now(UTC)
    expiries = {"h:0": now + timedelta(days=30, hours=1), "h:1": now - timedelta(days=2)}
    assert "certificate" not in "".join(shown(answers))

    console = Console(width=160, record=True, file=None)
    with console.capture() as capture:
        console.print(_table(answers, None, expiries))

    found = {line.split()[0]: line for line in capture.get().splitlines() if line.strip()}
    assert " certificate " in found["node"]
    assert " 30 days " in found["n0"]
    assert " expired " in found["n1"]


def test_certificates_of_plain_nodes_and_silent_ones_have_no_expiry() -> None:
    """The port is not listened on."""
    address = f"127.0.0.1:{choose_ports(1, None)[0]}"
    assert certificate_expiries([address], PLAIN, 1.0) == {}
    assert certificate_expiries([address, "no address"], Tls(new_authority().certificate_pem()), 1.0) == {}

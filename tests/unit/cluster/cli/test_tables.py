"""Tables at 80 and 40 columns, and piped: nothing is cut, and no address or number is broken in two."""

from __future__ import annotations

import io
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cluster.cli import common as cli_common
from cluster.cli import rows as cli_rows
from cluster.cli.messages import brokers as cli_brokers
from cluster.cli.nodes import broker_status as cli_broker_status
from cluster.cli.nodes import members as cli_members
from cluster.cli.nodes import status as cli_status
from cluster.cli.store import derived_files
from cluster.cli.store import messages as cli_messages
from cluster.cli.store import verify as cli_verify
from cluster.v1.broker_pb2 import BrokerStatusResponse
from cluster.v1.nameserver_pb2 import RegisteredBroker
from commitlog.offline.directory import StoreMode
from commitlog.offline.verify import Counts
from dledger.v1.admin_pb2 import ListMembersResponse
from dledger.v1.log_pb2 import LeaderHint, PeerStatus, StatusResponse
from dledger.v1.member_pb2 import Member
from store.model.finding import Area

STORE = "/data/of/broker-a/" + "x" * 90
ADDRESSES = [f"10.200.130.14{number}:20921" for number in range(3)]
MEMBERS = [Member(id=f"n{number}", address=ADDRESSES[number], is_voter=True) for number in range(3)]
PEERS = [
    PeerStatus(id=f"n{number}", address=ADDRESSES[number], client_address=ADDRESSES[number], match_index=123_456_789)
    for number in (1, 2)
]
LEADER = StatusResponse(
    code=200, group="g", self_id="n0", role="LEADER", term=1234, end_index=123_456_789, peers=PEERS, members=MEMBERS
)


def show_status() -> None:
    answers = {ADDRESSES[0]: LEADER, ADDRESSES[1]: f"{ADDRESSES[1]} is not reachable (Connection refused)"}
    cli_rows.show_table(cli_status._table(answers, LEADER))


def show_members() -> None:
    response = ListMembersResponse(members=MEMBERS, peers=PEERS, leader=LeaderHint(id="n0"), membership_index=0)
    rows = [cli_members._row(member, response) for member in MEMBERS]
    cli_rows.show_table(cli_members._table("g", response, rows))


def show_brokers() -> None:
    brokers = [
        RegisteredBroker(
            broker="broker-a",
            cluster="Cluster-of-Europe",
            leader_id=MEMBERS[number].id,
            term=1234,
            nodes=[],
            is_writable=True,
        )
        for number in range(2)
    ]
    for broker in brokers:
        for member in MEMBERS:
            broker.nodes.add(id=member.id, address=member.address)
    cli_rows.show_table(cli_brokers._table(dict.fromkeys(ADDRESSES, brokers)))


def show_broker_status() -> None:
    statuses = {
        address: BrokerStatusResponse(broker="broker-a", self_id=f"n{number}", max_physical_offset=10**13)
        for number, address in enumerate(ADDRESSES)
    }
    cli_rows.show_table(cli_broker_status.broker_table(statuses))


def show_routes() -> None:
    columns = {"broker": "broker", "leader": "leader", "nodes": "nodes", "time": "first message", "permission": "p"}
    row = {"broker": "broker-a", "leader": ADDRESSES[0], "nodes": ADDRESSES, "permission": "rw"}
    cli_rows.print_rows(columns, [{**row, "time": "2026-11-22 21:50:55"}] * 2, as_json=False)


def show_standalone() -> None:
    """Cells of several words that must not wrap, beside names."""
    broker = RegisteredBroker(broker="broker-a", leader_id="n0", is_writable=True, silent_ms=6_000)
    broker.nodes.add(id="n0", address=ADDRESSES[0])
    cli_rows.show_table(cli_brokers._table({ADDRESSES[0]: [broker]}))


def show_index() -> None:
    """Cells of several words that may wrap, beside times without a place to break."""
    row = {"file": "20261122223542210", "items": "2 of 19999999", "slots": 2}
    times = dict.fromkeys(("from (UTC)", "to (UTC)"), "2026-11-22T22:35:42.210Z")
    derived_files._print([row | times], derived_files.TableFormat.TABLE, 0)


def show_description() -> None:
    columns = {"broker": "broker", "queues": "queues", "p": "permission", "m": "messages", "q": "in queue"}
    row = {
        "broker": "broker-a",
        "queues": 4,
        "p": "rw",
        "m": 1,
        "q": 1,
        "t": "2026-11-22 21:50:55",
        "groups": "billing",
    }
    cli_rows.print_rows({**columns, "t": "first message", "groups": "groups"}, [row], as_json=False)


def show_topics() -> None:
    rows = [{"topic": "t" * 127, "broker": ADDRESSES[0], "queues": 65_536, "description": "some words " * 12}]
    cli_rows.print_rows({name: name for name in rows[0]}, rows, as_json=False)


def show_verify() -> None:
    """A damaged store of a node, with a path that is wider than the terminal."""
    directory = SimpleNamespace(
        root=STORE, mode=StoreMode.MIXED, size=123_456_789, log_files=[1], node_directory=STORE, checkpoint_path="a/b"
    )
    counts = Counts(messages=10**13, log_end=10**13, queues=65_536, units=10**13, items=123_456_789)
    entries = SimpleNamespace(has_aside=True, entry_count=10**13, unit_count=10**13)
    totals = Counter({(area, kind): 123_456_789 for area in Area for kind in ("damage", "accepted")})
    store: Any = directory
    checked = cli_verify._checked(store, SimpleNamespace(counts=counts), entries)  # type: ignore[arg-type]
    cli_rows.show_table(cli_verify._table(store, checked, totals, 1.0))


ALL = [
    show_status,
    show_members,
    show_brokers,
    show_broker_status,
    show_routes,
    show_topics,
    show_verify,
    show_standalone,
    show_index,
    show_description,
]


def printed(show: object, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    console = Console(file=io.StringIO(), width=width)
    for module in (cli_rows, cli_common):
        monkeypatch.setattr(module, "output", console)
    assert callable(show)
    show()
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("show", ALL)
def test_table_keeps_addresses_and_numbers_whole(show: object, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(show, width, monkeypatch)

    whole = printed(show, 10_000, monkeypatch)
    for word in (
        STORE,
        *ADDRESSES,
        "123456789",
        "65536",
        str(10**13),
        f"{10**13:,}",
        "billing",
        "2026-11-22T22:35:42.210Z",
        "Cluster-of-Europe",
        "2026-11-22 21:50:55",
    ):
        assert whole.count(word) == text.count(word), word
    assert "…" not in text
    if show not in (show_topics, show_status) and (show is not show_verify or width == 80):
        assert all(len(line.rstrip()) <= max(width, 46) for line in text.splitlines() if STORE not in line)


@pytest.mark.parametrize("width", [80, 90, 120])
def test_heading_of_messages_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_common, "output", Console(file=io.StringIO(), width=width))
    assert len(cli_messages._head()) <= width


@pytest.mark.parametrize("show", ALL)
def test_piped_output_is_neither_folded_nor_cut(show: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert 10_000 == cli_common.console_of(io.StringIO()).width
    monkeypatch.setenv("COLUMNS", "70")
    assert 70 == cli_common.console_of(io.StringIO()).width

    text = printed(show, 10_000, monkeypatch)
    assert "…" not in text
    if show is show_topics:
        assert "t" * 127 in text
        assert "some words " * 11 in text

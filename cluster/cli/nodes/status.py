"""`dledger status`: the status of every node, as a table or as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf.message import Message
from rich import box
from rich.markup import escape
from rich.table import Table

from cluster.cli.client_target import LogNodes, nodes_asked
from cluster.cli.common import (
    DEFAULT_ENDPOINTS,
    DEFAULT_GROUP,
    EXIT_USAGE,
    Endpoints,
    Group,
    NameServers,
    fail,
)
from cluster.cli.nodes.members import group_name, state_of
from cluster.cli.rows import show_table
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.v1.broker_pb2 import BrokerStatusResponse
    from dledger.v1.log_pb2 import PeerStatus, StatusResponse


def status(
    context: typer.Context,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    name_servers: NameServers = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.05, metavar="SECONDS", help="Timeout of each node.")
    ] = 1.0,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per node.")] = False,
) -> None:
    """Show the leader, and each node's log and state.

    For each node: its role, its log, its lag in entries, its faults, and with TLS the days until its certificate
    expires. With name servers it shows the nodes of all their brokers, or with --group those of one.

    For the nodes of a broker it also shows which node accepts puts (or why none does), the offset at which the files of
    a converted store end (divide), and the bytes of the log that are not in queues and index yet (undispatched).

    The exit code is 1 if a group has no leader, 2 for wrong usage.

    Examples:
        dledger status
        dledger status --endpoints 127.0.0.1:20921,127.0.0.1:20922,127.0.0.1:20923
        dledger status --name-servers 10.0.0.5:9876,10.0.0.6:9876
        dledger status --json | jq .role
    """
    faults = [_show(nodes, timeout, as_json=as_json) for nodes in nodes_asked(context, endpoints, name_servers, group)]
    if texts := [fault for fault in faults if fault]:
        fail("\n".join(texts))


def _show(nodes: LogNodes, timeout: float, *, as_json: bool) -> str:
    """Print the nodes of one group; return the reason if it has no leader, otherwise an empty text."""
    try:
        answers = _ask(nodes, timeout)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    from cluster.cli.nodes.broker_status import broker_statuses, broker_table

    leader = _leader_of(answers)
    alive = [each for each, answer in answers.items() if not isinstance(answer, str)]
    brokers = broker_statuses(alive, timeout, nodes.security)
    is_standalone = False
    if all(isinstance(answer, str) for answer in answers.values()):
        # A standalone broker has no log of entries, no LogService and no leader.
        found = broker_statuses(answers, timeout, nodes.security)
        brokers = {each: status for each, status in found.items() if status.role == "STANDALONE"}
        is_standalone = len(brokers) == len(answers)
    from cluster.cli.nodes.certificate_expiry import certificate_expiries

    expiries = certificate_expiries([*alive, *brokers] if is_standalone else alive, nodes.security, timeout)
    if as_json:
        for endpoint, answer in answers.items():
            typer.echo(json.dumps(_as_object(endpoint, answer, brokers.get(endpoint), expiries.get(endpoint))))
    else:
        if not is_standalone:
            show_table(_table(answers, leader, expiries))
        if brokers:
            show_table(broker_table(brokers, expiries if is_standalone else {}))
    return "" if leader is not None or is_standalone else _why_no_leader(nodes.endpoints, answers)


def _why_no_leader(endpoints: str, answers: dict[str, StatusResponse | str]) -> str:
    alive = [answer for answer in answers.values() if not isinstance(answer, str)]
    if not alive:
        return f"no node answers at {endpoints}: start them, or set other addresses with --endpoints"
    refusals = [answer for answer in alive if answer.code != ResponseCode.SUCCESS]
    if len(refusals) == len(alive):
        if refusals[0].code != ResponseCode.UNKNOWN_GROUP:
            return refusals[0].message
        return f"{refusals[0].message}; set the right group with --group, or other nodes with --endpoints"
    if any(answer.is_founding for answer in alive):
        ids = ", ".join(sorted({member.id for answer in alive for member in answer.members if member.is_voter}))
        return f"no leader: a new group needs all of its nodes ({ids}) running and connected for its first election"
    return "no leader: less than a majority is connected, or an election is in progress"


def _ask(nodes: LogNodes, timeout_s: float) -> dict[str, StatusResponse | str]:
    """Request the status of the given nodes, and then of the nodes in their answers."""
    from dledger.client import LogClient

    with LogClient(nodes.endpoints, group=nodes.group, security=nodes.security) as client:
        client.find_leader()
        answers = client.statuses(timeout_s)
    leader = _leader_of(answers)
    named = [] if leader is None else [peer.client_address for peer in leader.peers if peer.client_address]
    unasked = [address for address in named if address not in answers]
    if unasked:
        with LogClient(unasked, group=nodes.group, security=nodes.security) as client:
            answers |= client.statuses(timeout_s)
    return answers


def _leader_of(answers: dict[str, StatusResponse | str]) -> StatusResponse | None:
    """Return the status of the leader of the highest term."""
    leaders = [answer for answer in answers.values() if not isinstance(answer, str) and answer.role == "LEADER"]
    return max(leaders, key=lambda answer: answer.term, default=None)


def _as_object(
    endpoint: str,
    answer: StatusResponse | str,
    broker: BrokerStatusResponse | None = None,
    expires_at: datetime | None = None,
) -> dict[str, Any]:
    messages: dict[str, Any] = {} if broker is None else {"broker": _fields(broker)}
    if expires_at is not None:
        messages["certificate_expires_at"] = f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(answer, str):
        return {"endpoint": endpoint, **(messages or {"error": answer})}
    return {"endpoint": endpoint, **_fields(answer), **messages}


def _fields(message: Message) -> dict[str, Any]:
    """Return all fields of a message by name, in the order of its definition, unset ones included."""
    return {field.name: _plain(getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _plain(value: Any) -> Any:
    """Convert a value for JSON; protobuf's own conversion would write 64-bit numbers as strings."""
    if isinstance(value, Message):
        return _fields(value)
    return value if isinstance(value, str | int | float | bool) else [_plain(item) for item in value]


def _table(
    answers: dict[str, StatusResponse | str],
    leader: StatusResponse | None,
    expiries: Mapping[str, datetime] = MappingProxyType({}),
) -> Table:
    """Return the table: one row per node; with a column of certificates if there are any."""
    from cluster.cli.nodes.certificate_expiry import expiry_text

    now = datetime.now(UTC)

    def add(endpoint: str, *cells: str) -> None:
        *cells_before, state = cells
        table.add_row(*cells_before, *([expiry_text(expiries.get(endpoint), now)] if expiries else []), state)

    title = None
    if leader is not None:
        name = group_name(leader.group, leader.group_id)
        title = f"{name}, term {leader.term}, leader {leader.self_id}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("node", "endpoint", "role"):
        table.add_column(name, no_wrap=True)
    for name in ("term", "log", "commit", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    if expiries:
        table.add_column("certificate", justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    peers = {} if leader is None else {peer.id: peer for peer in leader.peers}
    for endpoint, answer in answers.items():
        if isinstance(answer, str) or answer.code != ResponseCode.SUCCESS:
            text = answer if isinstance(answer, str) else answer.message
            peer = next((peer for peer in peers.values() if peer.client_address == endpoint), None)
            name = "?" if peer is None else peers.pop(peer.id).id
            state = f"[red]{escape(text.removeprefix(endpoint).strip())}[/]"
            add(endpoint, name, endpoint, "-", "-", "-", "-", "-", state)
        else:
            add(endpoint, *_row(endpoint, answer, leader, peers.pop(answer.self_id, None)))
    for peer in peers.values():
        add("", *_row_of_peer(peer))
    return table


def _row(
    endpoint: str, answer: StatusResponse, leader: StatusResponse | None, peer: PeerStatus | None
) -> tuple[str, ...]:
    lag = "-" if leader is None else str(max(leader.end_index - answer.end_index, 0))
    return (
        answer.self_id,
        endpoint,
        f"[green]{answer.role}[/]" if answer.role == "LEADER" else _role_of(answer),
        str(answer.term),
        f"{answer.begin_index}..{answer.end_index}" if answer.end_index >= answer.begin_index else "empty",
        str(answer.commit_index),
        lag,
        _state_of(answer, peer),
    )


def _row_of_peer(peer: PeerStatus) -> tuple[str, ...]:
    """Return the row of a node without a known client address, from the leader's report."""
    log = "-" if peer.match_index < 0 else f"..{peer.match_index}"
    role = "-" if peer.is_voter else "learner"
    return (
        peer.id,
        peer.client_address or "not known",
        role,
        "-",
        log,
        "-",
        str(peer.lag_entries),
        _coloured(state_of(peer)),
    )


def _role_of(answer: StatusResponse) -> str:
    is_learner = any(member.id == answer.self_id and not member.is_voter for member in answer.members)
    return "learner" if is_learner else answer.role


def _state_of(answer: StatusResponse, peer: PeerStatus | None) -> str:
    """Return the worst fault of a node: its own faults come first, then those that the leader reports."""
    is_member = any(member.id == answer.self_id for member in answer.members)
    own = {
        "disk full": answer.is_disk_full,
        "disk stalls": answer.is_disk_stalled,
        "no member (yet)": bool(answer.members) and not is_member,
        "new, waits for its group": answer.is_founding,
        f"old log kept until {answer.aside_caught_up_index}": answer.aside_files > 0,
    }
    return _coloured(next((text for text, is_so in own.items() if is_so), state_of(peer)))


def _coloured(state: str) -> str:
    if state == "ok":
        return state
    return f"[red]{state}[/]" if state.startswith("disk") else f"[yellow]{state}[/]"

"""`dledger status`: what every node says of itself, as a table or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.table import Table

from cluster.cli_common import (
    DEFAULT_ENDPOINTS,
    DEFAULT_GROUP,
    EXIT_USAGE,
    Endpoints,
    Group,
    fail,
    output,
)
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from dledger.v1.log_pb2 import PeerStatus, StatusResponse

_ROUNDS = 2


def status(
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.05, metavar="SECONDS", help="How long to wait for each node.")
    ] = 1.0,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a node.")] = False,
) -> None:
    """Show every node: its role, its log, and how far it is behind.

    The exit code is 1 when no node leads.

    Examples:
        dledger status --endpoints 127.0.0.1:40921,127.0.0.1:40922,127.0.0.1:40923
        dledger status --json | jq .role
    """
    try:
        answers = _ask(endpoints, group, timeout)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    leader = _leader_of(answers)
    if as_json:
        for endpoint, answer in answers.items():
            typer.echo(json.dumps(_as_object(endpoint, answer)))
    else:
        output.print(_table(answers, leader))
    if leader is None:
        is_any_alive = any(not isinstance(answer, str) for answer in answers.values())
        missing = "no node leads: fewer than a majority can reach one another, or an election is under way"
        fail(
            missing if is_any_alive else f"no node answers at {endpoints}: start them, or name others with --endpoints"
        )


def _ask(endpoints: str, group: str, timeout_s: float) -> dict[str, StatusResponse | str]:
    """Ask the given nodes, and then those that they name."""
    from dledger.client import LogClient  # noqa: PLC0415  (gRPC is slow to load)

    with LogClient(endpoints, group=group) as client:
        client.find_leader()
        return client.statuses(timeout_s)


def _leader_of(answers: dict[str, StatusResponse | str]) -> StatusResponse | None:
    """Return the answer of the leader of the highest term."""
    leaders = [answer for answer in answers.values() if not isinstance(answer, str) and answer.role == "LEADER"]
    return max(leaders, key=lambda answer: answer.term, default=None)


def _as_object(endpoint: str, answer: StatusResponse | str) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"endpoint": endpoint, "error": answer}
    # Protobuf's JSON writes 64-bit numbers as text; every number here is one that JSON can hold.
    fields = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {"endpoint": endpoint, **_with_numbers(fields)}


def _with_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    texts = {"group", "self_id", "role", "message", "id", "address"}
    return {name: value if name in texts else _as_number(value) for name, value in fields.items()}


def _as_number(value: Any) -> Any:
    if isinstance(value, dict):
        return _with_numbers(value)
    if isinstance(value, list):
        return [_as_number(item) for item in value]
    return int(value) if isinstance(value, str) else value


def _table(answers: dict[str, StatusResponse | str], leader: StatusResponse | None) -> Table:
    table = Table(title=None if leader is None else f"group {leader.group}, term {leader.term}")
    for name, justify in (("node", "left"), ("endpoint", "left"), ("role", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("term", "entries", "committed", "behind"):
        table.add_column(name, justify="right")
    table.add_column("state")
    peers = {} if leader is None else {peer.id: peer for peer in leader.peers}
    for endpoint, answer in answers.items():
        table.add_row(*_row(endpoint, answer, leader, peers))
    return table


def _row(
    endpoint: str, answer: StatusResponse | str, leader: StatusResponse | None, peers: dict[str, PeerStatus]
) -> tuple[str, ...]:
    if isinstance(answer, str):
        return ("?", endpoint, "-", "-", "-", "-", "-", f"[red]{answer.removeprefix(endpoint).strip()}[/red]")
    if answer.code != ResponseCode.SUCCESS:
        return (answer.self_id or "?", endpoint, "-", "-", "-", "-", "-", f"[red]{answer.message}[/red]")
    entries = f"{answer.begin_index}..{answer.end_index}" if answer.end_index >= answer.begin_index else "none"
    behind = "-" if leader is None else f"{max(leader.end_index - answer.end_index, 0)}"
    role = f"[green]{answer.role}[/green]" if answer.role == "LEADER" else answer.role
    return (
        answer.self_id,
        endpoint,
        role,
        str(answer.term),
        entries,
        str(answer.commit_index),
        behind,
        _state(answer, peers.get(answer.self_id)),
    )


def _state(answer: StatusResponse, peer: PeerStatus | None) -> str:
    if answer.is_disk_full:
        return "[red]disk full[/red]"
    if peer is not None and not peer.is_live:
        return "[yellow]cut off from the leader[/yellow]"
    return "ok"

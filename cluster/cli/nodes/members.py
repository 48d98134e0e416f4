"""`dledger members` and `dledger transfer`: the members of the group, and its leader."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from cluster.cli.client_target import LogNodes, log_nodes
from cluster.cli.common import (
    DEFAULT_DEADLINE_S,
    DEFAULT_ENDPOINTS,
    DEFAULT_GROUP,
    EXIT_USAGE,
    Deadline,
    Endpoints,
    Group,
    fail,
    help_of,
    reported_errors,
)
from cluster.cli.rows import show_table
from cluster.config.values import parse_peer
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dledger.client import AdminClient
    from dledger.v1.admin_pb2 import ListMembersResponse
    from dledger.v1.log_pb2 import PeerStatus
    from dledger.v1.member_pb2 import Member

MemberId = Annotated[str, typer.Argument(metavar="ID", help="The node's self_id.")]

# Advice by the code of the refusal.
_ADVICE = {
    ResponseCode.NETWORK_ERROR: "Is the node started, and does `dledger status` show it?",
    ResponseCode.UNKNOWN_MEMBER: "`dledger members list` shows the members.",
    ResponseCode.UNEXPECTED_MEMBER: "To move a node, remove it first, and add it again with its new address.",
    ResponseCode.INCONSISTENT_STATE: "Start the nodes that do not answer, or add others first: a majority must run.",
    ResponseCode.REPEATED_REQUEST: "`dledger members list` shows when the pending change is complete.",
    ResponseCode.FALL_BEHIND_TOO_MUCH: "Give it more time with --deadline; `dledger members list` shows its progress.",
    ResponseCode.TAKE_LEADERSHIP_FAILED: "The leader has not changed. `dledger status` shows the node; repair it, "
    "then retry.",
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT: "The change may still be committed: `dledger members list` shows it.",
}

members_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show and change the members of the running group.",
    epilog="\b\nReplace the dead node n2 by a new one n3:\n"
    "    dledger members add n3-10.0.0.4:20911      n3 receives the log\n"
    "    dledger server --config n3.toml            with is_joining = true; `members add` prints its peers\n"
    "    dledger members promote n3 --deadline 600  waits until n3 has caught up\n"
    "    dledger members remove n2",
)


def list_members(
    context: typer.Context,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a member.")] = False,
) -> None:
    """Show the members: voters and learners, with their lag.

    Examples:
        dledger members list
        dledger members list --json | jq 'select(.state != "ok")'
    """
    nodes = log_nodes(context, endpoints, group)
    with _admin(nodes, deadline) as admin:
        response = admin.members()
    rows = [_row(member, response) for member in response.members]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
    else:
        show_table(_table(nodes.group, response, rows))


def add(
    context: typer.Context,
    member: Annotated[
        str, typer.Argument(metavar="ID-HOST:PORT", help="The node's self_id, a dash, and its peer address.")
    ],
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
) -> None:
    """Add a node as a learner.

    A learner receives the log and does not vote; `dledger members promote` makes it a voter. The command prints the
    settings of the new node, and can be repeated.

    Examples:
        dledger members add n3-10.0.0.4:20911
    """
    try:
        peer = parse_peer(member)
    except ValueError as error:
        fail(f"{member!r}: {error}, for example n3-10.0.0.4:20911", EXIT_USAGE)
    nodes = log_nodes(context, endpoints, group)
    with _admin(nodes, deadline) as admin:
        admin.add(peer.id, str(peer.address))
        response = admin.members()
    peers = ";".join(f"{each.id}-{each.address}" for each in response.members)
    typer.echo(
        f"{peer.id} is a member of group {nodes.group}. If it is new, start it with\n\n"
        f'    self_id = "{peer.id}"\n'
        f'    group = "{nodes.group}"\n'
        f'    peers = "{peers}"\n'
        f"    is_joining = true\n\n"
        f"and the file sizes of the others; then make it a voter: dledger members promote {peer.id} --deadline 600"
    )


def promote(
    context: typer.Context,
    member_id: MemberId,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
) -> None:
    """Make a learner a voter, after it has caught up.

    The command waits for that until the deadline.

    Examples:
        dledger members promote n3 --deadline 600
    """
    nodes = log_nodes(context, endpoints, group)
    with _admin(nodes, deadline) as admin:
        admin.promote(member_id)
    typer.echo(f"{member_id} is a voter")


def remove(
    context: typer.Context,
    member_id: MemberId,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
) -> None:
    """Remove a member, running or not.

    A leader transfers its leadership before it is removed. The command is refused if too few of the remaining nodes are
    running.

    Examples:
        dledger members remove n2
    """
    nodes = log_nodes(context, endpoints, group)
    with _admin(nodes, deadline) as admin:
        admin.remove(member_id)
    typer.echo(f"{member_id} is no longer a member: stop its node; its files can be deleted")


def transfer(
    context: typer.Context,
    member_id: MemberId,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    deadline: Deadline = DEFAULT_DEADLINE_S,
) -> None:
    """Transfer the leadership to another node.

    Use it before you stop the leader or its machine. Appends wait briefly, and then continue at the new leader.

    Examples:
        dledger transfer n1
    """
    nodes = log_nodes(context, endpoints, group)
    with _admin(nodes, deadline) as admin:
        admin.transfer(member_id)
    typer.echo(f"{member_id} is the leader")


members_app.command("list", help=help_of(list_members))(list_members)
for _command in (add, promote, remove):
    members_app.command(help=help_of(_command))(_command)


@contextmanager
def _admin(nodes: LogNodes, deadline_s: float) -> Iterator[AdminClient]:
    from dledger.client import AdminClient, AdminFailed

    with (
        reported_errors(nodes.endpoints),
        AdminClient(nodes.endpoints, group=nodes.group, deadline_s=deadline_s, security=nodes.security) as admin,
    ):
        try:
            yield admin
        except AdminFailed as failed:
            advice = _ADVICE.get(failed.code) if "no leader found" not in failed.message else None  # type: ignore[call-overload]
            if advice is None:
                raise
            fail(f"{failed}\n{advice}")


def _row(member: Member, response: ListMembersResponse) -> dict[str, Any]:
    peer = next((peer for peer in response.peers if peer.id == member.id), None)
    is_leader = member.id == response.leader.id
    return {
        "id": member.id,
        "group_id": response.group_id,
        "address": member.address,
        "role": "leader" if is_leader else "voter" if member.is_voter else "learner",
        "match_index": None if peer is None else peer.match_index,
        "lag_entries": 0 if peer is None else peer.lag_entries,
        "lag_bytes": 0 if peer is None else peer.lag_bytes,
        "state": state_of(peer),
    }


def state_of(peer: PeerStatus | None) -> str:
    """Return the state of a member as the leader reports it; "ok" for the leader itself."""
    if peer is None:
        return "ok"
    states = (
        (not peer.is_live, "silent"),
        (peer.is_contradicting, "contradicts the leader"),
        (peer.match_index < 0, "no answer yet"),
        (peer.is_refusing_corrupt, "cannot verify pushes"),
        (peer.is_disk_unhealthy, "disk stalls or is full"),
        (peer.is_voter and not peer.is_counted, "wiped, not counted"),
    )
    return next((state for is_so, state in states if is_so), "ok")


def group_name(group: str, group_id: str) -> str:
    """Return the group's name with its id, because several groups may have the same name."""
    return f"group {group} ({group_id})" if group_id else f"group {group}"


def _table(group: str, response: ListMembersResponse, rows: list[dict[str, Any]]) -> Table:
    since = "the settings" if response.membership_index < 0 else f"entry {response.membership_index}"
    state = "" if response.is_committed else ", not committed yet"
    title = f"{group_name(group, response.group_id)}, members by {since}{state}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("node", "address", "role"):
        table.add_column(name, no_wrap=True)
    for name in ("durable", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    for row in rows:
        match_index = row["match_index"]
        table.add_row(
            row["id"],
            row["address"],
            f"[green]{row['role']}[/]" if row["role"] == "leader" else row["role"],
            "-" if match_index is None or match_index < 0 else f"..{match_index}",
            str(row["lag_entries"]),
            row["state"] if row["state"] == "ok" else f"[yellow]{row['state']}[/]",
        )
    return table

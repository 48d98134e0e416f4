"""The values that the templates show: numbers as text, rows of nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cluster.console.findings import ConsoleFinding, Severity, findings_of, tolerated_losses

if TYPE_CHECKING:
    from cluster.console.group_view import GroupView, WatchedNode
    from dledger.v1.watch_pb2 import WatchPeer, WatchState

UNKNOWN = "?"


class ConsoleNode(NamedTuple):
    """One node as a row of a table; each value is text, `?` if it is not known."""

    name: str
    address: str
    role: str
    term: str
    leader: str
    last_index: str
    durable_index: str
    commit_index: str
    applied_index: str
    lag: str
    note: str


class ConsoleGroup(NamedTuple):
    """One group of the overview.

    Attributes:
        state: well, or the severity of its worst finding.
    """

    name: str
    state: str
    leader: str
    term: str
    nodes: str
    tolerated: str
    commit_index: str
    findings: list[ConsoleFinding]


def number(value: int | None) -> str:
    """Return a number with commas; `?` for None."""
    return UNKNOWN if value is None else f"{value:,}"


def group_row(group: GroupView) -> ConsoleGroup:
    """Return a group as a row of the overview."""
    findings = findings_of(group)
    leader = group.leaders[0].state if group.leaders else None
    severe = [finding.severity for finding in findings if finding.severity is not Severity.NOTE]
    return ConsoleGroup(
        name=group.name,
        state=severe[0].value if severe else "well",
        leader=UNKNOWN if leader is None else leader.self_id,
        term=UNKNOWN if leader is None else number(leader.term),
        nodes=f"{len(group.live)} of {len(group.nodes)}",
        tolerated=number(tolerated_losses(group)),
        commit_index=number(_field(leader, "commit_index")),
        findings=findings,
    )


def node_rows(group: GroupView) -> list[ConsoleNode]:
    """Return the nodes of a group as rows; the lag is the leader's word, all other values are the node's own."""
    leader = group.leaders[0].state if group.leaders else None
    peers = {peer.id: peer for peer in leader.peers} if leader is not None else {}
    return [_node_row(node, leader, peers.get(node.name)) for node in group.nodes.values()]


def _node_row(node: WatchedNode, leader: WatchState | None, peer: WatchPeer | None) -> ConsoleNode:
    state = node.state
    is_leader = leader is not None and state is not None and leader.self_id == state.self_id
    lag = 0 if is_leader else None
    if leader is not None and peer is not None and peer.HasField("match_index") and leader.HasField("last_index"):
        lag = leader.last_index - peer.match_index
    note = node.fault or ("" if state is not None else "waiting for its answer")
    if not note and peer is not None and peer.is_stalled:
        note = "receives no entries"
    return ConsoleNode(
        name=node.name,
        address=node.address,
        role=UNKNOWN if state is None or node.fault else _role_of(state),
        term=number(_field(state, "term")),
        leader=UNKNOWN if state is None or not state.HasField("leader_id") else state.leader_id,
        last_index=number(_field(state, "last_index")),
        durable_index=number(_field(state, "durable_index")),
        commit_index=number(_field(state, "commit_index")),
        applied_index=number(_field(state, "applied_index")),
        lag=number(lag),
        note=note,
    )


def _role_of(state: WatchState) -> str:
    if state.role == "CANDIDATE":
        return "asks for pre-votes" if state.is_pre_vote else "candidate"
    learners = {member.id for member in state.members if not member.is_voter}
    return "learner" if state.self_id in learners else state.role.lower()


def _field(state: WatchState | None, name: str) -> int | None:
    if state is None:
        return None
    is_known = not state.DESCRIPTOR.fields_by_name[name].has_presence or state.HasField(name)  # type: ignore[arg-type]
    return int(getattr(state, name)) if is_known else None

"""What is wrong with a group now, and what to do about it. Pure: from the last states of its nodes.

Each finding has a command or a page of the documents. A group without findings has no fault that
the console knows; an unknown value is a finding, never taken for a good one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.console.group_view import GroupView, WatchedNode
    from dledger.v1.watch_pb2 import WatchState


class Severity(StrEnum):
    """How urgent a finding is; the value is shown."""

    DOWN = "down"
    RISK = "at risk"
    NOTE = "note"


class ConsoleFinding(NamedTuple):
    """One thing that is wrong.

    Attributes:
        severity: whether the group is down, may soon be, or works.
        text: what is wrong, and where.
        advice: what to do.
        command: for a terminal; empty: there is none.
    """

    severity: Severity
    text: str
    advice: str
    command: str = ""


def findings_of(group: GroupView) -> list[ConsoleFinding]:
    """Return the faults of a group, the most urgent first."""
    order = list(Severity)
    found = [*_of_leader(group), *_of_nodes(group), *_of_voters(group), *_of_members(group), *_of_followers(group)]
    return sorted(found, key=lambda finding: order.index(finding.severity))


def tolerated_losses(group: GroupView) -> int | None:
    """Return the number of voters that may fail now while appends continue; None: not known, without a leader."""
    leader = _leader_of(group)
    if leader is None:
        return None
    voters = [member.id for member in leader.members if member.is_voter]
    counted = {peer.id for peer in leader.peers if peer.is_live and peer.is_counted} | {leader.self_id}
    return len([voter for voter in voters if voter in counted]) - (len(voters) // 2 + 1)


def _leader_of(group: GroupView) -> WatchState | None:
    return group.leaders[0].state if group.leaders else None


def _of_leader(group: GroupView) -> Iterator[ConsoleFinding]:
    if not group.live:
        yield ConsoleFinding(
            Severity.DOWN,
            "no node of this group answers the console",
            "Check that the nodes run, that these are their client addresses, and that this user may read their state.",
            "dledger status",
        )
    elif not group.leaders:
        yield ConsoleFinding(
            Severity.DOWN,
            "no node leads: appends fail, and linearizable reads do",
            "An election takes about a second. If it lasts, start the nodes that are down: a majority of the voters "
            "must run and reach each other.",
            "dledger status",
        )
    elif len(group.leaders) > 1:
        old = ", ".join(node.name for node in group.leaders[1:])
        yield ConsoleFinding(
            Severity.NOTE,
            f"{old} leads an older term and has not learned of {group.leaders[0].name} yet",
            "It can commit nothing. If it lasts, check the network between the nodes.",
        )


def _of_nodes(group: GroupView) -> Iterator[ConsoleFinding]:
    for node in group.nodes.values():
        if not node.is_live and group.live:
            why = node.fault or "it has not answered yet"
            yield ConsoleFinding(
                Severity.RISK,
                f"{node.name} does not answer the console: {why}",
                "If the process has ended, start it: it catches up by itself.",
                "dledger status",
            )
        elif node.state is not None and node.is_live:
            yield from _of_disk(node, node.state)


def _of_disk(node: WatchedNode, state: WatchState) -> Iterator[ConsoleFinding]:
    if state.is_disk_full:
        yield ConsoleFinding(
            Severity.DOWN if state.role == "LEADER" else Severity.RISK,
            f"the disk of {node.name} is full",
            "Free space on it, or shorten the retention; appends continue by themselves.",
        )
    if state.is_disk_stalled:
        yield ConsoleFinding(
            Severity.RISK,
            f"the disk of {node.name} stalls: it does not lead",
            "Look at the disk's latency and at other users of it.",
        )


def _of_voters(group: GroupView) -> Iterator[ConsoleFinding]:
    left = tolerated_losses(group)
    leader = _leader_of(group)
    if left is None or leader is None:
        return
    voters = sum(member.is_voter for member in leader.members)
    if left < 0:
        yield ConsoleFinding(
            Severity.DOWN,
            f"{leader.self_id} leads without a majority of the {voters} voters",
            "Start the voters that do not answer: it soon steps down.",
        )
    elif left == 0 and voters > 1:
        yield ConsoleFinding(
            Severity.RISK,
            "no further voter may fail: then appends stop",
            "Bring back the voters below, or replace them.",
            "dledger members list",
        )
    elif voters < 3:
        yield ConsoleFinding(
            Severity.NOTE,
            f"the group has {voters} voter{'s' if voters > 1 else ''}: it tolerates no failure",
            "Three voters tolerate one failure. Add nodes as learners, then promote them.",
            "dledger members add ID-HOST:PORT",
        )


def _of_members(group: GroupView) -> Iterator[ConsoleFinding]:
    leader = _leader_of(group)
    if leader is None:
        return
    if not leader.is_membership_committed:
        yield ConsoleFinding(
            Severity.NOTE,
            "a change of members is not committed yet",
            "It is, as soon as a majority of the new voters has it.",
            "dledger members list",
        )
    shown = {node.name for node in group.nodes.values()}
    missing = [member.id for member in leader.members if member.id not in shown]
    if missing and all(node.state is not None for node in group.nodes.values()):
        yield ConsoleFinding(
            Severity.NOTE,
            f"the console does not watch {', '.join(missing)}",
            "Start the console with the client addresses of all members.",
        )


def _of_followers(group: GroupView) -> Iterator[ConsoleFinding]:
    leader = _leader_of(group)
    for peer in () if leader is None else leader.peers:
        if not peer.is_live:
            yield ConsoleFinding(
                Severity.RISK,
                f"{peer.id} does not answer the leader",
                "If its process runs, check the network between their peer addresses.",
                "dledger members list",
            )
        elif peer.is_stalled:
            yield ConsoleFinding(
                Severity.RISK,
                f"{peer.id} answers the leader, but receives no entries",
                "Its log and that of the leader have the reason.",
                "dledger members list",
            )
        if peer.is_voter and not peer.is_counted and peer.HasField("answered_ms_ago"):
            yield ConsoleFinding(
                Severity.RISK,
                f"{peer.id} lost its disk and has no vote yet",
                "It regains its vote by itself when it has caught up.",
                "dledger members list",
            )
        if peer.is_disk_unhealthy:
            yield ConsoleFinding(
                Severity.RISK,
                f"{peer.id} reports to the leader that its disk stalls or is full",
                "Look at its disk; the leadership is not transferred to it.",
            )

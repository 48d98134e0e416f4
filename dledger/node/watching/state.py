"""The state of a node for watchers: what the node knows now, with None where it knows nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dledger.core.state.roles import Candidate, Leader
from dledger.types import NO_INDEX

if TYPE_CHECKING:
    from dledger.core.raft import Raft
    from dledger.core.state.progress import Progress
    from dledger.node.status import NodeStatus, PeerStatus
    from dledger.node.watching.stalls import StallWatch


@dataclass(frozen=True, slots=True)
class WatchedPeer:
    """One member as its leader sees it.

    Attributes:
        id, is_voter, is_live, is_counted, is_disk_healthy: as in `dledger.node.status.PeerStatus`.
        match_index: last index known to be durable there; None: not known.
        sent_index: last index that was sent to it; None while the logs are compared.
        in_flight_bytes: of the pushes without an answer.
        answered_ms_ago: since its last answer; None: it has not answered this leader. Two states that differ only in
            this are equal.
        is_stalled: it lacks entries and receives none (`stalls`).
        snapshot_sent_bytes, snapshot_size_bytes: while it receives a snapshot; else None.
    """

    id: str
    is_voter: bool
    is_live: bool
    is_counted: bool
    is_disk_healthy: bool
    match_index: int | None
    sent_index: int | None
    in_flight_bytes: int
    answered_ms_ago: int | None = field(compare=False)
    is_stalled: bool
    snapshot_sent_bytes: int | None
    snapshot_size_bytes: int | None


@dataclass(frozen=True, slots=True)
class WatchedState:
    """The state of one node.

    Attributes:
        status: of the node; its `peers` are not used.
        voted_for: the node that got this node's vote in the term; None: none did.
        is_pre_vote: a candidate asks for pre-votes.
        transfer_target: the node to which the leadership is being transferred; None: there is no transfer.
        durable_index: last index that is durable here; None: there is none.
        peers: on a leader, every other member.
    """

    status: NodeStatus
    voted_for: str | None
    is_pre_vote: bool
    transfer_target: str | None
    durable_index: int | None
    peers: tuple[WatchedPeer, ...]


def known(index: int) -> int | None:
    """Return an index, or None for `NO_INDEX`."""
    return None if index == NO_INDEX else index


def state_of(raft: Raft, status: NodeStatus, durable_index: int, stalls: StallWatch) -> WatchedState:
    """Return the state of a node; loop thread only.

    Args:
        raft: its core.
        status: its status, with the peers of a leader.
        durable_index: of its store.
        stalls: what was last seen of its followers.
    """
    state = raft.state
    role_state = state.role_state
    progress_of = role_state.progress if isinstance(role_state, Leader) else {}
    peers = [
        _peer_of(peer, progress_of[peer.id], state.now_ms, is_stalled=stalls.is_stalled(peer.id))
        for peer in status.peers
        if peer.id in progress_of
    ]
    return WatchedState(
        status=status,
        voted_for=state.voted_for,
        is_pre_vote=isinstance(role_state, Candidate) and role_state.is_pre_vote,
        transfer_target=None if state.transfer is None else state.transfer.target,
        durable_index=known(durable_index),
        peers=tuple(peers),
    )


def _peer_of(peer: PeerStatus, progress: Progress, now_ms: int, *, is_stalled: bool) -> WatchedPeer:
    installation = progress.installation
    snapshot = None if installation is None else installation.snapshot
    return WatchedPeer(
        id=peer.id,
        is_voter=peer.is_voter,
        is_live=peer.is_live,
        is_counted=peer.is_counted,
        is_disk_healthy=peer.is_healthy,
        match_index=known(peer.match_index),
        sent_index=None if progress.is_probing else known(progress.next_index - 1),
        in_flight_bytes=progress.in_flight_size_bytes,
        answered_ms_ago=None if progress.incarnation is None else max(now_ms - progress.contact_ms, 0),
        is_stalled=is_stalled,
        snapshot_sent_bytes=None if installation is None or snapshot is None else installation.sent_bytes,
        snapshot_size_bytes=None if snapshot is None else snapshot.size_bytes,
    )

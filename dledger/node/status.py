"""The status of a node and, on a leader, of its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.types import MembershipEntry, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.config import NodeConfig
    from dledger.core.raft import Raft
    from dledger.entries.aside import AsideRecord
    from dledger.entries.store import EntryStore


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of one node.

    Attributes:
        begin_index: first retained index; `begin_position` is its byte position.
        end_index: last index; `end_position` is the byte position after it.
        commit_index: last committed index; `commit_position` is the byte position after it.
        peers: on a leader, every other member.
        is_disk_full: appends are refused because the disk is full.
        membership: in force here.
        is_membership_committed: it is known to be committed.
        is_disk_stalled: the disk stalls; the node neither leads nor starts elections.
        is_founding, incarnation: see `dledger.types.HardState`.
        applied_index: last entry that the state machine has applied; -1 without one.
        snapshot_index: last entry in its newest snapshot; -1 without one.
        aside_files, aside: the log that a reset replaced, until it is deleted (`dledger.entries.aside`).
    """

    group: str
    self_id: str
    role: Role
    term: int
    leader: KnownLeader
    begin_index: int
    begin_position: int
    end_index: int
    end_position: int
    commit_index: int
    commit_position: int
    peers: tuple[PeerStatus, ...]
    is_disk_full: bool
    membership: MembershipEntry
    is_membership_committed: bool
    is_disk_stalled: bool
    is_founding: bool
    incarnation: int
    applied_index: int
    snapshot_index: int
    aside_files: int
    aside: AsideRecord | None


@dataclass(frozen=True, slots=True)
class KnownLeader:
    """The leader's id and client address; both empty while no leader is known, the address while it is unknown."""

    id: str = ""
    client_address: str = ""


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """The replication state of one peer, from its leader.

    Attributes:
        id: the peer's.
        address: of its peer transport.
        client_address: of its LogService; empty until the peer has sent it.
        match_index: last index known to be durable there; -1 when nothing is known.
        lag_entries: entries that it lacks up to the leader's end.
        lag_bytes: the same in bytes of the log.
        is_live: it answered within an election timeout.
        is_voter: it is a voter in the membership; it counts only if `is_counted`.
        is_healthy: it reports that its disk neither stalls nor is full.
        is_counted: its incarnation is the one in the membership; False after it was wiped.
        is_refusing_corrupt: it could not verify the last entries that were sent to it.
        is_contradicting: its last answer was that entries other than the pushed ones are committed.
    """

    id: str
    address: str
    client_address: str
    match_index: int
    lag_entries: int
    lag_bytes: int
    is_live: bool
    is_voter: bool
    is_healthy: bool
    is_counted: bool
    is_refusing_corrupt: bool
    is_contradicting: bool


def status_of(
    config: NodeConfig,
    raft: Raft,
    store: EntryStore,
    leader: KnownLeader,
    *,
    client_address_of: Callable[[str], str],
    is_disk_full: bool,
    applied_index: int,
    snapshot_index: int,
) -> NodeStatus:
    """Return the status of a node; loop thread only."""
    return NodeStatus(
        group=config.group,
        self_id=config.self_id,
        role=raft.role,
        term=raft.term,
        leader=leader,
        begin_index=store.begin_index,
        begin_position=store.begin_position,
        end_index=store.last_index,
        end_position=store.end_position,
        commit_index=raft.commit_index,
        commit_position=position_after(store, raft.commit_index),
        peers=_peers_of(config, raft, store, client_address_of) if raft.role is Role.LEADER else (),
        is_disk_full=is_disk_full,
        membership=raft.memberships[-1],
        is_membership_committed=len(raft.memberships) == 1,
        is_disk_stalled=raft.is_disk_stalled,
        is_founding=raft.hard_state.is_founding,
        incarnation=raft.hard_state.incarnation,
        applied_index=applied_index,
        snapshot_index=snapshot_index,
        aside_files=store.aside.files_count,
        aside=store.aside.record,
    )


def position_after(store: EntryStore, index: int) -> int:
    """Return the byte position after entry `index`; the log's start for an index before it."""
    return store.end_position_of(index) if index >= store.begin_index else store.begin_position


def _peers_of(
    config: NodeConfig, raft: Raft, store: EntryStore, client_address_of: Callable[[str], str]
) -> tuple[PeerStatus, ...]:
    peers = []
    for member in raft.membership.members:
        if member.id == config.self_id:
            continue
        match_index = raft.match_index_of(member.id)
        peers.append(
            PeerStatus(
                id=member.id,
                address=member.address,
                client_address=client_address_of(member.id),
                match_index=match_index,
                lag_entries=store.last_index - max(match_index, store.begin_index - 1),
                lag_bytes=store.end_position - position_after(store, match_index),
                is_live=raft.is_live(member.id),
                is_voter=member.is_voter,
                is_healthy=raft.is_healthy(member.id),
                is_counted=raft.is_counted(member.id),
                is_refusing_corrupt=raft.is_refusing_corrupt(member.id),
                is_contradicting=raft.is_contradicting(member.id),
            )
        )
    return tuple(peers)

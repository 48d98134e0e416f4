"""Linearizable reads: by a heartbeat round (ReadIndex), by lease, or on a follower with the leader's read index.

Sources: dissertation §6.4 (read index), §6.4.1 (lease). A read index covers every append that was acknowledged before
the read began. A new leader knows it only when its no-op is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core import replication
from dledger.core.events import ReadReady, ReadRefused
from dledger.core.messages import ReadIndexRequest, ReadIndexResponse
from dledger.core.state import membership
from dledger.core.state.roles import AskedRead, Follower, Leader, PendingRead
from dledger.types import NO_INDEX, Role

if TYPE_CHECKING:
    from dledger.core.config import RaftConfig
    from dledger.core.state.consensus import State

# Waiting reads of one peer, and of all peers and this node; more are refused. A node sends at most two requests per
# batch.
PEER_READS_MAX = 1_024
READS_MAX = 4_096
_PPM = 1_000_000
# A leader renews its lease for this number of election timeouts after a read that allows it. Without a lease, followers
# elect another leader at once when the process of this one has ended.
_LEASE_TIMEOUTS = 5


def on_read_index(state: State, read_id: int, *, is_lease_allowed: bool) -> None:
    """Begin a read for a caller of this node."""
    if state.role is Role.LEADER:
        if is_lease_allowed:
            state.leader.lease_wanted_until_ms = state.now_ms + _LEASE_TIMEOUTS * state.config.max_election_timeout_ms
        if is_lease_allowed and has_lease(state):
            state.emit(ReadReady(read_id, state.commit_index))
        else:
            _begin(state, read_id, None)
    elif state.leader_id is not None:
        # An answer that takes longer than an election may come from a deposed leader.
        state.last_asked_id += 1
        deadline_ms = state.now_ms + state.config.max_election_timeout_ms
        state.follower.asked_reads[state.last_asked_id] = AskedRead(read_id, deadline_ms)
        state.send(state.leader_id, ReadIndexRequest(term=state.term, read_id=state.last_asked_id))
    else:
        state.emit(ReadRefused(read_id))


def on_request(state: State, sender: str, request: ReadIndexRequest) -> None:
    """Begin a read for another member; refuse it if too many reads wait, or the sender is not a member."""
    if not _may_ask(state, sender):
        state.send(sender, ReadIndexResponse(term=state.term, read_id=request.read_id, index=NO_INDEX))
        return
    _begin(state, request.read_id, sender)


def _may_ask(state: State, sender: str) -> bool:
    role_state = state.role_state
    if not isinstance(role_state, Leader) or all(each.membership.get(sender) is None for each in state.memberships):
        return False
    # The bound of all reads is checked first: it bounds the cost of counting those of one peer.
    return len(role_state.reads) < READS_MAX and sum(read.peer == sender for read in role_state.reads) < PEER_READS_MAX


def on_response(state: State, sender: str, response: ReadIndexResponse) -> None:
    """Serve a read of this node as soon as the leader's read index is committed here."""
    role_state = state.role_state
    if (
        not isinstance(role_state, Follower)
        or state.leader_id != sender
        or response.read_id not in role_state.asked_reads
    ):
        return
    read = role_state.asked_reads[response.read_id]
    if response.index == NO_INDEX:
        del role_state.asked_reads[response.read_id]
        state.emit(ReadRefused(read.read_id))
    elif response.index <= state.commit_index:
        del role_state.asked_reads[response.read_id]
        state.emit(ReadReady(read.read_id, response.index))
    else:
        read.index = response.index


def tick(state: State, follower: Follower) -> None:
    """Refuse the reads that the leader did not answer in time."""
    late = [asked_id for asked_id, read in follower.asked_reads.items() if state.now_ms >= read.deadline_ms]
    for asked_id in late:
        state.emit(ReadRefused(follower.asked_reads.pop(asked_id).read_id))


def drop(state: State, peer: str) -> None:
    """Refuse the reads of `peer`, whose connection broke: the next connection may be from another process."""
    leader = state.leader
    for read in [read for read in leader.reads if read.peer == peer]:
        leader.reads.remove(read)
        state.send(peer, ReadIndexResponse(term=state.term, read_id=read.read_id, index=NO_INDEX))


def _begin(state: State, read_id: int, peer: str | None) -> None:
    """Record the commit index, then confirm that this node still leads."""
    # Until our no-op commits, our commit index may be too low.
    leader = state.leader
    index = max(state.commit_index, leader.term_start_index)
    leader.reads.append(PendingRead(read_id, index, leader.round + 1, peer))
    answer(state)


def answer(state: State) -> None:
    """Answer confirmed and committed reads; start the next round for reads that arrived during the last one."""
    leader = state.leader
    while leader.reads:
        confirmed = membership.agreed(state, leader.round, lambda progress: progress.round)
        waiting = []
        for read in leader.reads:
            if read.round > confirmed or read.index > state.commit_index:
                waiting.append(read)
            elif read.peer is None:
                state.emit(ReadReady(read.read_id, read.index))
            else:
                response = ReadIndexResponse(term=state.term, read_id=read.read_id, index=read.index)
                state.send(read.peer, response)
        leader.reads = waiting
        unconfirmed = [read.round for read in waiting if read.round > confirmed]
        if not unconfirmed or min(unconfirmed) <= leader.round:
            return
        replication.broadcast_heartbeat(state)


def has_lease(state: State) -> bool:
    """Return whether no other node can have been elected yet, given the bound on clock drift.

    A voter that answered a heartbeat of a round that renews the lease grants no vote for `min_election_timeout_ms`
    after it, also if it considers this leader gone. The lease counts from the moment at which this leader sent the
    heartbeat, so it expires before the voters' timeouts, even if their clocks are faster than ours by twice the drift.
    """
    leader = state.leader
    if leader.is_lease_void or state.commit_index < leader.term_start_index:
        return False
    confirmed = membership.agreed(state, leader.round, lambda progress: progress.round)
    begun_ms = next((ms for number, ms in reversed(leader.round_times) if number <= confirmed), None)
    return begun_ms is not None and state.now_ms - begun_ms < lease_ms_of(state.config)


def lease_ms_of(config: RaftConfig) -> int:
    """Return the duration of a lease if the leader's clock is as slow and a voter's as fast as allowed.

    A voter counts whole milliseconds: up to one of them may be missing.
    """
    drift_ppm = config.max_clock_drift_ppm
    return (config.min_election_timeout_ms - 1) * (_PPM - drift_ppm) // (_PPM + drift_ppm)

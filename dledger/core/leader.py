"""The leader's side of replication: no-op, pushes, commit by majority, heartbeats, check-quorum, read indexes."""

from __future__ import annotations

from typing import Any

from dledger.core.events import AppendProposal, ReadReady, ReadRefused, Refuse
from dledger.core.messages import Heartbeat, HeartbeatResponse, Push, PushAccepted, PushRefused
from dledger.core.progress import Progress
from dledger.core.quorum import majority_value
from dledger.core.state import PendingRead, State
from dledger.core.transitions import advance_commit, become_follower
from dledger.types import NO_INDEX, NO_TERM, Role

# ------------------------------------------------------------------------------------------- taking and leaving office


def take_office(state: State) -> None:
    """Lead: append a no-op, for only an entry of our own term can be committed by counting (Raft §5.4.2, §8)."""
    state.role = Role.LEADER
    state.leader_id = state.self_id
    next_index = state.log.last_index + 1
    state.progress = {peer: Progress(next_index=next_index, contact_ms=state.now_ms) for peer in state.others}
    state.term_start_index = next_index
    state.round = 0
    _append(state, None, 1)
    _broadcast_heartbeat(state)
    for peer in state.others:
        _push(state, peer)


def tick(state: State) -> None:
    """Step down without a quorum; else show that we live, tell commits, and ask again where answers are overdue."""
    if not _has_quorum(state):
        become_follower(state, state.term, None)
        return
    if state.now_ms >= state.heartbeat_due_ms:
        _broadcast_heartbeat(state)
    for peer, progress in state.progress.items():
        if progress.commit_sent < progress.commit_due:
            _send_heartbeat(state, peer, progress)
        progress.commit_due = min(progress.match_index, state.commit_index)
        if progress.is_overdue(state.now_ms, state.config.max_push_time_out_ms):
            progress.retry()
            _push(state, peer)


def _has_quorum(state: State) -> bool:
    """Say whether a majority, with us, answered within an election timeout (dissertation §6.2: check-quorum)."""
    time_out_ms = state.config.max_election_timeout_ms
    live = sum(progress.is_live(state.now_ms, time_out_ms) for progress in state.progress.values())
    return live + 1 >= state.quorum


# ------------------------------------------------------------------------------------------- appending and pushing


def on_propose(state: State, proposal: Any, count: int) -> None:
    """Append a client's entries, or refuse them when we do not lead."""
    if state.role is not Role.LEADER:
        state.emit(Refuse(proposal))
        return
    _append(state, proposal, count)


def _append(state: State, proposal: Any, count: int) -> None:
    first_index = state.log.last_index + 1
    state.emit(AppendProposal(proposal, first_index, state.term))
    state.log.append(first_index + count - 1, state.term)


def on_written(state: State) -> None:
    """Push what was just written; our own disk works at the same time (dissertation §10.2.1)."""
    for peer in state.progress:
        _push(state, peer)


def _push(state: State, peer: str) -> None:
    """Send all that the peer's window allows."""
    progress = state.progress[peer]
    if state.now_ms < progress.paused_until_ms:
        return
    if progress.is_probing:
        if not progress.is_waiting:
            _send_probe(state, peer, progress)
        return
    config = state.config
    while progress.next_index <= state.written_index and len(progress.in_flight) < config.max_push_window:
        span = state.fit(progress.next_index, state.written_index, config.max_push_size_bytes)
        commit_index = min(state.commit_index, span.last_index)
        prev_index = span.first_index - 1
        state.send(
            peer,
            Push(
                term=state.term,
                prev_index=prev_index,
                prev_term=state.log.term_at(prev_index),
                commit_index=commit_index,
                span=span,
            ),
        )
        progress.commit_sent = commit_index
        progress.sent_push(span.last_index, state.now_ms)


def _send_probe(state: State, peer: str, progress: Progress) -> None:
    """Ask whether the logs agree in front of `next_index`."""
    prev_index = progress.next_index - 1
    state.send(
        peer,
        Push(
            term=state.term,
            prev_index=prev_index,
            prev_term=state.log.term_at(prev_index),
            commit_index=min(state.commit_index, prev_index),
            span=None,
        ),
    )
    progress.sent_probe(state.now_ms)


def on_push_accepted(state: State, sender: str, response: PushAccepted) -> None:
    """Move the follower's match index, commit what a majority holds, and push on."""
    progress = state.progress[sender]
    progress.contact_ms = state.now_ms
    if response.match_index > state.log.last_index:
        return
    progress.accepted(response.match_index, state.now_ms)
    _commit_by_majority(state)
    _push(state, sender)


def on_push_refused(state: State, sender: str, response: PushRefused) -> None:
    """Find, without walking entry by entry, where the follower's log can meet ours (Raft §5.3, last paragraphs)."""
    progress = state.progress[sender]
    progress.contact_ms = state.now_ms
    if response.is_disk_full:
        progress.retry()
        _pause(state, progress)
        return
    if progress.is_probing:
        if response.rejected_prev_index != progress.next_index - 1:
            return
        # Here the follower may turn out to hold less than it once acknowledged: its disk was wiped.
        progress.match_index = min(progress.match_index, response.last_index)
    elif response.rejected_prev_index <= progress.match_index:
        return
    next_index = max(_meeting_point(state, response), progress.match_index + 1, state.log.begin_index)
    if next_index > response.rejected_prev_index:
        # It lacks what we no longer keep. Asking again at once would only spin.
        _pause(state, progress)
    progress.probe(next_index)
    _push(state, sender)


def _pause(state: State, progress: Progress) -> None:
    progress.paused_until_ms = state.now_ms + state.config.heart_beat_time_interval_ms


def _meeting_point(state: State, response: PushRefused) -> int:
    """Return the greatest index that the follower might take next, given its answer."""
    log = state.log
    if response.conflict_term == NO_TERM:
        next_index = response.last_index + 1
    else:
        # If we hold its conflicting term, the logs may agree up to our end of it; else all of it must go.
        ours = log.last_index_of_term(response.conflict_term, response.rejected_prev_index)
        next_index = ours + 1 if ours != NO_INDEX else response.conflict_first_index
    return min(next_index, response.rejected_prev_index)


def on_peer_unreachable(state: State, peer: str) -> None:
    """Take all that was under way to `peer` for lost; the next sign of life starts a probe."""
    state.progress[peer].retry()


def _commit_by_majority(state: State) -> None:
    matches = [progress.match_index for progress in state.progress.values()]
    index = majority_value([*matches, state.persisted_index])
    # "Only log entries from the leader's current term are committed by counting replicas" (Raft §5.4.2).
    if index > state.commit_index and state.log.term_at(index) == state.term:
        advance_commit(state, index)
        _answer_reads(state)


def on_persisted(state: State) -> None:
    """Count our own disk, which is one voice among the voters."""
    _commit_by_majority(state)


# ------------------------------------------------------------------------------------------- heartbeats and reads


def _broadcast_heartbeat(state: State) -> None:
    state.round += 1
    state.heartbeat_due_ms = state.now_ms + state.config.heart_beat_time_interval_ms
    for peer, progress in state.progress.items():
        _send_heartbeat(state, peer, progress)


def _send_heartbeat(state: State, peer: str, progress: Progress) -> None:
    commit_index = min(progress.match_index, state.commit_index)
    progress.commit_sent = commit_index
    state.send(peer, Heartbeat(term=state.term, commit_index=commit_index, round=state.round))


def on_heartbeat_response(state: State, sender: str, response: HeartbeatResponse) -> None:
    """Note that the peer follows us; answer the reads that waited for it; take up a probe that was lost."""
    progress = state.progress[sender]
    progress.contact_ms = state.now_ms
    progress.round = max(progress.round, response.round)
    _answer_reads(state)
    _push(state, sender)


def on_read_index(state: State, read_id: int) -> None:
    """Begin a linearizable read: remember the commit index, then make sure that we still lead (dissertation §6.4)."""
    if state.role is not Role.LEADER:
        state.emit(ReadRefused(read_id))
        return
    # Until our no-op commits we may not know all that is committed.
    index = max(state.commit_index, state.term_start_index)
    state.reads.append(PendingRead(read_id, index, state.round + 1))
    _answer_reads(state)


def _answer_reads(state: State) -> None:
    """Answer what is confirmed and committed; start the next round for reads that came while one was under way."""
    while state.reads:
        confirmed = majority_value([state.round, *(progress.round for progress in state.progress.values())])
        waiting = []
        for read in state.reads:
            if read.round <= confirmed and read.index <= state.commit_index:
                state.emit(ReadReady(read.read_id, read.index))
            else:
                waiting.append(read)
        state.reads = waiting
        unconfirmed = [read.round for read in waiting if read.round > confirmed]
        if not unconfirmed or min(unconfirmed) <= state.round:
            return
        _broadcast_heartbeat(state)

"""The leader's side of replication: no-op, pushes, commit by majority, heartbeats, check-quorum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dledger.core import catch_up, membership_changes, reads, replication, transfer
from dledger.core.commits import advance_commit
from dledger.core.events import (
    AppendMembership,
    AppendProposal,
    MessageRejected,
    Refuse,
    RejectReason,
    TransitionCause,
)
from dledger.core.messages import HeartbeatResponse, PushAccepted, PushRefused, SnapshotProgress
from dledger.core.state import membership, voting_rights
from dledger.core.transitions import step_down, win_election
from dledger.errors import ResponseCode
from dledger.types import GROUP_ID_END, NO_GROUP, NO_INDEX, NO_TERM, MembershipEntry, Role

if TYPE_CHECKING:
    from dledger.core.state.consensus import State
    from dledger.core.state.progress import Progress

# The pause after a push that a follower cannot verify doubles at most this number of times (6.4 s by default).
_CORRUPT_DOUBLINGS_MAX = 6

# ------------------------------------------------------------------------------------------- beginning and ending
# leadership


def become_leader(state: State, *, is_founding: bool) -> None:
    """Begin to lead with an entry, because only entries of our own term are committed by counting (Raft §5.4.2, §8).

    `is_founding`: the group begins with this election; founding voters are informed (ADR 7).
    """
    win_election(state, frozenset(state.voters) if is_founding else frozenset())
    membership_changes.refresh_followers(state)
    if state.group_id == NO_GROUP:
        _found(state)
    else:
        _append(state, None, 1)
    if state.is_founding and not is_founding:
        # This node is founding, but was elected by voters that are not: they have not agreed on its group id.
        state.founding_group_id = NO_GROUP
    state.is_founding = False
    replication.broadcast_heartbeat(state)
    for peer in state.leader.progress:
        replication.push(state, peer)


def _found(state: State) -> None:
    """Begin the term with a membership that has the group id, instead of a no-op.

    Either the group is new, and the vote requests carried this id. Or an older version without ids wrote the log: then
    the id is drawn here, and a leader that is elected before the entry is committed draws another.
    """
    group_id = state.named_group_id
    if group_id == NO_GROUP:
        group_id = state.draw(1, GROUP_ID_END)
    founded = replace(state.memberships[-1].membership, group_id=group_id)
    entry = MembershipEntry(state.log.last_index + 1, founded)
    membership.add(state, [entry])
    state.emit(AppendMembership(entry, state.term))
    state.log.append(entry.index, state.term)


def tick(state: State) -> None:
    """Step down without a quorum; else send heartbeats and commit indexes, and retry if answers are overdue."""
    if not _has_quorum(state):
        step_down(state, TransitionCause.QUORUM_LOST)
        return
    if state.now_ms >= state.leader.heartbeat_due_ms:
        replication.broadcast_heartbeat(state)
        transfer.ask_target(state)
    has_removed_peer = False
    for peer, progress in state.leader.progress.items():
        if progress.commit_sent < progress.commit_due:
            replication.send_heartbeat(state, peer, progress)
        progress.commit_due = min(progress.match_index, state.commit_index)
        if progress.is_overdue(state.now_ms, state.config.max_push_time_out_ms):
            replication.retry(state, peer, progress)
        elif progress.is_throttled:
            replication.push(state, peer)
        has_removed_peer |= progress.leaves_ms >= 0
    if has_removed_peer:
        membership_changes.forget_removed_peers(state)
    transfer.check_full_disk(state)
    transfer.transfer_to_preferred(state)


def _has_quorum(state: State) -> bool:
    """Return whether a majority answered within an election timeout, with us (dissertation §6.2: check-quorum)."""
    progress, time_out_ms = state.leader.progress, state.config.max_election_timeout_ms
    live = sum(voter == state.self_id or progress[voter].is_live(state.now_ms, time_out_ms) for voter in state.voters)
    return live >= state.quorum


# ------------------------------------------------------------------------------------------- appending and pushing


def on_propose(state: State, proposal: Any, count: int) -> None:
    """Append a client's entries, or refuse them if this node does not lead or transfers its leadership."""
    if state.role is not Role.LEADER:
        state.emit(Refuse(proposal))
    elif state.transfer is not None:
        state.emit(Refuse(proposal, ResponseCode.LEADER_TRANSFERRING))
    elif voting_rights.is_being_founded(state):
        state.emit(Refuse(proposal, ResponseCode.LEADER_NOT_READY))
    else:
        _append(state, proposal, count)


def _append(state: State, proposal: Any, count: int) -> None:
    first_index = state.log.last_index + 1
    state.emit(AppendProposal(proposal, first_index, state.term))
    state.log.append(first_index + count - 1, state.term)


def on_written(state: State) -> None:
    """Push the entries just written; our own disk syncs them at the same time (dissertation §10.2.1)."""
    for peer in state.leader.progress:
        replication.push(state, peer)


def _note_answer(state: State, sender: str) -> Progress:
    """Record an answer without an incarnation: it shows only that the sender lives."""
    progress = state.leader.progress[sender]
    progress.note_contact(state.now_ms, state.config.max_election_timeout_ms)
    return progress


def _note_incarnation(state: State, sender: str, incarnation: int, answered_round: int = 0) -> Progress | None:
    """Record an answer with an incarnation; return None if it may be from before the sender's disk was lost.

    Only these answers readmit their sender: for them alone, the driver reserves space for the entry before the core
    receives them (`dledger.driver.admission`). An entry that does not fit would stop this node.
    """
    progress = state.leader.progress[sender]
    if not voting_rights.recognise(state, progress, incarnation, answered_round):
        return None
    _note_answer(state, sender)
    if incarnation != state.incarnations.get(sender):
        membership_changes.readmit(state, sender, progress)
    return progress


def on_push_accepted(state: State, sender: str, response: PushAccepted) -> None:
    """Advance the follower's match index, commit what a majority has, and send the next pushes."""
    progress = _note_incarnation(state, sender, response.incarnation)
    if progress is None or response.match_index > state.log.last_index:
        return
    if progress.installation is not None and response.match_index < state.log.begin_index - 1:
        return
    progress.accepted(response.match_index, state.now_ms)
    _commit_by_majority(state)
    if state.role is Role.LEADER:
        if state.transfer is not None:
            transfer.ask_target(state)
        replication.push(state, sender)


def on_push_refused(state: State, sender: str, response: PushRefused) -> None:
    """Find the last index at which the follower's log may equal ours, without probing each entry (end of Raft §5.3)."""
    progress = _note_answer(state, sender)
    if progress.installation is not None:
        return
    if response.is_disk_full:
        progress.retry()
        progress.paused_until_ms = state.now_ms + state.config.heart_beat_time_interval_ms
        return
    if response.is_corrupt:
        # If they were sent again at once, the same bytes would probably fail again, in a tight loop.
        progress.retry()
        progress.corrupt_count += 1
        pause_ms = state.config.heart_beat_time_interval_ms << min(progress.corrupt_count, _CORRUPT_DOUBLINGS_MAX)
        progress.paused_until_ms = state.now_ms + pause_ms
        return
    if response.is_contradicting:
        # A retry cannot succeed; an operator must act.
        state.emit(MessageRejected(sender, RejectReason.CONTRADICTED, PushRefused.__name__, response.term))
        progress.retry()
        progress.is_contradicting = True
        progress.paused_until_ms = state.now_ms + (state.config.heart_beat_time_interval_ms << _CORRUPT_DOUBLINGS_MAX)
        return
    if progress.is_probing:
        if response.rejected_prev_index != progress.next_index - 1:
            return
        # The follower may have less than it once acknowledged: its disk was wiped.
        progress.match_index = min(progress.match_index, response.last_index)
    elif response.rejected_prev_index <= progress.match_index:
        return
    else:
        _pause_if_overtaken(state, progress)
    progress.probe(_next_to_try(state, progress, response))
    replication.push(state, sender)


def _pause_if_overtaken(state: State, progress: Progress) -> None:
    """Pause when a push of the window was refused twice within a heartbeat interval.

    After a lost push, the later pushes of the window are refused once, before the probe that follows them. A second
    refusal within the interval means that messages overtake one another: each refusal of the old window would start
    another window, with more refusals.
    """
    pause_ms = state.config.heart_beat_time_interval_ms
    if state.now_ms < progress.window_refused_ms + pause_ms:
        progress.paused_until_ms = state.now_ms + pause_ms
    progress.window_refused_ms = state.now_ms


def _next_to_try(state: State, progress: Progress, response: PushRefused) -> int:
    """Return the first index of the next push; below our begin if the follower lacks entries that we deleted."""
    next_index = max(_next_after_conflict(state, response), progress.match_index + 1)
    begin_index = state.log.begin_index
    if next_index < begin_index <= min(response.last_index + 1, response.rejected_prev_index):
        # The logs may agree up to our begin; before it we know only the term of one entry.
        return begin_index
    return next_index


def _next_after_conflict(state: State, response: PushRefused) -> int:
    """Return the greatest index that the follower may accept next, given its answer."""
    log = state.log
    if response.conflict_term == NO_TERM:
        next_index = response.last_index + 1
    else:
        # If our log has the conflicting term, the logs may agree up to our last entry of it; else none of it agrees.
        ours = log.last_index_of_term(response.conflict_term, response.rejected_prev_index)
        next_index = ours + 1 if ours != NO_INDEX else response.conflict_first_index
    return min(next_index, response.rejected_prev_index)


def on_peer_unreachable(state: State, peer: str) -> None:
    """Consider everything in flight to and from `peer` lost; its next message starts a probe."""
    reads.drop(state, peer)
    progress = state.leader.progress.get(peer)
    if progress is None:
        return
    if progress.installation is None:
        progress.retry()
    else:
        progress.is_waiting = False


def _commit_by_majority(state: State) -> None:
    index = membership.agreed(state, state.persisted_index, lambda progress: progress.match_index)
    # "Only log entries from the leader's current term are committed by counting replicas" (Raft §5.4.2).
    if index > state.commit_index and state.log.term_at(index) == state.term:
        advance_commit(state, index)
        reads.answer(state)
        membership_changes.committed(state)


def on_persisted(state: State) -> None:
    """Count this node's own durable entries towards the majority."""
    _commit_by_majority(state)


def on_heartbeat_response(state: State, sender: str, response: HeartbeatResponse) -> None:
    """Record that the peer follows us; answer the reads that waited for it; repeat a lost probe."""
    progress = _note_incarnation(state, sender, response.incarnation, response.round)
    if progress is None:
        return
    if progress.is_healthy != response.is_healthy:
        progress.is_healthy = response.is_healthy
        progress.steady_since_ms = state.now_ms
    progress.round = max(progress.round, response.round)
    if response.is_unmatched and progress.installation is None and not progress.is_probing:
        progress.retry()
    reads.answer(state)
    replication.push(state, sender)


def on_snapshot_progress(state: State, sender: str, response: SnapshotProgress) -> None:
    """Continue the installation of a snapshot on a follower."""
    catch_up.on_snapshot_progress(state, _note_answer(state, sender), sender, response)

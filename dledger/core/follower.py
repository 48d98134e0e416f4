"""The follower's side of replication: compare, truncate a conflict, append, acknowledge when durable (Raft §5.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.commits import learn_commit
from dledger.core.events import AppendPushed, EntriesLost, MessageRejected, RejectReason, TruncateFrom
from dledger.core.messages import Heartbeat, HeartbeatResponse, Push, PushAccepted, PushRefused
from dledger.core.state import membership, voting_rights
from dledger.core.state.roles import Follower
from dledger.core.transitions import follow, waiting_time_ms
from dledger.errors import InvariantBroken
from dledger.types import NO_INDEX, NO_TERM, UNKNOWN_TERM, Role, Span

if TYPE_CHECKING:
    from dledger.core.state.consensus import State


def on_heartbeat(state: State, sender: str, heartbeat: Heartbeat) -> None:
    """Stay a follower; advance the commit index, and report it if it exceeds the matched index."""
    note_leader_contact(state, sender, is_founding=heartbeat.is_founding)
    learn_commit(state, heartbeat.commit_index)
    follower = state.follower
    follower.heartbeat_round = heartbeat.round
    if heartbeat.renews_lease:
        follower.lease_end_ms = state.now_ms + state.config.min_election_timeout_ms
    _report(state, sender, is_unmatched=heartbeat.commit_index > follower.matched_index)


def _report(state: State, leader_id: str, *, is_unmatched: bool = False) -> None:
    is_healthy = not (state.is_disk_stalled or state.is_disk_full)
    answered_round = state.follower.heartbeat_round
    state.send(leader_id, HeartbeatResponse(state.term, answered_round, state.incarnation, is_healthy, is_unmatched))


def on_push(state: State, sender: str, push: Push) -> None:
    """Append entries that follow `prev_index`, or answer where the logs diverge.

    Raises:
        InvariantBroken: the leader's log contradicts a committed entry; the node must stop.
    """
    note_leader_contact(state, sender, is_founding=push.is_founding)
    log = state.log
    if push.prev_index > log.last_index:
        _disagree(state, sender, push, conflict_term=NO_TERM, conflict_first_index=NO_INDEX)
        return
    if push.prev_index < log.begin_index - 1:
        # It starts with entries that we have deleted; they were committed, so the logs agree up to our commit index.
        _acknowledge(state, state.follower, sender)
        return
    if not _agrees(state, push.prev_index, push.prev_term):
        if push.prev_index <= state.commit_floor:
            _keep_committed(state, sender, push)
            return
        _disagree(
            state,
            sender,
            push,
            conflict_term=log.term_at(push.prev_index),
            conflict_first_index=log.first_index_of_run(push.prev_index),
        )
        return
    if push.span is not None and not _take_entries(state, push, push.span):
        _keep_committed(state, sender, push)
        return
    matched = push.prev_index if push.span is None else push.span.last_index
    follower = state.follower
    follower.matched_index = max(follower.matched_index, matched)
    learn_commit(state, push.commit_index)
    follower.owes_acknowledgement = True
    if state.persisted_index >= follower.matched_index:
        _acknowledge(state, follower, sender)


def _agrees(state: State, index: int, term: int) -> bool:
    """Return whether our entry at `index` (at most our last index) has the leader's `term`."""
    if index < state.log.begin_index:
        # Before it there is no entry, or one that was committed before it was deleted.
        return True
    if term == UNKNOWN_TERM:
        # The leader no longer knows the term; but its log begins there, so the entry is committed.
        return index <= state.kept_index
    return state.log.term_at(index) == term


def _disagree(state: State, sender: str, push: Push, *, conflict_term: int, conflict_first_index: int) -> None:
    """Refuse a push after an entry that this log lacks; give up the vote if this node has acknowledged that entry.

    With a new incarnation this node is to the group like one that lost its disk: earlier votes may be lost, too. Its
    answer makes the leader discard the match index, send the missing entries and readmit this node. A refusal would
    only lower the match index to our last index, where our log may differ from the leader's.
    """
    if _has_lost(state, push):
        voting_rights.give_up_vote(state)
        state.emit(EntriesLost(sender, push.prev_index, state.log.last_index))
        _report(state, sender)
    else:
        _refuse(state, sender, push, conflict_term=conflict_term, conflict_first_index=conflict_first_index)


def _has_lost(state: State, push: Push) -> bool:
    """Return whether this node acknowledged the entry at `prev_index`, which its log lacks, as durable in this term.

    Nothing removes such an entry within the term: its leader never changes its own log, and no other node is followed.
    So this node runs on an old copy of its directory, or its disk lost what was synced. A delayed push proves that,
    too, because a correct node has the entry until the term ends; one to an earlier disk has another incarnation. If
    the leader no longer knows the term of the entry, the logs may agree.
    """
    return state.is_flush_sync and push.acknowledged_by == state.incarnation and push.prev_term != UNKNOWN_TERM


def on_persisted(state: State) -> None:
    """Acknowledge the entries that have become durable and are known to equal the leader's."""
    role_state = state.role_state
    if isinstance(role_state, Follower) and state.leader_id is not None and role_state.owes_acknowledgement:
        _acknowledge(state, role_state, state.leader_id)


def on_push_not_taken(state: State, sender: str, push: Push, *, is_corrupt: bool) -> None:
    """Refuse entries that do not fit on the disk, or whose checksums are wrong; the leader sends them again later."""
    if push.term != state.term or state.role is Role.LEADER or state.leader_id not in (None, sender):
        return
    note_leader_contact(state, sender, is_founding=push.is_founding)
    refusal = PushRefused(
        term=state.term,
        rejected_prev_index=push.prev_index,
        last_index=state.log.last_index,
        conflict_term=NO_TERM,
        conflict_first_index=NO_INDEX,
        is_disk_full=not is_corrupt,
        is_corrupt=is_corrupt,
    )
    state.send(sender, refusal)


def note_leader_contact(state: State, sender: str, *, is_founding: bool = False) -> None:
    """Record a message of `sender`, the leader of the current term."""
    # Messages of a second leader were already rejected (`core.trust`).
    assert state.leader_id in (None, sender), (state.leader_id, sender)
    follow(state, sender)
    voting_rights.end_founding(state, sender, is_founding=is_founding)
    follower = state.follower
    follower.contact_ms = state.now_ms
    follower.is_leader_gone = False
    follower.deadline_ms = state.now_ms + waiting_time_ms(state.config, state.draw)


def _take_entries(state: State, push: Push, span: Span) -> bool:
    """Truncate a conflict and append new entries; return False if that would truncate below the commit floor."""
    log = state.log
    conflict = log.first_conflict(span.first_index, span.last_index, span.term)
    if conflict != NO_INDEX:
        if conflict <= state.commit_index:
            raise InvariantBroken(
                f"the leader of term {push.term} sent entry {conflict} of term {span.term}, but this node has "
                f"committed it in term {log.term_at(conflict)} (commit index {state.commit_index}): nothing is cut, "
                "keep all files"
            )
        if conflict <= state.commit_floor:
            return False
        state.emit(TruncateFrom(conflict))
        log.truncate(conflict)
        membership.truncate(state, conflict)
        state.written_index = min(state.written_index, conflict - 1)
        state.persisted_index = min(state.persisted_index, conflict - 1)
    first_index = log.last_index + 1
    if first_index <= span.last_index:
        known_index = max(first_index - 1, state.memberships[-1].index)
        brought = [entry for entry in push.memberships if entry.index > known_index]
        if brought:
            membership.add(state, brought)
        state.emit(AppendPushed(push, first_index))
        log.append(span.last_index, span.term)
        state.written_index = span.last_index
    return True


def _keep_committed(state: State, sender: str, push: Push) -> None:
    """Refuse entries that conflict with entries which an earlier process of this node knew to be committed.

    Either the leader was elected without the committed entries, because one of its voters lost them without detecting
    it, or this node runs on the wrong directory. This node cannot decide which: it keeps its entries, and both nodes
    report it.
    """
    state.emit(MessageRejected(sender, RejectReason.COMMITTED, Push.__name__, push.term))
    _refuse(state, sender, push, conflict_term=NO_TERM, conflict_first_index=NO_INDEX, is_contradicting=True)


def _acknowledge(state: State, follower: Follower, leader_id: str) -> None:
    match_index = min(state.persisted_index, follower.matched_index)
    follower.owes_acknowledgement = match_index < follower.matched_index
    state.send(leader_id, PushAccepted(state.term, match_index, state.incarnation))


def _refuse(
    state: State,
    sender: str,
    push: Push,
    *,
    conflict_term: int,
    conflict_first_index: int,
    is_contradicting: bool = False,
) -> None:
    state.send(
        sender,
        PushRefused(
            term=state.term,
            rejected_prev_index=push.prev_index,
            last_index=state.log.last_index,
            conflict_term=conflict_term,
            conflict_first_index=conflict_first_index,
            is_contradicting=is_contradicting,
        ),
    )

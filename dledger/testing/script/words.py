"""Formats messages and logs for a line of a transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    ReadIndexRequest,
    ReadIndexResponse,
    ResetLog,
    SnapshotChunk,
    SnapshotProgress,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.types import NO_TERM, Membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.core.raft import Raft
    from dledger.entries.store import EntryStore


def is_heartbeat(message: Message) -> bool:
    """Return whether a message is a heartbeat or its answer."""
    return isinstance(message, (Heartbeat, HeartbeatResponse))


def describe(message: Message) -> str:
    """Return a message as text, its term first."""
    return f"t{message.term}  {_TEXTS[type(message)](message)}"


def _vote_request(request: VoteRequest) -> str:
    log = "is empty" if request.last_index < 0 else f"ends at {request.last_index} of term {request.last_term}"
    transfer = ", asked by the leader" if request.is_transfer else ""
    return f"{_vote(request)}? log {log}{transfer}"


def _vote_response(response: VoteResponse) -> str:
    founding = ", founding" if response.is_founding else ""
    return f"{_vote(response)} {'granted' if response.is_granted else 'refused'}{founding}"


def _vote(message: VoteRequest | VoteResponse) -> str:
    return "pre-vote" if message.is_pre_vote else "vote"


def _push(push: Push) -> str:
    place = "at the beginning" if push.prev_index < 0 else f"after {push.prev_index} of term {push.prev_term}"
    commit = f"commit {push.commit_index}"
    if push.span is None:
        return f"probe {place}, {commit}"
    return f"push {run(push.span.first_index, push.span.last_index)} of term {push.span.term} {place}, {commit}"


def _push_accepted(response: PushAccepted) -> str:
    return f"accepted up to {response.match_index}{_incarnation(response.incarnation)}"


def _push_refused(response: PushRefused) -> str:
    where = f"refused after {response.rejected_prev_index}"
    if response.is_disk_full:
        return f"{where}: disk full"
    if response.conflict_term == NO_TERM:
        return f"{where}: log ends at {response.last_index}"
    return f"{where}: term {response.conflict_term} is there, from {response.conflict_first_index} on"


def _heartbeat(heartbeat: Heartbeat) -> str:
    return f"heartbeat {heartbeat.round}, commit {heartbeat.commit_index}"


def _heartbeat_response(response: HeartbeatResponse) -> str:
    if response.round == 0:
        return f"no heartbeat acknowledged{_incarnation(response.incarnation)}"
    health = "" if response.is_healthy else ", my disk stalls"
    return f"heartbeat {response.round} acknowledged{_incarnation(response.incarnation)}{health}"


def _timeout_now(_: TimeoutNow) -> str:
    return "start an election now"


def _read_index_request(request: ReadIndexRequest) -> str:
    return f"up to where may I read? (read {request.read_id})"


def _read_index_response(response: ReadIndexResponse) -> str:
    answer = "I do not lead" if response.index < 0 else f"up to {response.index}"
    return f"{answer} (read {response.read_id})"


def _snapshot_chunk(chunk: SnapshotChunk) -> str:
    end = chunk.offset + chunk.length
    return f"snapshot up to {chunk.snapshot.index}: bytes {chunk.offset}..{end} of {chunk.snapshot.size_bytes}"


def _snapshot_progress(progress: SnapshotProgress) -> str:
    return f"snapshot up to {progress.index}: {progress.received_bytes} bytes are here"


def _reset_log(reset: ResetLog) -> str:
    place = f"{reset.begin_index}, position {reset.begin_position}, after term {reset.prev_term}"
    return f"begin your log at {place}; members {members(reset.membership.membership)}"


_TEXTS: dict[type, Callable[[Any], str]] = {
    VoteRequest: _vote_request,
    VoteResponse: _vote_response,
    Push: _push,
    PushAccepted: _push_accepted,
    PushRefused: _push_refused,
    Heartbeat: _heartbeat,
    HeartbeatResponse: _heartbeat_response,
    TimeoutNow: _timeout_now,
    ReadIndexRequest: _read_index_request,
    ReadIndexResponse: _read_index_response,
    SnapshotChunk: _snapshot_chunk,
    SnapshotProgress: _snapshot_progress,
    ResetLog: _reset_log,
}


def _incarnation(number: int) -> str:
    return f", incarnation {number}" if number else ""


def run(first_index: int, last_index: int) -> str:
    """Return a range of indexes."""
    return f"{first_index}" if first_index == last_index else f"{first_index}..{last_index}"


def members(membership: Membership) -> str:
    """Return the members of a group: voters, then learners, each after a plus sign."""
    return " ".join(
        f"{'' if member.is_voter else '+'}{member.id}{f'#{member.incarnation}' if member.incarnation else ''}"
        for member in membership.members
    )


def terms_of(store: EntryStore, commit_index: int) -> str:
    """Return the terms of a log one by one, as in the paper's figures; a bar marks the end of the committed part."""
    words = [f"[{store.begin_index}..]"] if store.begin_index else []
    for index in range(store.begin_index, store.last_index + 1):
        words.append(str(store.term_at(index)))
        if index == commit_index:
            words.append("|")
    return " ".join(words) or "empty"


def status_row(raft: Raft, store: EntryStore) -> str:
    """Return one node's row of a status table."""
    log = "empty" if store.last_index < store.begin_index else f"{store.begin_index}..{store.last_index}"
    leader = raft.leader_id or "-"
    return f"{raft.role.value:10} term {raft.term}  leader {leader:3}  log {log:7} commit {raft.commit_index}"

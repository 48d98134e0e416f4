"""Converts frames of the peer transport to messages of the core.

Invariant: everything that `decode` returns is within the ranges that `dledger.core.messages` documents, so a peer
that sends invalid values loses its connection, and they never reach the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.config import MEMBERS_MAX
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
from dledger.errors import ResponseCode
from dledger.peer.wire.frames import NAME_LENGTH_MAX, BadFrame, parse_control
from dledger.types import (
    GROUP_ID_END,
    INDEX_MAX,
    POSITION_MAX,
    TERM_MAX,
    Member,
    Membership,
    MembershipEntry,
    SnapshotInfo,
    Span,
    decoded_term,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.v1 import peer_pb2


def decode(control: bytes, payload: bytes) -> Message:
    """Read one message of an accepted connection.

    Raises:
        BadFrame: not a message of this protocol, or a value out of range; close the connection.
    """
    message = parse_control(control, len(payload))
    kind = message.WhichOneof("kind")
    term = message.term
    if not 0 <= term <= TERM_MAX:
        raise BadFrame(f"{kind}: expected a term from 0 to {TERM_MAX}, found {term}")
    if message.group_id >= GROUP_ID_END:
        raise BadFrame(f"{kind}: expected a group id below 2^63, found {message.group_id:#x}")
    if kind == "push":
        return _push(message, payload)
    if kind == "snapshot_chunk":
        return _snapshot_chunk(message, payload)
    if payload:
        raise BadFrame(f"{kind}: expected no payload, found {len(payload)} bytes")
    decoder = _DECODERS.get(kind or "")
    if decoder is None:
        raise BadFrame(f"expected a message of an open connection, found {kind}")
    return decoder(term, message)


def _are_indexes(*values: int) -> bool:
    """Return whether all values are indexes of entries, or -1 for none."""
    return min(values) >= -1 and max(values) <= INDEX_MAX


def _push(message: peer_pb2.PeerMessage, payload: bytes) -> Push:
    term, push = message.term, message.push
    prev_index, first_index, last_index = push.prev_index, push.first_index, push.last_index
    if not (_are_indexes(prev_index, last_index, push.commit_index) and -1 <= push.prev_term <= term):
        raise BadFrame(f"push: index or term out of range in {push}")
    span = None
    if last_index >= first_index:
        is_place_good = first_index == prev_index + 1 and 0 <= push.position <= POSITION_MAX
        if not is_place_good or not 0 <= push.entries_term <= term or not payload:
            raise BadFrame(f"push: entries do not follow prev_index, or have no bytes, in {push}")
        span = Span(first_index, last_index, push.entries_term, push.position, len(payload))
    elif payload:
        raise BadFrame(f"push: a probe carries no entries, found {len(payload)} bytes")
    return Push(
        term=term,
        prev_index=prev_index,
        prev_term=decoded_term(prev_index, push.prev_term),
        commit_index=push.commit_index,
        span=span,
        payload=payload if span else None,
        is_founding=push.is_founding,
        group_id=message.group_id,
        acknowledged_by=push.acknowledged_by if push.HasField("acknowledged_by") else None,
    )


def _vote_request(term: int, message: peer_pb2.PeerMessage) -> VoteRequest:
    vote = message.vote_request
    if not _are_indexes(vote.last_index) or not -1 <= vote.last_term <= term:
        raise BadFrame(f"vote_request: index or term out of range in {vote}")
    return VoteRequest(
        term=term,
        is_pre_vote=vote.is_pre_vote,
        last_index=vote.last_index,
        last_term=vote.last_term,
        is_transfer=vote.is_transfer,
        voter_incarnation=vote.voter_incarnation,
        life=vote.life,
        group_id=message.group_id,
    )


def _vote_response(term: int, message: peer_pb2.PeerMessage) -> VoteResponse:
    vote = message.vote_response
    return VoteResponse(
        term=term,
        is_pre_vote=vote.is_pre_vote,
        is_granted=vote.is_granted,
        is_founding=vote.is_founding,
        life=vote.life,
    )


def _heartbeat(term: int, message: peer_pb2.PeerMessage) -> Heartbeat:
    heartbeat = message.heartbeat
    if not _are_indexes(heartbeat.commit_index) or heartbeat.round < 0:
        raise BadFrame(f"heartbeat: commit_index or round out of range in {heartbeat}")
    return Heartbeat(
        term=term,
        commit_index=heartbeat.commit_index,
        round=heartbeat.round,
        is_founding=heartbeat.is_founding,
        renews_lease=not heartbeat.renews_no_lease,
        group_id=message.group_id,
    )


def _heartbeat_response(term: int, message: peer_pb2.PeerMessage) -> HeartbeatResponse:
    response = message.heartbeat_response
    if response.round < 0:
        raise BadFrame(f"heartbeat_response: round out of range in {response}")
    return HeartbeatResponse(
        term=term,
        round=response.round,
        incarnation=response.incarnation,
        is_healthy=not response.is_disk_unhealthy,
        is_unmatched=response.is_unmatched,
    )


def _push_response(term: int, message: peer_pb2.PeerMessage) -> PushAccepted | PushRefused:
    response = message.push_response
    if response.is_success:
        if not _are_indexes(response.match_index):
            raise BadFrame(f"push_response: match_index out of range in {response}")
        return PushAccepted(term=term, match_index=response.match_index, incarnation=response.incarnation)
    indexes = (response.rejected_prev_index, response.last_index, response.conflict_first_index)
    if not _are_indexes(*indexes) or not -1 <= response.conflict_term <= TERM_MAX:
        raise BadFrame(f"push_response: index or term out of range in {response}")
    return PushRefused(
        term=term,
        rejected_prev_index=response.rejected_prev_index,
        last_index=response.last_index,
        conflict_term=response.conflict_term,
        conflict_first_index=response.conflict_first_index,
        is_disk_full=response.code == ResponseCode.DISK_FULL,
        is_corrupt=response.code == ResponseCode.DISK_ERROR,
        is_contradicting=response.code == ResponseCode.COMMITTED_OTHERWISE,
    )


def _timeout_now(term: int, message: peer_pb2.PeerMessage) -> TimeoutNow:
    return TimeoutNow(term=term, group_id=message.group_id)


def _read_index_request(term: int, message: peer_pb2.PeerMessage) -> ReadIndexRequest:
    read_id = message.read_index_request.read_id
    if read_id < 0:
        raise BadFrame(f"read_index_request: read_id out of range: {read_id}")
    return ReadIndexRequest(term=term, read_id=read_id)


def _read_index_response(term: int, message: peer_pb2.PeerMessage) -> ReadIndexResponse:
    response = message.read_index_response
    if response.read_id < 0 or not _are_indexes(response.index):
        raise BadFrame(f"read_index_response: read_id or index out of range in {response}")
    return ReadIndexResponse(term=term, read_id=response.read_id, index=response.index)


def _snapshot_chunk(message: peer_pb2.PeerMessage, payload: bytes) -> SnapshotChunk:
    term, chunk = message.term, message.snapshot_chunk
    snapshot = chunk.snapshot
    if not 0 <= snapshot.index <= INDEX_MAX or not 0 <= snapshot.term <= term:
        raise BadFrame(f"snapshot_chunk: index or term out of range in {chunk}")
    if chunk.offset < 0 or chunk.offset + len(payload) > snapshot.size_bytes:
        raise BadFrame(f"snapshot_chunk: {len(payload)} bytes do not lie within the snapshot in {chunk}")
    info = SnapshotInfo(snapshot.index, snapshot.term, snapshot.size_bytes, snapshot.checksum)
    return SnapshotChunk(
        term=term, snapshot=info, offset=chunk.offset, length=len(payload), payload=payload, group_id=message.group_id
    )


def _snapshot_progress(term: int, message: peer_pb2.PeerMessage) -> SnapshotProgress:
    progress = message.snapshot_progress
    if progress.index < 0 or progress.received_bytes < 0:
        raise BadFrame(f"snapshot_progress: index or size out of range in {progress}")
    return SnapshotProgress(term=term, index=progress.index, received_bytes=progress.received_bytes)


def _reset_log(term: int, message: peer_pb2.PeerMessage) -> ResetLog:
    reset = message.reset_log
    is_begin_good = 0 <= reset.begin_index <= INDEX_MAX and 0 <= reset.begin_position <= POSITION_MAX
    if not is_begin_good or not -1 <= reset.prev_term <= term:
        raise BadFrame(f"reset_log: begin or term out of range in {reset}")
    if not _are_indexes(reset.membership_index):
        raise BadFrame(f"reset_log: membership_index out of range in {reset}")
    snapshot_index = reset.snapshot_index if reset.HasField("snapshot_index") else -1
    if not _are_indexes(snapshot_index):
        raise BadFrame(f"reset_log: snapshot_index out of range in {reset}")
    commit_index = reset.commit_index if reset.HasField("commit_index") else -1
    if not _are_indexes(commit_index):
        raise BadFrame(f"reset_log: commit_index out of range in {reset}")
    return ResetLog(
        term=term,
        begin_index=reset.begin_index,
        begin_position=reset.begin_position,
        prev_term=decoded_term(reset.begin_index - 1, reset.prev_term),
        membership=MembershipEntry(reset.membership_index, _membership(reset)),
        snapshot_index=snapshot_index,
        prev_chain_crc=reset.prev_chain_crc if reset.HasField("prev_chain_crc") else -1,
        commit_index=commit_index,
        group_id=message.group_id,
    )


def _membership(reset: peer_pb2.ResetLog) -> Membership:
    if reset.membership_group_id >= GROUP_ID_END:
        raise BadFrame(f"reset_log: expected a group id below 2^63, found {reset.membership_group_id:#x}")
    members = tuple(Member(item.id, item.address, item.is_voter, item.incarnation) for item in reset.members)
    ids = [member.id for member in members]
    if not 0 < len(members) <= MEMBERS_MAX or ids != sorted(set(ids)):
        raise BadFrame(f"reset_log: expected 1 to {MEMBERS_MAX} members in order of their ids, found {ids}")
    names = [name for member in members for name in (member.id, member.address)]
    if not all(ids) or max(map(len, names)) > NAME_LENGTH_MAX:
        raise BadFrame(f"reset_log: a name is empty or longer than {NAME_LENGTH_MAX} characters")
    return Membership(members, reset.membership_group_id)


_DECODERS: dict[str, Callable[[int, peer_pb2.PeerMessage], Message]] = {
    "vote_request": _vote_request,
    "vote_response": _vote_response,
    "heartbeat": _heartbeat,
    "heartbeat_response": _heartbeat_response,
    "push_response": _push_response,
    "timeout_now": _timeout_now,
    "read_index_request": _read_index_request,
    "read_index_response": _read_index_response,
    "snapshot_progress": _snapshot_progress,
    "reset_log": _reset_log,
}

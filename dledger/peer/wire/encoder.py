"""Converts messages of the core to frames of the peer transport.

The reverse is `dledger.peer.wire.decoder`; the layout of frames, and the Hello, are in `dledger.peer.wire.frames`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.messages import (
    GROUPED,
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
from dledger.peer.wire.frames import head_and_control
from dledger.types import encoded_term
from dledger.v1 import member_pb2, peer_pb2

if TYPE_CHECKING:
    from collections.abc import Callable


def encode(message: Message) -> tuple[bytes, bytes | None]:
    """Return (head and control part, payload); the payload is the message's own bytes, not a copy."""
    payload = message.payload if isinstance(message, (Push, SnapshotChunk)) else None
    control = _ENCODERS[type(message)](message)
    if isinstance(message, GROUPED):
        control.group_id = message.group_id
    return head_and_control(control, len(payload) if payload else 0), payload or None


def _vote_request(message: VoteRequest) -> peer_pb2.PeerMessage:
    vote = peer_pb2.VoteRequest(
        is_pre_vote=message.is_pre_vote,
        last_index=message.last_index,
        last_term=message.last_term,
        is_transfer=message.is_transfer,
        voter_incarnation=message.voter_incarnation,
        life=message.life,
    )
    return peer_pb2.PeerMessage(term=message.term, vote_request=vote)


def _vote_response(message: VoteResponse) -> peer_pb2.PeerMessage:
    vote = peer_pb2.VoteResponse(
        is_pre_vote=message.is_pre_vote,
        is_granted=message.is_granted,
        is_founding=message.is_founding,
        life=message.life,
    )
    return peer_pb2.PeerMessage(term=message.term, vote_response=vote)


def _heartbeat(message: Heartbeat) -> peer_pb2.PeerMessage:
    heartbeat = peer_pb2.Heartbeat(
        commit_index=message.commit_index,
        round=message.round,
        is_founding=message.is_founding,
        renews_no_lease=not message.renews_lease,
    )
    return peer_pb2.PeerMessage(term=message.term, heartbeat=heartbeat)


def _heartbeat_response(message: HeartbeatResponse) -> peer_pb2.PeerMessage:
    response = peer_pb2.HeartbeatResponse(
        round=message.round,
        incarnation=message.incarnation,
        is_disk_unhealthy=not message.is_healthy,
        is_unmatched=message.is_unmatched,
    )
    return peer_pb2.PeerMessage(term=message.term, heartbeat_response=response)


def _push(message: Push) -> peer_pb2.PeerMessage:
    span = message.span
    if span is None:
        push = peer_pb2.Push(
            prev_index=message.prev_index,
            prev_term=encoded_term(message.prev_term),
            commit_index=message.commit_index,
            first_index=message.prev_index + 1,
            last_index=message.prev_index,
            is_founding=message.is_founding,
            acknowledged_by=message.acknowledged_by,
        )
        return peer_pb2.PeerMessage(term=message.term, push=push)
    assert message.payload is not None, "a push with entries leaves only with their bytes"
    assert len(message.payload) == span.length, (len(message.payload), span)
    push = peer_pb2.Push(
        prev_index=message.prev_index,
        prev_term=encoded_term(message.prev_term),
        commit_index=message.commit_index,
        first_index=span.first_index,
        last_index=span.last_index,
        entries_term=span.term,
        position=span.position,
        is_founding=message.is_founding,
        acknowledged_by=message.acknowledged_by,
    )
    return peer_pb2.PeerMessage(term=message.term, push=push)


def _push_accepted(message: PushAccepted) -> peer_pb2.PeerMessage:
    response = peer_pb2.PushResponse(
        is_success=True,
        match_index=message.match_index,
        code=ResponseCode.SUCCESS,
        incarnation=message.incarnation,
    )
    return peer_pb2.PeerMessage(term=message.term, push_response=response)


def _push_refused(message: PushRefused) -> peer_pb2.PeerMessage:
    response = peer_pb2.PushResponse(
        rejected_prev_index=message.rejected_prev_index,
        last_index=message.last_index,
        conflict_term=message.conflict_term,
        conflict_first_index=message.conflict_first_index,
        code=_refusal_code(message),
    )
    return peer_pb2.PeerMessage(term=message.term, push_response=response)


def _refusal_code(message: PushRefused) -> ResponseCode:
    if message.is_corrupt:
        return ResponseCode.DISK_ERROR
    if message.is_contradicting:
        return ResponseCode.COMMITTED_OTHERWISE
    return ResponseCode.DISK_FULL if message.is_disk_full else ResponseCode.INCONSISTENT_STATE


def _timeout_now(message: TimeoutNow) -> peer_pb2.PeerMessage:
    return peer_pb2.PeerMessage(term=message.term, timeout_now=peer_pb2.TimeoutNow())


def _read_index_request(message: ReadIndexRequest) -> peer_pb2.PeerMessage:
    request = peer_pb2.ReadIndexRequest(read_id=message.read_id)
    return peer_pb2.PeerMessage(term=message.term, read_index_request=request)


def _read_index_response(message: ReadIndexResponse) -> peer_pb2.PeerMessage:
    response = peer_pb2.ReadIndexResponse(read_id=message.read_id, index=message.index)
    return peer_pb2.PeerMessage(term=message.term, read_index_response=response)


def _snapshot_chunk(message: SnapshotChunk) -> peer_pb2.PeerMessage:
    assert len(message.payload or b"") == message.length, "a chunk leaves only with its bytes"
    snapshot = peer_pb2.Snapshot(
        index=message.snapshot.index,
        term=message.snapshot.term,
        size_bytes=message.snapshot.size_bytes,
        checksum=message.snapshot.checksum,
    )
    chunk = peer_pb2.SnapshotChunk(snapshot=snapshot, offset=message.offset)
    return peer_pb2.PeerMessage(term=message.term, snapshot_chunk=chunk)


def _snapshot_progress(message: SnapshotProgress) -> peer_pb2.PeerMessage:
    progress = peer_pb2.SnapshotProgress(index=message.index, received_bytes=message.received_bytes)
    return peer_pb2.PeerMessage(term=message.term, snapshot_progress=progress)


def _reset_log(message: ResetLog) -> peer_pb2.PeerMessage:
    members = [
        member_pb2.Member(id=each.id, address=each.address, is_voter=each.is_voter, incarnation=each.incarnation)
        for each in message.membership.membership.members
    ]
    reset = peer_pb2.ResetLog(
        begin_index=message.begin_index,
        begin_position=message.begin_position,
        prev_term=message.prev_term,
        members=members,
        membership_index=message.membership.index,
        snapshot_index=None if message.snapshot_index < 0 else message.snapshot_index,
        prev_chain_crc=None if message.prev_chain_crc < 0 else message.prev_chain_crc,
        membership_group_id=message.membership.membership.group_id,
        commit_index=None if message.commit_index < 0 else message.commit_index,
    )
    return peer_pb2.PeerMessage(term=message.term, reset_log=reset)


_ENCODERS: dict[type[Message], Callable[..., peer_pb2.PeerMessage]] = {
    VoteRequest: _vote_request,
    VoteResponse: _vote_response,
    Heartbeat: _heartbeat,
    HeartbeatResponse: _heartbeat_response,
    Push: _push,
    PushAccepted: _push_accepted,
    PushRefused: _push_refused,
    TimeoutNow: _timeout_now,
    ReadIndexRequest: _read_index_request,
    ReadIndexResponse: _read_index_response,
    SnapshotChunk: _snapshot_chunk,
    SnapshotProgress: _snapshot_progress,
    ResetLog: _reset_log,
}

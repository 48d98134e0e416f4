"""Bytes of the peer transport: one message is one frame.

Not here: sockets (`dledger.peer_connection`), who may talk to whom (`dledger.peer_handshake`).

All integers big-endian:

| offset | size | type  | field          | meaning                                             |
| -----: | ---: | ----- | -------------- | --------------------------------------------------- |
|      0 |    4 | u32   | total size     | bytes behind this field: 4 + control + payload      |
|      4 |    4 | u32   | control size   | bytes of the control part                           |
|      8 |    c | bytes | control        | a `dledger.v1.PeerMessage`                          |
|  8 + c |    p | bytes | payload        | encoded entries of a push, untouched; else nothing  |

Invariant: whatever `decode` returns is within the ranges that `dledger.core.messages` documents, so that a peer
which talks nonsense loses its connection here and never reaches the core.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    VoteRequest,
    VoteResponse,
)
from dledger.errors import DLedgerError, ResponseCode
from dledger.types import Span
from dledger.v1 import peer_pb2

FRAME_HEAD = struct.Struct(
    ">"
    "I"  # total size
    "I"  # control size
)
assert FRAME_HEAD.size == 8

PROTOCOL_VERSION = 1
# A control part is a few dozen bytes, a Hello a few hundred; anything near this is garbage.
CONTROL_SIZE_BYTES_MAX = 16 * 1024
# Group, ids and addresses in a Hello; they are quoted in refusals, which must fit a control part.
NAME_LENGTH_MAX = 255
# Largest push payload that a node may send. Fixed for all nodes, for sender and receiver must agree on it.
PAYLOAD_SIZE_BYTES_MAX = 16 * 1024 * 1024
# Until the Hello is accepted a stranger can make us hold this much and no more.
HELLO_FRAME_SIZE_BYTES_MAX = FRAME_HEAD.size + CONTROL_SIZE_BYTES_MAX
FRAME_SIZE_BYTES_MAX = HELLO_FRAME_SIZE_BYTES_MAX + PAYLOAD_SIZE_BYTES_MAX


class BadFrame(DLedgerError):
    """A peer sent bytes that are no message of this protocol. Close the connection; the node itself is well."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame on every connection, both ways: who speaks, whom it means, and whether it will talk.

    Attributes:
        self_id: id of the speaker.
        peer_id: whom the speaker takes the other side to be.
        cluster_digest: `NodeConfig.cluster_digest()` of the speaker.
        client_address: host:port of the speaker's LogService.
        code: 200, or why the connection is refused (`ResponseCode`, or a newer node's code).
        message: the refusal for people.
        is_bulk: whether the connection carries pushes and their answers, or heartbeats and votes.
    """

    group: str
    self_id: str
    peer_id: str
    cluster_digest: int
    client_address: str
    is_bulk: bool
    protocol_version: int = PROTOCOL_VERSION
    code: int = ResponseCode.SUCCESS
    message: str = ""


# ------------------------------------------------------------------------------------------------------- encode


def encode_hello(hello: Hello) -> bytes:
    """Return the whole frame of a Hello."""
    return _head_and_control(
        peer_pb2.PeerMessage(
            hello=peer_pb2.Hello(
                protocol_version=hello.protocol_version,
                group=hello.group,
                self_id=hello.self_id,
                peer_id=hello.peer_id,
                cluster_digest=hello.cluster_digest,
                client_address=hello.client_address,
                code=hello.code,
                message=hello.message,
                is_bulk=hello.is_bulk,
            )
        ),
        payload_size=0,
    )


def encode(message: Message) -> tuple[bytes, bytes | None]:
    """Return (head and control part, payload); the payload is the message's own bytes, not a copy."""
    payload = message.payload if isinstance(message, Push) else None
    control = _ENCODERS[type(message)](message)
    return _head_and_control(control, len(payload) if payload else 0), payload or None


def _head_and_control(message: peer_pb2.PeerMessage, payload_size: int) -> bytes:
    control = message.SerializeToString()
    return FRAME_HEAD.pack(4 + len(control) + payload_size, len(control)) + control


def _encode_vote_request(message: VoteRequest) -> peer_pb2.PeerMessage:
    vote = peer_pb2.VoteRequest(
        is_pre_vote=message.is_pre_vote, last_index=message.last_index, last_term=message.last_term
    )
    return peer_pb2.PeerMessage(term=message.term, vote_request=vote)


def _encode_vote_response(message: VoteResponse) -> peer_pb2.PeerMessage:
    vote = peer_pb2.VoteResponse(is_pre_vote=message.is_pre_vote, is_granted=message.is_granted)
    return peer_pb2.PeerMessage(term=message.term, vote_response=vote)


def _encode_heartbeat(message: Heartbeat) -> peer_pb2.PeerMessage:
    heartbeat = peer_pb2.Heartbeat(commit_index=message.commit_index, round=message.round)
    return peer_pb2.PeerMessage(term=message.term, heartbeat=heartbeat)


def _encode_heartbeat_response(message: HeartbeatResponse) -> peer_pb2.PeerMessage:
    return peer_pb2.PeerMessage(term=message.term, heartbeat_response=peer_pb2.HeartbeatResponse(round=message.round))


def _encode_push(message: Push) -> peer_pb2.PeerMessage:
    span = message.span
    if span is None:
        push = peer_pb2.Push(
            prev_index=message.prev_index,
            prev_term=message.prev_term,
            commit_index=message.commit_index,
            first_index=message.prev_index + 1,
            last_index=message.prev_index,
        )
        return peer_pb2.PeerMessage(term=message.term, push=push)
    assert message.payload is not None, "a push with entries leaves only with their bytes"
    assert len(message.payload) == span.length, (len(message.payload), span)
    push = peer_pb2.Push(
        prev_index=message.prev_index,
        prev_term=message.prev_term,
        commit_index=message.commit_index,
        first_index=span.first_index,
        last_index=span.last_index,
        entries_term=span.term,
        position=span.position,
    )
    return peer_pb2.PeerMessage(term=message.term, push=push)


def _encode_push_accepted(message: PushAccepted) -> peer_pb2.PeerMessage:
    response = peer_pb2.PushResponse(is_success=True, match_index=message.match_index, code=ResponseCode.SUCCESS)
    return peer_pb2.PeerMessage(term=message.term, push_response=response)


def _encode_push_refused(message: PushRefused) -> peer_pb2.PeerMessage:
    response = peer_pb2.PushResponse(
        rejected_prev_index=message.rejected_prev_index,
        last_index=message.last_index,
        conflict_term=message.conflict_term,
        conflict_first_index=message.conflict_first_index,
        code=ResponseCode.DISK_FULL if message.is_disk_full else ResponseCode.INCONSISTENT_STATE,
    )
    return peer_pb2.PeerMessage(term=message.term, push_response=response)


_ENCODERS: dict[type[Message], Callable[..., peer_pb2.PeerMessage]] = {
    VoteRequest: _encode_vote_request,
    VoteResponse: _encode_vote_response,
    Heartbeat: _encode_heartbeat,
    HeartbeatResponse: _encode_heartbeat_response,
    Push: _encode_push,
    PushAccepted: _encode_push_accepted,
    PushRefused: _encode_push_refused,
}

# ------------------------------------------------------------------------------------------------------- decode


def decode_hello(control: bytes, payload: bytes) -> Hello:
    """Read the first frame of a connection.

    Raises:
        BadFrame: it is no Hello; close the connection.
    """
    message = _parse(control)
    if message.WhichOneof("kind") != "hello" or payload:
        raise BadFrame(f"expected a Hello without payload as first frame, found {message.WhichOneof('kind')}")
    hello = message.hello
    names = (hello.group, hello.self_id, hello.peer_id, hello.client_address)
    if max(map(len, names)) > NAME_LENGTH_MAX:
        raise BadFrame(f"hello: a name is longer than {NAME_LENGTH_MAX} characters")
    return Hello(
        protocol_version=hello.protocol_version,
        group=hello.group,
        self_id=hello.self_id,
        peer_id=hello.peer_id,
        cluster_digest=hello.cluster_digest,
        client_address=hello.client_address,
        code=hello.code,
        message=hello.message,
        is_bulk=hello.is_bulk,
    )


def decode(control: bytes, payload: bytes) -> Message:
    """Read one message of an accepted connection.

    Raises:
        BadFrame: not a message of this protocol, or a value out of range; close the connection.
    """
    message = _parse(control)
    kind = message.WhichOneof("kind")
    term = message.term
    if term < 0:
        raise BadFrame(f"{kind}: term must not be negative, found {term}")
    if kind == "push":
        return _decode_push(term, message.push, payload)
    if payload:
        raise BadFrame(f"{kind}: expected no payload, found {len(payload)} bytes")
    decoder = _DECODERS.get(kind or "")
    if decoder is None:
        raise BadFrame(f"expected a message of an open connection, found {kind}")
    return decoder(term, message)


def _parse(control: bytes) -> peer_pb2.PeerMessage:
    try:
        return peer_pb2.PeerMessage.FromString(control)
    except DecodeError as error:
        raise BadFrame(f"control part of {len(control)} bytes is no PeerMessage: {error}") from error


def _decode_push(term: int, push: peer_pb2.Push, payload: bytes) -> Push:
    prev_index, first_index, last_index = push.prev_index, push.first_index, push.last_index
    if prev_index < -1 or push.prev_term < -1 or push.commit_index < -1:
        raise BadFrame(f"push: index or term out of range in {push}")
    span = None
    if last_index >= first_index:
        if first_index != prev_index + 1 or push.position < 0 or not 0 <= push.entries_term <= term or not payload:
            raise BadFrame(f"push: entries do not follow prev_index, or have no bytes, in {push}")
        span = Span(first_index, last_index, push.entries_term, push.position, len(payload))
    elif payload:
        raise BadFrame(f"push: a probe carries no entries, found {len(payload)} bytes")
    return Push(
        term=term,
        prev_index=prev_index,
        prev_term=push.prev_term,
        commit_index=push.commit_index,
        span=span,
        payload=payload if span else None,
    )


def _decode_vote_request(term: int, message: peer_pb2.PeerMessage) -> VoteRequest:
    vote = message.vote_request
    if vote.last_index < -1 or vote.last_term < -1:
        raise BadFrame(f"vote_request: index or term out of range in {vote}")
    return VoteRequest(term=term, is_pre_vote=vote.is_pre_vote, last_index=vote.last_index, last_term=vote.last_term)


def _decode_vote_response(term: int, message: peer_pb2.PeerMessage) -> VoteResponse:
    vote = message.vote_response
    return VoteResponse(term=term, is_pre_vote=vote.is_pre_vote, is_granted=vote.is_granted)


def _decode_heartbeat(term: int, message: peer_pb2.PeerMessage) -> Heartbeat:
    heartbeat = message.heartbeat
    if heartbeat.commit_index < -1 or heartbeat.round < 0:
        raise BadFrame(f"heartbeat: commit_index or round out of range in {heartbeat}")
    return Heartbeat(term=term, commit_index=heartbeat.commit_index, round=heartbeat.round)


def _decode_heartbeat_response(term: int, message: peer_pb2.PeerMessage) -> HeartbeatResponse:
    if message.heartbeat_response.round < 0:
        raise BadFrame(f"heartbeat_response: round out of range in {message.heartbeat_response}")
    return HeartbeatResponse(term=term, round=message.heartbeat_response.round)


def _decode_push_response(term: int, message: peer_pb2.PeerMessage) -> PushAccepted | PushRefused:
    response = message.push_response
    if response.is_success:
        if response.match_index < -1:
            raise BadFrame(f"push_response: match_index out of range in {response}")
        return PushAccepted(term=term, match_index=response.match_index)
    if min(response.rejected_prev_index, response.last_index, response.conflict_term) < -1:
        raise BadFrame(f"push_response: index or term out of range in {response}")
    return PushRefused(
        term=term,
        rejected_prev_index=response.rejected_prev_index,
        last_index=response.last_index,
        conflict_term=response.conflict_term,
        conflict_first_index=response.conflict_first_index,
        is_disk_full=response.code == ResponseCode.DISK_FULL,
    )


_DECODERS: dict[str, Callable[[int, peer_pb2.PeerMessage], Message]] = {
    "vote_request": _decode_vote_request,
    "vote_response": _decode_vote_response,
    "heartbeat": _decode_heartbeat,
    "heartbeat_response": _decode_heartbeat_response,
    "push_response": _decode_push_response,
}

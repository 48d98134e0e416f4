"""Bytes of the peer transport: one message is one frame; the first one is a Hello.

Not here: the messages behind the Hello (`dledger.peer_encoder`, `dledger.peer_decoder`), sockets
(`dledger.peer_connection`), who may talk to whom (`dledger.peer_handshake`).

All integers big-endian:

| offset | size | type  | field          | meaning                                             |
| -----: | ---: | ----- | -------------- | --------------------------------------------------- |
|      0 |    4 | u32   | total size     | bytes behind this field: 4 + control + payload      |
|      4 |    4 | u32   | control size   | bytes of the control part                           |
|      8 |    c | bytes | control        | a `dledger.v1.PeerMessage`                          |
|  8 + c |    p | bytes | payload        | entries of a push, bytes of a snapshot or answer; else nothing |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from dledger.errors import DLedgerError, ResponseCode
from dledger.v1 import peer_pb2

FRAME_HEAD = struct.Struct(
    ">"
    "I"  # total size
    "I"  # control size
)
assert FRAME_HEAD.size == 8

PROTOCOL_VERSION = 3
# A control part is a few dozen bytes, a Hello a few hundred, a ResetLog with all members that may be 10 KiB.
CONTROL_SIZE_BYTES_MAX = 16 * 1024
# Group, ids and addresses in a Hello; they are quoted in refusals, which must fit a control part.
NAME_LENGTH_MAX = 255
# What a log goes on from, in a Hello.
ORIGIN_SIZE_BYTES_MAX = 12 * 1024
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
        is_bulk: whether the connection carries log and snapshot bytes and their answers, or all that is short.
        peer_address: host:port of the speaker's peer transport.
        is_inquiry: the connection is for questions about the origin (`dledger.inquiry`); the speaker may not take part.
        origin: what the speaker's log goes on from (`dledger.origin`).
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
    peer_address: str = ""
    is_inquiry: bool = False
    origin: bytes = b""


def encode_hello(hello: Hello) -> bytes:
    """Return the whole frame of a Hello."""
    return head_and_control(
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
                peer_address=hello.peer_address,
                is_inquiry=hello.is_inquiry,
                origin=hello.origin,
            )
        ),
        payload_size=0,
    )


def head_and_control(message: peer_pb2.PeerMessage, payload_size: int) -> bytes:
    """Return the frame that `message` begins, up to where its payload of `payload_size` bytes goes."""
    control = message.SerializeToString()
    return FRAME_HEAD.pack(4 + len(control) + payload_size, len(control)) + control


def decode_hello(control: bytes, payload: bytes) -> Hello:
    """Read the first frame of a connection.

    Raises:
        BadFrame: it is no Hello; close the connection.
    """
    message = parse_control(control)
    if message.WhichOneof("kind") != "hello" or payload:
        raise BadFrame(f"expected a Hello without payload as first frame, found {message.WhichOneof('kind')}")
    hello = message.hello
    names = (hello.group, hello.self_id, hello.peer_id, hello.client_address, hello.peer_address)
    if max(map(len, names)) > NAME_LENGTH_MAX:
        raise BadFrame(f"hello: a name is longer than {NAME_LENGTH_MAX} characters")
    if len(hello.origin) > ORIGIN_SIZE_BYTES_MAX:
        raise BadFrame(f"hello: an origin of {len(hello.origin)} bytes; at most {ORIGIN_SIZE_BYTES_MAX} are allowed")
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
        peer_address=hello.peer_address,
        is_inquiry=hello.is_inquiry,
        origin=hello.origin,
    )


def parse_control(control: bytes) -> peer_pb2.PeerMessage:
    """Read a control part.

    Raises:
        BadFrame: it is none; close the connection.
    """
    try:
        return peer_pb2.PeerMessage.FromString(control)
    except DecodeError as error:
        raise BadFrame(f"control part of {len(control)} bytes is no PeerMessage: {error}") from error

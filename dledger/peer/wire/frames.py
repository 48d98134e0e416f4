"""Bytes of the peer transport: one message is one frame; the first one is a Hello.

Not here: the messages after the Hello (`dledger.peer.wire.encoder`, `dledger.peer.wire.decoder`), sockets
(`dledger.peer.connection`), which peers are accepted (`dledger.peer.handshake`).

All integers big-endian:

| offset | size | type  | field          | meaning                                             |
| -----: | ---: | ----- | -------------- | --------------------------------------------------- |
|      0 |    4 | u32   | total size     | |bytes after this field: 4 + control + payload       ||
|      4 |    4 | u32   | control size   | bytes of the control part                           |
|      8 |    c | bytes | control        | a `dledger.v1.PeerMessage`                          |
|  8 + c |    p | bytes | payload        | entries of a push, bytes of a snapshot or answer; else nothing |

The last five bytes of the control part are a field that `PeerMessage` does not declare (number 15, fixed32, so 0x7d and
four bytes, little-endian as in protobuf): the CRC-32C of both sizes and of the control part before it. TCP's checksum
of 16 bits misses one damaged segment in some tens of thousands, and one flipped bit can turn a refusal into a vote, or
change a commit index. Payloads have their own checksums. A program that does not know the field skips it, so older and
newer programs can still read each other's Hello, and report the difference.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c
from google.protobuf.message import DecodeError

from dledger.errors import DLedgerError, ResponseCode
from dledger.storage.identity import LIVES_MAX, NUMBER_END
from dledger.types import NO_GROUP
from dledger.v1 import peer_pb2

if TYPE_CHECKING:
    from dledger.core.config import RaftConfig

FRAME_HEAD = struct.Struct(
    ">"
    "I"  # total size
    "I"  # control size
)
assert FRAME_HEAD.size == 8

_CHECKSUM = struct.Struct(
    "<"
    "B"  # _CHECKSUM_TAG
    "I"  # crc32c
)
_CHECKSUM_TAG = 15 << 3 | 5
assert _CHECKSUM.size == 5

PROTOCOL_VERSION = 4
# From this version on every frame has a checksum.
_CHECKSUM_VERSION = 4
# A control part has a few dozen bytes, a Hello a few hundred, a ResetLog with the most members 10 KiB.
CONTROL_SIZE_BYTES_MAX = 16 * 1024
# Group, ids and addresses in a Hello; refusals quote them, and must fit into a control part.
NAME_LENGTH_MAX = 255
# The origin of a log (the store that it continues), in a Hello.
ORIGIN_SIZE_BYTES_MAX = 12 * 1024
# Largest push payload. Fixed for all nodes, because sender and receiver must agree on it.
PAYLOAD_SIZE_BYTES_MAX = 16 * 1024 * 1024
# The memory that an unknown process can occupy before its Hello is accepted.
HELLO_FRAME_SIZE_BYTES_MAX = FRAME_HEAD.size + CONTROL_SIZE_BYTES_MAX
FRAME_SIZE_BYTES_MAX = HELLO_FRAME_SIZE_BYTES_MAX + PAYLOAD_SIZE_BYTES_MAX


class BadFrame(DLedgerError):
    """A peer sent bytes that are no message of this protocol. Close the connection; the node itself is not affected."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame on every connection, both ways: the sender, the intended receiver, and whether the sender accepts.

    Attributes:
        self_id: id of the sender.
        peer_id: the id of the node that the sender expects at the other side.
        cluster_digest: `NodeConfig.cluster_digest()` of the sender.
        client_address: host:port of the sender's LogService.
        code: 200, or why the connection is refused (`ResponseCode`, or a newer node's code).
        message: the refusal for people.
        is_bulk: whether the connection carries log and snapshot bytes and their answers, or all short messages.
        peer_address: host:port of the sender's peer transport.
        is_bootstrap: the connection is for questions about the origin (`dledger.peer.bootstrap`); the sender may not
            have joined yet.
        origin: the store that the sender's log continues (`dledger.peer.origin`).
        group_id: of the sender's group; 0 if it is withheld, or not known yet.
        directory_id, starts, lives: of the sender's directory (`dledger.storage.identity`); sent with `group_id`.
        feature_level: of the sender's program (`dledger.node.node.Node`); 0 from older programs.
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
    is_bootstrap: bool = False
    origin: bytes = b""
    group_id: int = NO_GROUP
    directory_id: int = 0
    starts: int = 0
    lives: tuple[int, ...] = ()
    feature_level: int = 0


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
                is_bootstrap=hello.is_bootstrap,
                origin=hello.origin,
                group_id=hello.group_id,
                directory_id=hello.directory_id,
                starts=hello.starts,
                lives=hello.lives,
                feature_level=hello.feature_level,
            )
        ),
        payload_size=0,
    )


def head_and_control(message: peer_pb2.PeerMessage, payload_size: int) -> bytes:
    """Return the frame of `message`, up to its payload of `payload_size` bytes."""
    content = message.SerializeToString()
    control_size = len(content) + _CHECKSUM.size
    head = FRAME_HEAD.pack(4 + control_size + payload_size, control_size)
    return head + content + _CHECKSUM.pack(_CHECKSUM_TAG, crc32c(content, crc32c(head)))


def decode_hello(control: bytes, payload: bytes) -> Hello:
    """Read the first frame of a connection.

    Raises:
        BadFrame: it is no Hello; close the connection.
    """
    # An older version sends no checksum; its greeting is read so that the refusal can have our version.
    has_checksum = _has_checksum(control)
    message = parse_control(control, len(payload)) if has_checksum else _parse(control)
    if not has_checksum and message.hello.protocol_version >= _CHECKSUM_VERSION:
        raise BadFrame(f"hello: control part of {len(control)} bytes has no checksum at its end")
    if message.WhichOneof("kind") != "hello" or payload:
        raise BadFrame(f"expected a Hello without payload as first frame, found {message.WhichOneof('kind')}")
    hello = message.hello
    names = (hello.group, hello.self_id, hello.peer_id, hello.client_address, hello.peer_address)
    if max(map(len, names)) > NAME_LENGTH_MAX:
        raise BadFrame(f"hello: a name is longer than {NAME_LENGTH_MAX} characters")
    if len(hello.origin) > ORIGIN_SIZE_BYTES_MAX:
        raise BadFrame(f"hello: an origin of {len(hello.origin)} bytes; at most {ORIGIN_SIZE_BYTES_MAX} are allowed")
    if len(hello.lives) > LIVES_MAX or max(hello.group_id, hello.directory_id, *hello.lives) >= NUMBER_END:
        raise BadFrame(f"hello: more than {LIVES_MAX} lives, or an id that is out of range")
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
        is_bootstrap=hello.is_bootstrap,
        origin=hello.origin,
        group_id=hello.group_id,
        directory_id=hello.directory_id,
        starts=hello.starts,
        lives=tuple(hello.lives),
        feature_level=hello.feature_level,
    )


def parse_control(control: bytes, payload_size: int) -> peer_pb2.PeerMessage:
    """Read a control part, before a payload of `payload_size` bytes.

    Raises:
        BadFrame: it is invalid, or was damaged in transit; close the connection.
    """
    check_control(control, payload_size)
    return _parse(control[: -_CHECKSUM.size])


def check_control(control: bytes, payload_size: int) -> None:
    """Compare the checksum of both sizes and of the control part; the payload does not have to be there yet.

    Raises:
        BadFrame: it is missing, or one of them was damaged in transit; close the connection.
    """
    tag, checksum = _CHECKSUM.unpack(control[-_CHECKSUM.size :]) if len(control) >= _CHECKSUM.size else (0, 0)
    if tag != _CHECKSUM_TAG:
        raise BadFrame(f"control part of {len(control)} bytes has no checksum at its end")
    head = FRAME_HEAD.pack(4 + len(control) + payload_size, len(control))
    actual = crc32c(control[: -_CHECKSUM.size], crc32c(head))
    if actual != checksum:
        raise BadFrame(
            f"control part of {len(control)} bytes was damaged on its way: expected checksum {checksum:#010x}, "
            f"found {actual:#010x}"
        )


def _parse(content: bytes) -> peer_pb2.PeerMessage:
    try:
        return peer_pb2.PeerMessage.FromString(content)
    except DecodeError as error:
        raise BadFrame(f"control part of {len(content)} bytes is no PeerMessage: {error}") from error


def _has_checksum(control: bytes) -> bool:
    return control[-_CHECKSUM.size : 1 - _CHECKSUM.size] == bytes((_CHECKSUM_TAG,))


def check_frame_sizes(config: RaftConfig) -> None:
    """Check that the largest messages of the core fit into a frame.

    Raises:
        ValueError: it does not; the message names the setting.
    """
    for name in ("max_push_size_bytes", "snapshot_chunk_size_bytes"):
        size = getattr(config, name)
        if size > PAYLOAD_SIZE_BYTES_MAX:
            raise ValueError(f"{name}: expected at most {PAYLOAD_SIZE_BYTES_MAX}, found {size}")

"""Decoders of the port of nodes: frames, greetings, messages, bootstrap questions, identities in certificates."""

import json
import struct
from contextlib import suppress
from dataclasses import replace

from crc32c import crc32c

from commitlog.conversion.base_log_files import BaseLogFile, BaseLogManifest
from commitlog.conversion.bootstrap_rule import Claim, Statement, statement_from
from commitlog.conversion.old_config import config_from_json
from commitlog.conversion.origin import abridge, difference_of
from dledger.core.messages import (
    Heartbeat,
    Push,
    PushAccepted,
    ReadIndexRequest,
    ResetLog,
    SnapshotChunk,
    SnapshotProgress,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.peer import sealing
from dledger.peer.sealing import (
    GREETING_HEAD,
    RECORD_HEAD,
    AcceptorsGreeting,
    DialersGreeting,
    NotProven,
    RecordAltered,
    RecordOpener,
    greeting_size,
)
from dledger.peer.wire.buffer import FrameBuffer
from dledger.peer.wire.decoder import decode
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import FRAME_HEAD, PROTOCOL_VERSION, BadFrame, Hello, decode_hello, encode_hello
from dledger.security.errors import NoIdentity
from dledger.security.identity import CertificateIdentity, identity_among
from dledger.types import Member, Membership, MembershipEntry, SnapshotInfo, Span
from store.fs.foreign_json import foreign_json
from tests.fuzz.target import Target, text_of

SECRET = bytes(range(32))
MEMBERS = Membership((Member("n0", "127.0.0.1:1", is_voter=True, incarnation=3),), 5)
MESSAGES = (
    VoteRequest(7, is_pre_vote=True, last_index=41, last_term=6, group_id=5),
    VoteResponse(7, is_pre_vote=False, is_granted=True),
    Heartbeat(7, commit_index=40, round=3),
    Push(7, 40, 6, 40, Span(41, 41, 7, 4100, 60), payload=bytes(60)),
    PushAccepted(7, match_index=41),
    ReadIndexRequest(7, read_id=9),
    SnapshotChunk(7, SnapshotInfo(9, 3, 100, 77), offset=40, length=8, payload=b"snapshot"),
    SnapshotProgress(7, index=9, received_bytes=48),
    ResetLog(7, 10, 1000, 3, MembershipEntry(9, MEMBERS), 9, 5, 10),
    TimeoutNow(7),
)
HELLO = Hello("g0", "n1", "n2", 12345, "127.0.0.1:20921", is_bulk=True, peer_address="127.0.0.1:20911")
MANIFEST = BaseLogManifest(2048, (BaseLogFile(f"{0:020d}", 1024, 7), BaseLogFile(f"{1024:020d}", 1024, 8)))


def frames(data: bytes) -> None:
    """Cut any bytes into frames, as they arrive on a connection; the first byte says in which pieces."""
    pieces, data = data[:1], data[1:]
    buffer = FrameBuffer()
    # At most 64 pieces: more find nothing more, and take a hundred times as long.
    size = max(1 + (pieces[0] if pieces else 0), len(data) // 64)
    is_greeted = False
    with suppress(BadFrame):
        for begin in range(0, len(data), size):
            piece = data[begin : begin + size]
            while piece:
                space = buffer.free_part()
                taken = min(len(space), len(piece))
                space[:taken] = piece[:taken]
                piece = piece[taken:]
                for control, payload in buffer.received(taken):
                    if is_greeted:
                        decode(control, payload)
                    else:
                        decode_hello(control, payload)
                        is_greeted = True
                        buffer.accept_messages()
    assert buffer.size_bytes <= 32 << 20


def with_valid_checksum(content: bytes, payload_size: int) -> bytes:
    """Return a control part with a good checksum: no other one reaches the decoder."""
    head = FRAME_HEAD.pack(4 + len(content) + 5 + payload_size, len(content) + 5)
    return content + struct.pack("<BI", 15 << 3 | 5, crc32c(content, crc32c(head)))


def messages(data: bytes) -> None:
    """Decode a message of a connection; a good one is the same after encoding and decoding."""
    payload = bytes(data[0] if data else 0)
    try:
        message = decode(with_valid_checksum(data[1:], len(payload)), payload)
    except BadFrame:
        return
    frame, again = encode(message)
    assert decode(frame[FRAME_HEAD.size :], bytes(again or b"")) == message


def greeting(data: bytes) -> None:
    """Decode a greeting; a good one is the same after encoding and decoding."""
    try:
        hello = decode_hello(with_valid_checksum(data, 0), b"")
    except BadFrame:
        return
    again = encode_hello(replace(hello, protocol_version=PROTOCOL_VERSION))
    assert decode_hello(again[FRAME_HEAD.size :], b"") == replace(hello, protocol_version=PROTOCOL_VERSION)


def bootstrap(data: bytes) -> None:
    """Read a statement of another node, its list of files of configuration, and the origin in its greeting."""
    head, _, payload = data.partition(b"\0")
    with suppress(ValueError):
        value = foreign_json(head)
        if isinstance(value, dict):
            statement_from(value.get("statement"), payload)
    with suppress(ValueError):
        config_from_json(foreign_json(payload))
    difference = difference_of(MANIFEST, data)
    assert difference is None or len(difference) < 10_000


def identity(data: bytes) -> None:
    """Read the identity of a certificate; a good one is written as it was read."""
    uris = text_of(data).split("\n")
    with suppress(NoIdentity):
        identity_among(uris)
    with suppress(NoIdentity):
        assert CertificateIdentity.parse(uris[0]).uri == uris[0]


def seed_frames() -> list[bytes]:
    """Return a greeting followed by messages, in pieces of 256 bytes and of one."""
    whole = encode_hello(HELLO) + b"".join(frame + bytes(payload or b"") for frame, payload in map(encode, MESSAGES))
    return [b"\xff" + whole, b"\0" + encode_hello(HELLO)]


def seed_messages() -> list[bytes]:
    """Return each message without its checksum."""
    parts = [(frame[FRAME_HEAD.size : -5], payload or b"") for frame, payload in map(encode, MESSAGES)]
    return [bytes((len(payload),)) + content for content, payload in parts]


def seed_bootstrap() -> list[bytes]:
    """Return a statement, and the origin in a greeting."""
    text, payload = Statement(Claim.HELD, MANIFEST, 0).encoded()
    question = json.dumps({"ask": "state", "statement": text}).encode()
    return [question + b"\0" + payload, b'{}\0[["topics.json", 100, 7]]', abridge(MANIFEST)]


def secret(data: bytes) -> None:
    """Take any bytes for a greeting and for a record, then the greeting with a good proof: no other one is read."""
    acceptor = AcceptorsGreeting((SECRET,), "g0", "n1")
    with suppress(NotProven):
        greeting_size(data[: GREETING_HEAD.size].ljust(GREETING_HEAD.size, b"\0"))
    with suppress(NotProven):
        acceptor.finish(data)
    opener = RecordOpener(SECRET)
    with suppress(RecordAltered):
        opener.size_of(data[: RECORD_HEAD.size].ljust(RECORD_HEAD.size, b"\0"))
        opener.open(data[: RECORD_HEAD.size], data[RECORD_HEAD.size :])
    if len(data) < 64:
        return
    try:
        answer, session = acceptor.finish(sealing._greeting(SECRET, b"dialer", data[:0xFFFF], b""))
    except NotProven:
        return
    assert len(session.peer_id) <= 255
    assert len(answer) == greeting_size(answer[: GREETING_HEAD.size])


TARGETS = (
    Target("frames", frames, seed_frames),
    Target("messages", messages, seed_messages),
    Target("greeting", greeting, lambda: [encode_hello(HELLO)[FRAME_HEAD.size : -5]]),
    Target("bootstrap", bootstrap, seed_bootstrap),
    Target("secret", secret, lambda: [DialersGreeting(SECRET, "g0", "n0", "n1").first[GREETING_HEAD.size : -32]]),
    Target("identity", identity, lambda: [b"dledger://g%2F0/node/n1", b"dledger://g0/user/alice\nhttps://a"]),
)

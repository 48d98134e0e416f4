"""Frames: frames are read back, however the reads are split; invalid ones are refused, without side effects."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import fields, replace
from typing import get_args

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

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
from dledger.peer.wire.buffer import FrameBuffer
from dledger.peer.wire.decoder import decode
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import (
    CONTROL_SIZE_BYTES_MAX,
    FRAME_HEAD,
    FRAME_SIZE_BYTES_MAX,
    HELLO_FRAME_SIZE_BYTES_MAX,
    NAME_LENGTH_MAX,
    PROTOCOL_VERSION,
    BadFrame,
    decode_hello,
    head_and_control,
    parse_control,
)
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
from dledger.v1 import peer_pb2

counts = st.integers(0, INDEX_MAX)
indexes = st.integers(-1, INDEX_MAX)
groups = st.integers(0, GROUP_ID_END - 1)
incarnations = st.integers(0, 2**64 - 1)


@st.composite
def pushes(draw: st.DrawFn) -> Push:
    term, prev_index = draw(counts), draw(st.integers(-1, INDEX_MAX - 1000))
    payload = draw(st.binary(max_size=500))
    span = None
    if payload:
        last_index = prev_index + draw(st.integers(1, 1000))
        span = Span(prev_index + 1, last_index, draw(st.integers(0, term)), draw(counts), len(payload))
    prev_term = decoded_term(prev_index, draw(st.integers(-1, term)))
    return Push(term, prev_index, prev_term, draw(indexes), span, payload or None, draw(st.booleans()))


@st.composite
def snapshot_chunks(draw: st.DrawFn) -> SnapshotChunk:
    term, offset, payload = draw(counts), draw(st.integers(0, 2**61)), draw(st.binary(max_size=500))
    size_bytes = offset + len(payload) + draw(st.integers(0, 5000))
    snapshot = SnapshotInfo(draw(counts), draw(st.integers(0, term)), size_bytes, draw(st.integers(0, 2**32 - 1)))
    return SnapshotChunk(term, snapshot, offset, len(payload), payload)


@st.composite
def resets(draw: st.DrawFn) -> ResetLog:
    term, begin_index = draw(counts), draw(counts)
    number = draw(st.integers(1, MEMBERS_MAX))
    is_voter, incarnation = draw(st.booleans()), draw(incarnations)
    members = tuple(Member(f"n{n:02}", f"host-{n}:7", is_voter, incarnation) for n in range(number))
    return ResetLog(
        term,
        begin_index,
        draw(counts),
        draw(st.integers(0 if begin_index else -1, term)),
        MembershipEntry(draw(indexes), Membership(members, draw(groups))),
        draw(indexes),
        draw(st.integers(-1, 2**32 - 1)),
        draw(indexes),
        draw(groups),
    )


vote_requests = counts.flatmap(
    lambda term: st.builds(
        VoteRequest, st.just(term), st.booleans(), indexes, st.integers(-1, term), st.booleans(), incarnations, groups
    )
)
messages = st.one_of(
    vote_requests,
    st.builds(VoteResponse, counts, st.booleans(), st.booleans(), st.booleans()),
    st.builds(Heartbeat, counts, indexes, counts, st.booleans(), groups),
    st.builds(HeartbeatResponse, counts, counts, incarnations, st.booleans()),
    pushes(),
    st.builds(PushAccepted, counts, indexes, incarnations),
    st.builds(PushRefused, counts, indexes, indexes, indexes, indexes, st.booleans()),
    st.builds(TimeoutNow, counts, groups),
    st.builds(ReadIndexRequest, counts, counts),
    st.builds(ReadIndexResponse, counts, counts, indexes),
    snapshot_chunks(),
    st.builds(SnapshotProgress, counts, counts, counts),
    resets(),
)


def joined(message: Message) -> bytes:
    head, payload = encode(message)
    return head + (payload or b"")


def feed(buffer: FrameBuffer, data: bytes, cuts: random.Random) -> list[tuple[bytes, bytes]]:
    """Give `data` to the buffer in reads of random sizes, as a socket would."""
    frames = []
    at = 0
    while at < len(data):
        space = buffer.free_part()
        size = min(len(space), len(data) - at, cuts.choice((1, 7, 100, 5000, 1 << 20)))
        space[:size] = data[at : at + size]
        frames += buffer.received(size)
        at += size
    return frames


@given(st.lists(messages, max_size=10), st.integers(0, 2**32))
def test_messages_are_decoded_unchanged_however_reads_are_split(sent: list[Message], seed: int) -> None:
    buffer = FrameBuffer()
    buffer.accept_messages()
    frames = feed(buffer, b"".join(map(joined, sent)), random.Random(seed))
    assert [decode(control, payload) for control, payload in frames] == sent


def test_large_frames_grow_the_buffer_and_leave_it_small_again() -> None:
    payload = random.Random(7).randbytes(5 << 20)
    push = Push(3, 9, 2, 9, Span(10, 12, 3, 4096, len(payload)), payload)
    buffer = FrameBuffer()
    buffer.accept_messages()
    sent = [push, Heartbeat(3, 4, 5), push]
    frames = feed(buffer, b"".join(map(joined, sent)), random.Random(1))
    assert [decode(*frame) for frame in frames] == sent
    assert buffer.size_bytes <= 1 << 20


def test_all_frames_of_one_read_are_returned_together() -> None:
    buffer = FrameBuffer()
    data = b"".join(joined(Heartbeat(1, -1, number)) for number in range(50))
    buffer.free_part()[: len(data)] = data
    assert len(buffer.received(len(data))) == 50


def test_payload_is_not_joined_to_the_head() -> None:
    payload = b"x" * 100
    _, sent = encode(Push(1, -1, -1, -1, Span(0, 0, 1, 0, 100), payload))
    assert sent is payload


@given(st.binary(max_size=4000), st.integers(0, 2**32), st.booleans())
def test_garbage_is_refused_with_bad_frame_and_nothing_else(data: bytes, seed: int, is_open: bool) -> None:
    buffer = FrameBuffer()
    if is_open:
        buffer.accept_messages()
    try:
        for control, payload in feed(buffer, data, random.Random(seed)):
            decode(control, payload)
            decode_hello(control, payload)
    except BadFrame:
        pass
    assert buffer.size_bytes <= FRAME_SIZE_BYTES_MAX


@given(messages, st.data())
def test_a_damaged_control_part_is_refused(message: Message, data: st.DataObject) -> None:
    """One changed byte, anywhere: the checksum finds every burst of up to 32 bits."""
    control, payload = bytearray(encode(message)[0][FRAME_HEAD.size :]), encode(message)[1] or b""
    control[data.draw(st.integers(0, len(control) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(BadFrame):
        decode(bytes(control), payload)


@given(messages, st.integers(0, FRAME_HEAD.size - 1), st.integers(1, 255))
def test_a_frame_with_damaged_sizes_gives_no_message(message: Message, at: int, mask: int) -> None:
    head, payload = encode(message)
    frame = bytearray(head + (payload or b""))
    frame[at] ^= mask
    buffer = FrameBuffer()
    buffer.accept_messages()
    with suppress(BadFrame):
        for control, after in feed(buffer, bytes(frame) + bytes(64), random.Random(0)):
            decode(control, after)
            pytest.fail("a message came out of a frame whose sizes are wrong")


@given(messages, st.binary(max_size=200), st.data())
def test_fields_with_a_valid_checksum_are_still_checked_for_their_range(
    message: Message, noise: bytes, data: st.DataObject
) -> None:
    """A peer with a bug, or an attacker, sends right checksums of wrong messages."""
    control, payload = encode(message)[0][FRAME_HEAD.size :], encode(message)[1] or b""
    at = data.draw(st.integers(0, len(control)))
    sent = peer_pb2.PeerMessage()
    try:
        sent.MergeFromString(control[:at] + noise)
    except DecodeError:
        return
    try:
        read = decode(head_and_control(sent, len(payload))[FRAME_HEAD.size :], payload)
    except BadFrame:
        return
    assert read.term >= 0
    if isinstance(read, Push) and read.span is not None:
        assert read.span.first_index == read.prev_index + 1 <= read.span.last_index


def test_hello_without_a_checksum_is_accepted_only_from_an_older_version() -> None:
    """So that an older program gets the version that this node requires."""
    old = peer_pb2.PeerMessage(hello=peer_pb2.Hello(protocol_version=3, self_id="n0"))
    new = peer_pb2.PeerMessage(hello=peer_pb2.Hello(protocol_version=PROTOCOL_VERSION, self_id="n0"))

    assert decode_hello(old.SerializeToString(), b"").protocol_version == 3
    with pytest.raises(BadFrame, match="no checksum"):
        decode_hello(new.SerializeToString(), b"")


@pytest.mark.parametrize(
    ("total_size", "control_size"),
    [(FRAME_SIZE_BYTES_MAX, 8), (100, CONTROL_SIZE_BYTES_MAX + 1), (10, 7), (3, 0), (0, 0), (2**32 - 1, 8)],
)
def test_a_head_out_of_bounds_is_refused_before_its_bytes_are_awaited(total_size: int, control_size: int) -> None:
    buffer = FrameBuffer()
    buffer.accept_messages()
    with pytest.raises(BadFrame, match="out of bounds"):
        feed(buffer, FRAME_HEAD.pack(total_size, control_size), random.Random(0))


def test_process_that_has_not_greeted_cannot_announce_more_than_a_hello() -> None:
    with pytest.raises(BadFrame, match="out of bounds"):
        feed(FrameBuffer(), FRAME_HEAD.pack(HELLO_FRAME_SIZE_BYTES_MAX, 20), random.Random(0))


def test_default_values_take_no_bytes() -> None:
    for quiet, loud in (
        (VoteResponse(1, False, True), VoteResponse(1, False, True, is_founding=True)),
        (Heartbeat(1, 2, 3), Heartbeat(1, 2, 3, is_founding=True)),
        (HeartbeatResponse(1, 2), HeartbeatResponse(1, 2, is_healthy=False)),
        (HeartbeatResponse(1, 2), HeartbeatResponse(1, 2, is_unmatched=True)),
        (PushAccepted(1, 2), PushAccepted(1, 2, incarnation=1)),
    ):
        assert len(joined(loud)) - len(joined(quiet)) == 2


def test_memberships_of_a_push_are_not_encoded() -> None:
    found = MembershipEntry(10, Membership((Member("n0"),)))
    push = Push(3, 9, 2, 9, Span(10, 12, 3, 0, 5), b"12345", memberships=(found,))
    control, payload = encode(push)
    assert decode(control[FRAME_HEAD.size :], payload or b"") == replace(push, memberships=())


PUSH = Push(3, 9, 2, 9, Span(10, 12, 3, 0, 5), b"12345")
CHUNK = SnapshotChunk(3, SnapshotInfo(9, 2, 100, 7), 95, 5, b"12345")
MEMBERS = Membership((Member("n0", "h:1"), Member("n1", "h:2")), 5)
RESET = ResetLog(3, 10, 4096, 2, MembershipEntry(-1, MEMBERS), 9, 7, 12)


def with_members(*members: Member) -> ResetLog:
    return replace(RESET, membership=MembershipEntry(-1, Membership(members)))


FULL: list[Message] = [
    VoteRequest(4, True, 2, 3, is_transfer=True, voter_incarnation=4, life=5, group_id=6),
    VoteResponse(1, True, True, is_founding=True, life=5),
    Heartbeat(1, 2, 3, is_founding=True, group_id=5, renews_lease=False),
    HeartbeatResponse(1, 2, incarnation=3, is_healthy=False, is_unmatched=True),
    replace(PUSH, is_founding=True, group_id=5, acknowledged_by=7),
    PushAccepted(1, 2, incarnation=3),
    *(PushRefused(1, 2, 3, 4, 5, **{why: True}) for why in ("is_disk_full", "is_corrupt", "is_contradicting")),
    TimeoutNow(1, group_id=5),
    ReadIndexRequest(1, 2),
    ReadIndexResponse(1, 2, 3),
    replace(CHUNK, group_id=5),
    SnapshotProgress(1, 2, 3),
    replace(RESET, group_id=5),
]


@pytest.mark.parametrize("message", FULL, ids=lambda message: type(message).__name__)
def test_every_field_of_a_message_is_encoded(message: Message) -> None:
    head, payload = encode(message)
    assert decode(head[FRAME_HEAD.size :], payload or b"") == message
    silent = [field.name for field in fields(message) if getattr(message, field.name) == field.default]
    silent = silent if not isinstance(message, PushRefused) else silent[2:]  # it has one reason at a time
    assert silent == (["memberships"] if isinstance(message, Push) else []), "a field is not tried here"


@pytest.mark.parametrize("acknowledged_by", [None, 0, 7])
def test_an_unknown_incarnation_is_not_the_first_one(acknowledged_by: int | None) -> None:
    for push in (PUSH, Push(3, 9, 2, 9, None)):
        head, payload = encode(replace(push, acknowledged_by=acknowledged_by))
        assert decode(head[FRAME_HEAD.size :], payload or b"").acknowledged_by == acknowledged_by


def test_there_is_a_frame_for_every_message_of_the_core() -> None:
    assert {type(message) for message in FULL} == set(get_args(Message))


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(-1, False, 0, 0),
        VoteRequest(1, False, -2, 0),
        VoteRequest(TERM_MAX + 1, False, 0, 0),
        VoteRequest(1, False, INDEX_MAX + 1, 0),
        VoteRequest(1, False, 0, 2),
        Heartbeat(1, 0, 0, group_id=GROUP_ID_END),
        replace(RESET, membership=MembershipEntry(-1, replace(MEMBERS, group_id=GROUP_ID_END))),
        Heartbeat(1, INDEX_MAX + 1, 0),
        PushAccepted(1, INDEX_MAX + 1),
        PushRefused(1, 0, INDEX_MAX + 1, 0, 0),
        PushRefused(1, 0, 0, TERM_MAX + 1, 0),
        PushRefused(1, 0, 0, 0, INDEX_MAX + 1),
        replace(PUSH, prev_term=4),
        replace(PUSH, commit_index=INDEX_MAX + 1),
        replace(PUSH, span=Span(10, INDEX_MAX + 1, 3, 0, 5)),
        replace(PUSH, span=Span(10, 12, 3, POSITION_MAX + 1, 5)),
        ReadIndexResponse(1, 0, INDEX_MAX + 1),
        replace(CHUNK, snapshot=SnapshotInfo(INDEX_MAX + 1, 2, 100, 7)),
        replace(RESET, begin_index=INDEX_MAX + 1),
        replace(RESET, begin_position=POSITION_MAX + 1),
        replace(RESET, snapshot_index=INDEX_MAX + 1),
        replace(RESET, membership=MembershipEntry(INDEX_MAX + 1, MEMBERS)),
        Heartbeat(1, -2, 0),
        Heartbeat(1, 0, -1),
        HeartbeatResponse(1, -1),
        PushAccepted(1, -2),
        PushRefused(1, -2, 0, 0, 0),
        replace(PUSH, span=Span(11, 12, 3, 0, 5)),
        replace(PUSH, span=Span(10, 12, 4, 0, 5)),
        replace(PUSH, span=Span(10, 12, 3, -1, 5)),
        TimeoutNow(-1),
        ReadIndexRequest(1, -1),
        ReadIndexResponse(1, -1, 0),
        ReadIndexResponse(1, 0, -2),
        replace(CHUNK, offset=96),
        replace(CHUNK, offset=-1),
        replace(CHUNK, snapshot=SnapshotInfo(-1, 2, 100, 7)),
        replace(CHUNK, snapshot=SnapshotInfo(9, 4, 100, 7)),
        replace(CHUNK, snapshot=SnapshotInfo(9, -1, 100, 7)),
        replace(CHUNK, snapshot=SnapshotInfo(9, 2, -1, 7)),
        SnapshotProgress(1, -1, 0),
        SnapshotProgress(1, 0, -1),
        replace(RESET, begin_index=-1),
        replace(RESET, begin_position=-1),
        replace(RESET, prev_term=-2),
        replace(RESET, prev_term=4),
        replace(RESET, snapshot_index=2**63 - 1, membership=MembershipEntry(-2, MEMBERS)),
        replace(RESET, membership=MembershipEntry(-2, MEMBERS)),
        with_members(),
        with_members(Member("n1"), Member("n0")),
        with_members(Member("n0"), Member("n0")),
        with_members(Member("")),
        with_members(Member("n" * (NAME_LENGTH_MAX + 1))),
        with_members(Member("n0", "h" * (NAME_LENGTH_MAX + 1))),
        with_members(*(Member(f"n{number:02}") for number in range(MEMBERS_MAX + 1))),
    ],
    ids=str,
)
def test_message_that_the_core_excludes_is_refused(message: Message) -> None:
    head, payload = encode(message)
    with pytest.raises(BadFrame):
        decode(head[FRAME_HEAD.size :], payload or b"")


@pytest.mark.parametrize("message", [TimeoutNow(1), RESET, SnapshotProgress(1, 2, 3)], ids=str)
def test_payload_after_a_message_that_has_none_is_refused(message: Message) -> None:
    sent = parse_control(encode(message)[0][FRAME_HEAD.size :], 0)
    head = head_and_control(sent, payload_size=1)
    with pytest.raises(BadFrame, match="expected no payload"):
        decode(head[FRAME_HEAD.size :], b"x")


def test_reset_of_the_largest_group_fits_a_control_part() -> None:
    members = [Member(f"n{number:031}", "h" * 253 + ":65535", True, 2**64 - 1) for number in range(MEMBERS_MAX)]
    head, _ = encode(with_members(*members))
    assert len(head) - FRAME_HEAD.size <= CONTROL_SIZE_BYTES_MAX

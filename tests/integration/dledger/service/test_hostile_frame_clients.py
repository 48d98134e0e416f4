"""Clients that do not follow the protocol of frames are bounded; then, how connections end that do."""

from __future__ import annotations

import asyncio
import socket

import grpc
import grpc.aio
import pytest

from dledger.frames import codec
from dledger.frames.codec import ANSWER, CALL, CLOSING, TOKEN, encode_frame, encode_greeting
from dledger.service.frames.limits import Closed
from dledger.v1 import log_pb2
from tests.support.network.frame_client import raw_frames
from tests.support.network.framed_log import APPEND, LARGE, STATUS, serving
from tests.support.waiting import run, until

# --------------------------------------------------------------------------------------------------- hostile clients


BAD = {
    "another protocol": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", False, Closed.GREETING),
    "versions in disorder": (encode_greeting(2, 1), False, Closed.GREETING),
    "another version": (encode_greeting(2, 9), False, Closed.GREETING),
    "a frame above the limit": (codec.HEAD.pack(codec.REQUEST_SIZE_BYTES_MAX + 1, CALL, 0, 0, 1, 1), True, None),
    "a kind of the server": (encode_frame(ANSWER, b"x", call_id=1), True, None),
    "an unknown kind": (encode_frame(99), True, None),
    "reserved bytes": (codec.HEAD.pack(0, CALL, 0, 1, 1, 1), True, None),
    "a call without an id": (encode_frame(CALL, number=1), True, None),
    "a call without a deadline": (encode_frame(CALL, call_id=1), True, None),
    "a deadline that is too late": (encode_frame(CALL, call_id=1, number=codec.DEADLINE_MS_MAX + 1), True, None),
    "a token that is not ASCII": (encode_frame(TOKEN, b"\xff"), True, None),
    "a token that is too long": (encode_frame(TOKEN, b"x" * (codec.TOKEN_SIZE_BYTES_MAX + 1)), True, None),
}


@pytest.mark.parametrize("case", BAD)
def test_client_that_breaks_the_protocol_is_disconnected_and_others_are_served(case: str) -> None:
    async def scenario() -> None:
        data, is_greeted, reason = BAD[case]
        async with serving() as served, raw_frames(served.address) as other:
            async with raw_frames(served.address, is_greeted=is_greeted) as frames:
                frames.send(data)
                await frames.closed()
            await until(lambda: served.port.counts.closed[reason or Closed.PROTOCOL] == 1)
            assert (await other.answer(1, STATUS, b"")).detail == 0
            assert served.gate.take()[0][1] == STATUS, "nothing of the bad frame reached the gate"

    run(scenario())


def test_call_id_in_use_ends_the_connection() -> None:
    async def scenario() -> None:
        async with serving() as served, raw_frames(served.address) as frames:
            for _ in range(2):
                frames.call(1, APPEND, log_pb2.AppendRequest(request_id=1))
            assert await frames.closed() == []
            await until(lambda: served.log.cancelled == [1] or not served.log.begun)

    run(scenario())


def test_unknown_method_is_refused_and_the_connection_stays() -> None:
    async def scenario() -> None:
        async with serving() as served, raw_frames(served.address) as frames:
            assert list(frames.methods) == [APPEND, STATUS], "nothing else can be called"
            frames.methods["/dledger.v1.AdminService/RemoveMember"] = 2
            answer = await frames.answer(1, "/dledger.v1.AdminService/RemoveMember", b"")
            assert answer.detail == grpc.StatusCode.UNIMPLEMENTED.value[0]
            assert (await frames.answer(2, STATUS, b"")).detail == 0
            assert [note[1] for note in served.gate.take() if note[0] == "admit"] == [STATUS]

    run(scenario())


def test_greeting_in_pieces_is_accepted_and_half_a_greeting_ends_in_time() -> None:
    async def scenario() -> None:
        async with serving(greeting_s=0.2) as served:
            async with raw_frames(served.address, is_greeted=False) as frames:
                frames.send(encode_greeting()[:5])
                assert await frames.closed() == []
            await until(lambda: served.port.counts.closed[Closed.GREETING] == 1)
        async with serving() as served, raw_frames(served.address, is_greeted=False) as frames:
            for byte in encode_greeting()[:-1]:
                frames.send(bytes([byte]))
                await frames.writer.drain()
            frames.send(encode_greeting()[-1:] + encode_frame(TOKEN))
            assert await frames.reader.readexactly(codec.GREETING.size) == encode_greeting()

    run(scenario())


def test_frame_that_is_never_complete_ends_in_time() -> None:
    async def scenario() -> None:
        async with serving(partial_s=0.2) as served, raw_frames(served.address) as frames:
            frames.send(codec.HEAD.pack(1000, CALL, 0, 0, 1, 1000) + b"x" * 10)
            assert await frames.closed() == []
            assert served.port.counts.closed[Closed.SLOW] == 1

    run(scenario())


def test_incomplete_frames_of_all_connections_are_bounded_and_the_largest_ends() -> None:
    async def scenario() -> None:
        async with (
            serving(partial_bytes_max=1 << 20) as served,
            raw_frames(served.address) as small,
            raw_frames(served.address) as large,
        ):
            small.send(codec.HEAD.pack(500_000, CALL, 0, 0, 1, 1000) + b"x" * 300_000)
            large.send(codec.HEAD.pack(5_000_000, CALL, 0, 0, 1, 1000) + b"x" * 4_000_000)
            assert await large.closed() == []
            assert served.port.counts.closed[Closed.SLOW] == 1
            small.send(b"x" * 200_000)
            assert (await small.next()).call_id == 1

    run(scenario())


def test_incomplete_frames_of_connections_that_have_ended_count_no_longer() -> None:
    async def scenario() -> None:
        async with serving(partial_bytes_max=1 << 20, partial_s=0.2) as served:
            for _ in range(2):
                async with raw_frames(served.address) as frames:
                    frames.send(codec.HEAD.pack(900_000, CALL, 0, 0, 1, 1000) + b"x" * 500_000)
                    await until(lambda: served.port._partial.size_bytes >= 500_000)
                    assert await frames.closed() == []
                assert served.port._partial.size_bytes == 0

    run(scenario())


def test_client_that_reads_no_answers_is_not_read_and_is_ended_in_time() -> None:
    async def scenario() -> None:
        async with (
            serving(unread_s=1.0) as served,
            raw_frames(served.address) as slow,
            raw_frames(served.address) as other,
        ):
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(1, 9):
                slow.call(number, STATUS, log_pb2.StatusRequest(group="large"))
            await until(lambda: served.port.counts.calls == 8)
            assert (await other.answer(1, STATUS, b"")).detail == 0
            slow.call(9, STATUS, b"")
            await until(lambda: served.port.counts.closed[Closed.SLOW] == 1)
            assert served.port.counts.calls == 9, "the call after the unread answers was not read"
            assert (await other.answer(2, STATUS, b"")).detail == 0

    run(scenario())


def test_unread_answers_are_bounded_in_bytes() -> None:
    async def scenario() -> None:
        async with (
            serving(unread_bytes_max=4 * LARGE) as served,
            raw_frames(served.address) as slow,
            raw_frames(served.address) as other,
        ):
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(1, 13):
                slow.call(number, STATUS, log_pb2.StatusRequest(group="large"))
            await until(lambda: served.port.counts.closed[Closed.SLOW] == 1)
            assert (await other.answer(1, STATUS, b"")).detail == 0
            assert served.port.counts.connections == 1

    run(scenario())


def test_address_has_at_most_its_fair_share_of_the_connections() -> None:
    async def scenario() -> None:
        async with (
            serving(connections_max=4) as served,
            raw_frames(served.address),
            raw_frames(served.address) as second,
        ):
            async with raw_frames(served.address, is_greeted=False) as third:
                assert await third.closed() == []
            assert served.port.counts.closed[Closed.CROWDED] == 1
            assert (await second.answer(1, STATUS, b"")).detail == 0
            async with raw_frames(served.address, host="127.0.0.2") as other:
                assert (await other.answer(1, STATUS, b"")).detail == 0
                async with raw_frames(served.address, host="127.0.0.2", is_greeted=False) as another:
                    assert await another.closed() == []

    run(scenario())


def test_flood_of_connections_without_a_greeting_ends_the_oldest_and_others_still_connect() -> None:
    async def scenario() -> None:
        async with serving(ungreeted_max=8, ungreeted_address_max=4) as served:
            silent = [socket.create_connection((served.address.host, served.address.port)) for _ in range(20)]
            await until(lambda: served.port.counts.closed[Closed.CROWDED] >= 16)
            async with raw_frames(served.address) as frames:
                assert (await frames.answer(1, STATUS, b"")).detail == 0
            for each in silent:
                each.close()

    run(scenario())


# ------------------------------------------------------------------------------------------------------- orderly ends


@pytest.mark.parametrize("limit", ["idle_s", "age_s"])
def test_idle_and_old_connections_are_announced_and_later_calls_are_certainly_not_begun(limit: str) -> None:
    async def scenario() -> None:
        async with serving(**{limit: 0.1}) as served, raw_frames(served.address) as frames:
            assert (await frames.next()).kind == CLOSING
            answer = await frames.answer(1, APPEND, b"")
            assert (answer.detail, answer.payload) == (grpc.StatusCode.UNAVAILABLE.value[0], codec.NOT_BEGUN.encode())
            assert served.log.begun == []

    run(scenario())


def test_drained_connection_ends_after_a_while() -> None:
    async def scenario() -> None:
        async with serving(idle_s=0.1, linger_s=0.1) as served, raw_frames(served.address) as frames:
            assert await frames.closed() == []
            await until(lambda: served.port.counts.closed[Closed.IDLE] == 1)

    run(scenario())


def test_stop_answers_calls_in_flight_and_cancels_what_takes_longer() -> None:
    async def scenario() -> None:
        async with serving() as served, raw_frames(served.address) as frames:
            for number in (1, 2):
                frames.call(number, APPEND, log_pb2.AppendRequest(request_id=number))
            await until(lambda: len(served.log.begun) == 2)
            stopping = asyncio.create_task(served.port.stop(0.3))
            assert (await frames.next()).kind == CLOSING
            served.log.may_answer[1].set()
            await stopping
            assert [frame.call_id for frame in await frames.closed()] == [1]
            assert served.log.cancelled == [2]
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(served.address.host, served.address.port)

    run(scenario())

# ruff: noqa: N802  (gRPC prescribes the names of the methods)
"""The frame port: the same checks as gRPC, answers in any order, and clients that do not keep to the protocol."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from cluster.local.node import choose_ports
from dledger.config import Address
from dledger.errors import CallRefused
from dledger.frames import codec
from dledger.frames.codec import ANSWER, CALL, CLOSING, TOKEN, encode_frame, encode_greeting
from dledger.service.answers import refuse_log_request
from dledger.service.call_gate import AllRights
from dledger.service.frames.limits import Closed, FrameLimits
from dledger.service.frames.port import FramePort
from dledger.service.grpc_server import Served, start_grpc_server
from dledger.service.guarded_method import Guard
from dledger.service.request_bounds import LOG_BOUNDS
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceServicer, add_LogServiceServicer_to_server
from tests.support.frame_client import raw_frames
from tests.support.waiting import PATIENCE_S, run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message

CALLS_MAX = 64
SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"]
APPEND, STATUS = "/dledger.v1.LogService/Append", "/dledger.v1.LogService/Status"
LARGE = 4 << 20


class Log(LogServiceServicer):
    """Answers appends when the test says so, except those with `request_id` 0."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.may_answer: dict[int, asyncio.Event] = {}

    async def Append(self, request: Any, _context: Any) -> log_pb2.AppendResponse:
        number = request.request_id
        self.begun.append(number)
        if number:
            try:
                await self.may_answer.setdefault(number, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
        return log_pb2.AppendResponse(code=200, request_id=number)

    async def Status(self, request: Any, _context: Any) -> log_pb2.StatusResponse:
        if request.group == "bug":
            raise ValueError("a bug")
        return log_pb2.StatusResponse(code=200, message="x" * LARGE if request.group == "large" else "")


class Gate:
    """Notes what it is asked, and refuses a group."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []

    def admit(self, method: str, context: Any) -> Any:
        gate = self
        token = dict(context.invocation_metadata() or ()).get("authorization")
        self.notes.append(("admit", method, token, context.peer().rpartition(":")[0], dict(context.auth_context())))
        if token == "Bearer bad":
            raise CallRefused("a bad token", is_authenticated=False)

        class Rights(AllRights):
            def check(self, request: Message) -> None:
                gate.notes.append(("check", request))
                if request.group == "secret":  # type: ignore[attr-defined]
                    raise CallRefused("no right", is_authenticated=True)

            def done(self, request: Message, response: Message | None) -> None:
                gate.notes.append(("done", request, response))

        return Rights()

    def take(self) -> list[tuple[Any, ...]]:
        notes, self.notes = self.notes, []
        # gRPC adds properties of its own to what the connection proves.
        return [(*note[:-1], {}) if note[0] == "admit" else note for note in notes]


class Serving:
    def __init__(self, log: Log, gate: Gate, port: FramePort, channel: grpc.aio.Channel) -> None:
        self.log, self.gate, self.port, self.channel = log, gate, port, channel

    @property
    def address(self) -> Address:
        return self.port.address

    async def by_grpc(self, path: str, data: bytes, token: str) -> tuple[int, bytes]:
        """Return the status, and the answer or the details, as a frame has them."""
        call = self.channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            metadata = (("authorization", f"Bearer {token}"),) if token else None
            return 0, await call(data, timeout=PATIENCE_S, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().value[0], (error.details() or "").encode()


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Serving]:
    grpc_port, frame_port = choose_ports(2, None)
    address, log, gate = Address("127.0.0.1", grpc_port), Log(), Gate()
    guard = Guard(LOG_BOUNDS, refuse_log_request, framed=frozenset({"Append", "Status"}))
    served = Served(add_LogServiceServicer_to_server, log, SERVICE, guard)
    port = FramePort(Address("127.0.0.1", frame_port), limits=FrameLimits(**limits))
    server = await start_grpc_server(address, [served], calls_max=CALLS_MAX, gate=gate, frames=port)
    async with grpc.aio.insecure_channel(str(address)) as channel:
        try:
            yield Serving(log, gate, port, channel)
        finally:
            await port.stop(0)
            await server.stop(None)


REQUESTS = {
    "served": (APPEND, log_pb2.AppendRequest(group="g", bodies=[b"x"]).SerializeToString()),
    "served with a token": (STATUS, log_pb2.StatusRequest().SerializeToString()),
    "a field above its bound": (APPEND, log_pb2.AppendRequest(group="g" * 256).SerializeToString()),
    "too many elements": (APPEND, log_pb2.AppendRequest(bodies=[b""] * 8_193).SerializeToString()),
    "above the bound of its size": (STATUS, log_pb2.StatusRequest(group="g" * 70_000).SerializeToString()),
    "not a message": (APPEND, b"\xff\xff\xff"),
    "without a right": (APPEND, log_pb2.AppendRequest(group="secret").SerializeToString()),
    "a bad token": (APPEND, b""),
    "an error of the service": (STATUS, log_pb2.StatusRequest(group="bug").SerializeToString()),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_each_request_passes_the_same_checks_and_has_the_same_answer_as_by_grpc(case: str) -> None:
    async def scenario() -> None:
        path, data = REQUESTS[case]
        token = {"served with a token": "good", "a bad token": "bad"}.get(case, "")
        async with serving() as served, raw_frames(served.address) as frames:
            expected = await served.by_grpc(path, data, token)
            expected_notes = served.gate.take()
            if token:
                frames.send(encode_frame(TOKEN, token.encode()))
            answer = await frames.answer(1, path, data)
            assert (answer.detail, answer.payload) == expected
            assert served.gate.take() == expected_notes
            assert expected_notes[0][0] == "admit"

    run(scenario())


def test_calls_by_frames_and_by_grpc_share_the_places_of_one_server() -> None:
    async def scenario() -> None:
        async with serving() as served, raw_frames(served.address) as frames:
            number = 0
            answer = None
            while answer is None:
                number += 1
                frames.call(number, APPEND, log_pb2.AppendRequest(request_id=number))
                await until(lambda: len(served.log.begun) == number or served.port.counts.calls == number)  # noqa: B023
                if len(served.log.begun) < number:
                    answer = await frames.next()
            refused = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
            assert answer.detail == refused
            status, details = await served.by_grpc(APPEND, b"", "")
            assert status == refused, details
            served.log.may_answer[1].set()
            assert (await frames.next()).call_id == 1
            assert (await served.by_grpc(APPEND, b"", ""))[0] == 0

    run(scenario())


def test_answers_come_when_they_are_known_and_those_of_one_turn_in_one_write() -> None:
    async def scenario() -> None:
        async with serving() as served, raw_frames(served.address) as frames:
            for number in (1, 2, 3):
                frames.call(number, APPEND, log_pb2.AppendRequest(request_id=number))
            await until(lambda: len(served.log.begun) == 3)
            for number in (3, 1):
                served.log.may_answer[number].set()
            assert [(await frames.next()).call_id for _ in range(2)] == [3, 1]
            served.log.may_answer[2].set()
            last = await frames.next()
            assert log_pb2.AppendResponse.FromString(last.payload).request_id == 2

    run(scenario())


def test_call_ends_at_its_deadline_and_gives_its_place_back() -> None:
    async def scenario() -> None:
        async with serving() as served, raw_frames(served.address) as frames:
            answer = await frames.answer(7, APPEND, log_pb2.AppendRequest(request_id=7), deadline_ms=1)
            assert answer.detail == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
            assert served.log.cancelled == [7]
            assert (await frames.answer(7, APPEND, log_pb2.AppendRequest())).detail == 0

    run(scenario())


def test_calls_of_a_client_that_went_away_are_cancelled() -> None:
    async def scenario() -> None:
        async with serving() as served:
            async with raw_frames(served.address) as frames:
                frames.call(1, APPEND, log_pb2.AppendRequest(request_id=1))
                await until(lambda: served.log.begun)
            await until(lambda: served.log.cancelled == [1])
            await until(lambda: served.port.counts.connections == 0)
            assert served.port.call_bytes == 0

    run(scenario())


def test_frames_wait_while_a_connection_has_all_its_calls_in_flight() -> None:
    async def scenario() -> None:
        async with serving(calls_max=2) as served, raw_frames(served.address) as frames:
            for number in range(1, 6):
                frames.call(number, APPEND, log_pb2.AppendRequest(request_id=number))
            await until(lambda: served.log.begun == [1, 2])
            # A call on another connection is served, so the loop has had time for the others.
            async with raw_frames(served.address) as other:
                assert (await other.answer(1, APPEND, b"")).detail == 0
            assert served.log.begun == [1, 2, 0]
            for number in range(1, 6):
                await until(lambda: number in served.log.may_answer)  # noqa: B023
                served.log.may_answer[number].set()
                assert (await frames.next()).call_id == number

    run(scenario())


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


def test_connections_are_bounded_in_all_and_for_one_address() -> None:
    async def scenario() -> None:
        for limits in ({"connections_max": 2}, {"address_connections_max": 2}):
            async with serving(**limits) as served, raw_frames(served.address), raw_frames(served.address) as second:
                async with raw_frames(served.address, is_greeted=False) as third:
                    assert await third.closed() == []
                assert served.port.counts.closed[Closed.CROWDED] == 1
                assert (await second.answer(1, STATUS, b"")).detail == 0

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
def test_idle_and_old_connections_are_told_first_and_later_calls_are_certainly_not_begun(limit: str) -> None:
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

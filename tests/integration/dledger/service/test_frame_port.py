"""The frame port: the same checks as gRPC, and answers in any order."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from dledger.frames.codec import CALL, TOKEN, encode_frame
from dledger.v1 import log_pb2
from tests.support.network.frame_client import raw_frames
from tests.support.network.framed_log import APPEND, STATUS, serving
from tests.support.waiting import run, until

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


def test_call_of_one_connection_overtakes_the_many_that_wait_on_another() -> None:
    async def scenario() -> None:
        count = 1_000
        async with (
            serving(calls_max=2 * count) as served,
            raw_frames(served.address) as many,
            raw_frames(served.address) as one,
        ):
            of_many, of_one = served.port._connections
            calls = [
                encode_frame(CALL, detail=many.methods[STATUS], call_id=1 + n, number=60_000) for n in range(count)
            ]
            # As if both had arrived before the event loop read the first of them.
            of_many.data_received(b"".join(calls))
            of_one.data_received(encode_frame(TOKEN, b"one") + calls[0])
            await one.next()
            for _ in range(count):
                await many.next()
            tokens = [note[2] for note in served.gate.take() if note[0] == "admit"]
            assert len(tokens) == count + 1
            assert tokens.index("Bearer one") < count // 2

    run(scenario())

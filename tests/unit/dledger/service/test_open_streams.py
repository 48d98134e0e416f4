"""Streams whose callers may not continue: what is cancelled, what is finished first, and what is not looked at."""

import asyncio

import pytest

from dledger.errors import CallRefused
from dledger.service.call_gate import AllRights
from dledger.service.open_streams import (
    LOOK_INTERVAL_S,
    OpenStream,
    OpenStreams,
    check_of_stream,
    check_stream_also,
    enter_stream,
    until_refused,
)
from dledger.v1 import log_pb2
from tests.support.waiting import in_a_loop, until

REFUSED = CallRefused("no more", is_authenticated=False)
FIRST, SECOND = (log_pb2.AppendRequest(request_id=number) for number in (1, 2))


class Rights(AllRights):
    """Rights that a test ends: of the caller, or to some requests."""

    def __init__(self):
        self.is_caller_refused = False
        self.refused_requests = []

    def check_caller(self):
        if self.is_caller_refused:
            raise REFUSED

    def check(self, request):
        if request in self.refused_requests:
            raise REFUSED

    check_again = check


async def endless(taken):
    """Yield one message, and then wait endlessly."""
    yield "first"
    try:
        await asyncio.Event().wait()
    finally:
        taken.append("ended")


def test_idle_streams_are_looked_at_each_second():
    assert LOOK_INTERVAL_S == 1.0


@in_a_loop
async def test_wait_of_a_refused_stream_is_cancelled_and_its_source_ends():
    rights, streams, taken = Rights(), OpenStreams(0.001), []
    stream = OpenStream(rights)
    streams.add(stream)

    async def reading():
        return [message async for message in until_refused(endless(taken), stream)]

    task = asyncio.create_task(reading())
    await asyncio.sleep(0)
    rights.is_caller_refused = True
    assert await task == ["first"]
    assert (stream.refused, taken, len(streams), task.cancelling()) == (REFUSED, ["ended"], 0, 0)


@in_a_loop
async def test_message_that_is_being_processed_is_finished_and_no_other_is_read():
    rights = Rights()
    stream, finished = OpenStream(rights), []
    async for message in until_refused(endless([]), stream):
        rights.is_caller_refused = True
        stream.look()
        await asyncio.sleep(0)
        finished.append(message)
    assert finished == ["first"]


@in_a_loop
async def test_cancellation_by_others_is_not_swallowed():
    stream = OpenStream(Rights())

    async def reading():
        async for _ in until_refused(endless([]), stream):
            pass

    task = asyncio.create_task(reading())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("keeps_last", [False, True])
def test_last_admitted_request_counts_only_if_it_is_in_force(keeps_last):
    rights = Rights()
    stream = OpenStream(rights, keeps_last=keeps_last)
    for request in (FIRST, SECOND):
        stream.admit(request)
    rights.refused_requests = [FIRST]
    stream.look()
    assert stream.refused is None
    with pytest.raises(CallRefused):
        stream.admit(FIRST)
    rights.refused_requests = [SECOND]
    stream.look()
    assert stream.refused is (REFUSED if keeps_last else None)


def test_refused_request_does_not_replace_the_last_one():
    rights = Rights()
    stream = OpenStream(rights, keeps_last=True)
    stream.admit(FIRST)
    rights.refused_requests = [FIRST, SECOND]
    with pytest.raises(CallRefused):
        stream.admit(SECOND)
    rights.refused_requests = [FIRST]
    stream.look()
    assert stream.refused is REFUSED


@in_a_loop
async def test_service_adds_a_check_to_the_stream_of_its_task():
    streams, stream, is_over = OpenStreams(0.001), OpenStream(Rights()), []

    def check():
        if is_over:
            raise REFUSED

    async def serving():
        enter_stream(stream)
        check_stream_also(check)
        check_of_stream(FIRST)

    await asyncio.create_task(serving())
    streams.add(stream)
    stream.look()
    assert stream.refused is None
    is_over.append(True)
    await until(lambda: stream.refused is REFUSED)


@in_a_loop
async def test_stream_that_has_ended_is_not_looked_at():
    rights, streams = Rights(), OpenStreams(0.001)
    ended, other = OpenStream(rights), OpenStream(rights)
    streams.add(ended)
    streams.discard(ended)
    streams.add(other)
    rights.is_caller_refused = True
    await until(lambda: other.refused is REFUSED)
    assert ended.refused is None

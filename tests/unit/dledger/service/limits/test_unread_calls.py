"""Calls that send no request: which are ended, when, and how many in one iteration of the loop."""

import asyncio
from itertools import pairwise

import grpc
import pytest

from dledger.service.limits import unread_calls
from dledger.service.limits.unread_calls import UnreadCalls

TURNS = 12
LATE, MANY = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED


class Aborted(Exception):
    """Ends a call, as gRPC's own does."""


class Call:
    """A call of which only the headers have arrived; `status` is what it was ended with."""

    def __init__(self, unread, *, is_stream=False):
        self.status = None
        self.request = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._serve(unread, is_stream=is_stream))

    async def _serve(self, unread, *, is_stream):
        try:
            return await unread.first_request(self, is_stream=is_stream)
        except Aborted:
            return None

    async def read(self):
        return await self.request

    async def abort(self, status, _message):
        self.status = status
        raise Aborted


async def turns(count=TURNS):
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel(calls):
    for call in calls:
        call.task.cancel()
    await asyncio.gather(*(call.task for call in calls), return_exceptions=True)


def test_oldest_calls_end_when_too_many_wait():
    async def main():
        unread = UnreadCalls(4)
        calls = [Call(unread) for _ in range(6)]
        await turns()
        assert [call.status for call in calls] == [MANY, MANY, None, None, None, None]
        calls[2].request.set_result(b"request")
        assert await calls[2].task == b"request"
        later = Call(unread)
        await turns()
        assert [call.status for call in [*calls[3:], later]] == [None] * 4
        await cancel([*calls, later])

    asyncio.run(main())


def test_streams_end_before_calls_where_there_are_more_of_them():
    async def main():
        unread = UnreadCalls(4)
        streams = [Call(unread, is_stream=True) for _ in range(4)]
        calls = [Call(unread) for _ in range(2)]
        await turns()
        assert [call.status for call in [*streams, *calls]] == [MANY, MANY, None, None, None, None]
        await cancel([*streams, *calls])

    asyncio.run(main())


@pytest.mark.parametrize(("is_stream", "status"), [(False, LATE), (True, None)])
def test_call_that_sends_nothing_ends_after_its_limit_and_a_stream_waits(is_stream, status):
    async def main():
        call = Call(UnreadCalls(4, request_limit_s=0.0), is_stream=is_stream)
        await turns()
        assert call.status is status
        await cancel([call])

    asyncio.run(main())


def test_few_calls_end_in_one_iteration_of_the_loop(monkeypatch):
    monkeypatch.setattr(unread_calls, "_ENDED_PER_TURN_MAX", 3)

    async def main():
        unread = UnreadCalls(1)
        calls = [Call(unread) for _ in range(30)]
        ended = [0]
        while ended[-1] < 29:
            await turns(1)
            ended.append(sum(call.task.done() for call in calls))
            assert len(ended) < 200, ended
        assert max(after - before for before, after in pairwise(ended)) <= 3
        await cancel(calls)

    asyncio.run(main())

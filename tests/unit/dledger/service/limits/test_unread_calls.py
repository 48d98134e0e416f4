"""Calls that send no request: which are ended, when, and how many in one iteration of the loop."""

import asyncio
from itertools import pairwise

import grpc
import pytest

from dledger.event_loop import new_event_loop
from dledger.service.limits import unread_calls
from dledger.service.limits.unread_calls import CallOwner, UnreadCalls

TURNS = 12
LATE, MANY = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED


class Aborted(Exception):
    """Ends a call, as gRPC's own does."""


class Call:
    """A call of which only the headers have arrived; `status` is what it was ended with."""

    def __init__(self, unread, *, is_stream=False, name="caller", is_known=True):
        self.status = None
        self.is_read = False
        self.request = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._serve(unread, CallOwner(name, is_known), is_stream=is_stream))

    async def _serve(self, unread, caller, *, is_stream):
        try:
            return await unread.first_request(self, caller, is_stream=is_stream)
        except Aborted:
            return None

    async def read(self):
        self.is_read = True
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


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "of nodes"])
def test_calls_that_arrive_while_others_are_about_to_end_are_served_by_every_loop(new_loop):
    """With uvloop a timer that is due at once does not know when it is due."""

    async def main():
        unread = UnreadCalls(1)
        calls = [Call(unread) for _ in range(4)]
        await turns(1)
        later = Call(unread)
        await turns()
        assert [call.status for call in [*calls, later]] == [MANY] * 4 + [None]
        await cancel([*calls, later])

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


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


def test_a_bounded_number_of_requests_is_received_at_a_time():
    async def main():
        unread = UnreadCalls(100, reading_max=4)
        calls = [Call(unread, name=f"caller {number % 20}") for number in range(40)]
        read = []
        for count in range(40):
            await turns()
            reading = [call for call in calls if call.is_read and not call.task.done()]
            assert len(reading) == min(4, 40 - count)
            read.append(reading[0])
            reading[0].request.set_result(b"request")
            assert await reading[0].task == b"request"
        assert {id(call) for call in read} == {id(call) for call in calls}
        assert all(call.status is None for call in calls)

    asyncio.run(main())


def test_unknown_callers_take_no_places_of_known_ones():
    async def main():
        unread = UnreadCalls(100, reading_max=2)
        unknown = [Call(unread, name=f"address {number}", is_known=False) for number in range(8)]
        await turns()
        known = Call(unread, name="user")
        await turns()
        assert (sum(call.is_read for call in unknown), known.is_read) == (2, True)
        await cancel([*unknown, known])

    asyncio.run(main())


@pytest.mark.parametrize("is_stream", [False, True])
def test_slow_requests_of_the_caller_with_the_most_of_them_end_when_another_call_waits(is_stream):
    async def main():
        unread = UnreadCalls(100, reading_max=4, reading_limit_s=0.0)
        other = Call(unread, name="another caller")
        slow = [Call(unread, name="slow caller", is_stream=is_stream) for _ in range(2)]
        await turns()
        assert [call.status for call in [other, *slow]] == [None] * 3
        more = [Call(unread, name=f"caller {number}") for number in range(2)]
        await turns()
        assert [call.status for call in [other, *slow, *more]] == [None, MANY, None, None, None]
        assert all(call.is_read for call in more)
        await cancel([other, *slow, *more])

    asyncio.run(main())


def test_slow_requests_do_not_end_while_places_are_free():
    async def main():
        unread = UnreadCalls(100, reading_max=8, reading_limit_s=0.0)
        calls = [Call(unread, name=f"caller {number}") for number in range(8)]
        await turns()
        assert [call.status for call in calls] == [None] * 8
        await cancel(calls)

    asyncio.run(main())


@pytest.mark.parametrize("turns_before", range(6))
def test_call_that_its_client_cancels_while_it_waits_to_be_read_keeps_no_place(turns_before):
    async def main():
        unread = UnreadCalls(100, reading_max=1)
        first, second, third = (Call(unread, name=f"caller {number}") for number in range(3))
        await turns()
        # In each iteration around the one in which the second call gets the place.
        first.request.set_result(b"request")
        await turns(turns_before)
        second.task.cancel()
        await turns()
        assert third.is_read
        third.request.set_result(b"request")
        assert await third.task == b"request"
        later = Call(unread, name="caller 3")
        await turns()
        assert later.is_read
        await cancel([second, later])

    asyncio.run(main())

"""Many requests on one stream: each answered once when it is decided, and no more accepted than may be in flight."""

import asyncio
from typing import NamedTuple

import pytest

from dledger.service.pipelined_call import IN_FLIGHT_MAX, PipelinedCall, RequestUndecided
from tests.support.waiting import run


class Request(NamedTuple):
    request_id: int


class Stream:
    """Requests of one client, sent as fast as they are accepted."""

    def __init__(self, count):
        self.count = count
        self.taken = 0
        self.decisions = []

    async def requests(self):
        for number in range(self.count):
            self.taken += 1
            yield Request(number)

    def begin(self, request):
        self.decisions.append(asyncio.get_running_loop().create_future())
        return self.decisions[-1]

    def call(self):
        return PipelinedCall(self.begin, lambda number, result: (number, result)).run(self.requests())


async def settle():
    """Run every task that does not wait for another party."""
    for _ in range(5 * IN_FLIGHT_MAX):
        await asyncio.sleep(0)


async def read_all(answers, given):
    async for answer in answers:
        given.append(answer)


@pytest.mark.parametrize("is_decided_at_once", [True, False])
def test_stream_reads_no_more_requests_than_may_wait_for_answers(is_decided_at_once):
    async def scenario():
        stream = Stream(1000)
        answers = stream.call()
        first = asyncio.ensure_future(anext(answers))
        await settle()
        if is_decided_at_once:
            for decision in stream.decisions:
                decision.set_result("done")
            # One answer is sent, and then the client stops reading.
            assert await first == (0, "done")
            await settle()
        # One more request has arrived, and waits for space.
        assert IN_FLIGHT_MAX <= stream.taken <= IN_FLIGHT_MAX + 2
        assert IN_FLIGHT_MAX <= len(stream.decisions) <= IN_FLIGHT_MAX + 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await answers.aclose()

    run(scenario())


def test_each_request_is_answered_once_in_the_order_of_decisions():
    async def scenario():
        stream = Stream(3)
        answers = stream.call()
        first = asyncio.ensure_future(anext(answers))
        await settle()
        for number in (2, 0, 1):
            stream.decisions[number].set_result(number)
        assert [await first, *[each async for each in answers]] == [(2, 2), (0, 0), (1, 1)]

    run(scenario())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_request_without_an_outcome_ends_the_stream_after_the_answers_of_all_others(is_cancelled):
    async def scenario():
        stream = Stream(1000)
        answers = stream.call()
        first = asyncio.ensure_future(anext(answers))
        await settle()
        taken = len(stream.decisions)
        if is_cancelled:
            stream.decisions[1].cancel()
        else:
            stream.decisions[1].set_exception(RuntimeError("a mistake"))
        await settle()
        assert not first.done()
        for number in (2, 0, *range(3, taken)):
            stream.decisions[number].set_result(number)
        given = [await first]
        with pytest.raises(RequestUndecided, match="request 1 of the stream") as raised:
            await read_all(answers, given)
        assert [number for number, _ in given] == [2, 0, *range(3, taken)]
        assert isinstance(raised.value.__cause__, asyncio.CancelledError if is_cancelled else RuntimeError)
        assert len(stream.decisions) == taken

    run(scenario())


def test_request_that_cannot_be_begun_ends_the_stream_after_the_answers_of_those_before():
    async def scenario():
        stream = Stream(3)

        def begin(request):
            if request.request_id == 2:
                raise RuntimeError("a mistake")
            return stream.begin(request)

        answers = PipelinedCall(begin, lambda number, result: (number, result)).run(stream.requests())
        first = asyncio.ensure_future(anext(answers))
        await settle()
        for decision in stream.decisions:
            decision.set_result("done")
        assert [await first, await anext(answers)] == [(0, "done"), (1, "done")]
        with pytest.raises(RuntimeError, match="a mistake"):
            await anext(answers)

    run(scenario())

"""A timer for many requests calls once, at the earliest of their times, in every event loop."""

import asyncio

import pytest

from dledger.earliest_timer import EarliestTimer
from dledger.event_loop import new_event_loop
from tests.support.waiting import until

FAR_S = 1_000.0


@pytest.fixture(params=[asyncio.new_event_loop, new_event_loop], ids=["asyncio", "of nodes"])
def run(request):
    def run(scenario):
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario())

    return run


def test_requests_before_the_call_are_one_call(run):
    async def scenario():
        calls = []
        timer = EarliestTimer(lambda: calls.append(0))
        for delay_s in (0.001, FAR_S, 0.002, 0.001):
            timer.after(delay_s)
        await until(lambda: calls, "it calls")
        assert timer._pending is None
        timer.after(0.001)
        await until(lambda: len(calls) == 2, "it calls again")

    run(scenario)


def test_an_earlier_request_moves_the_call(run):
    async def scenario():
        calls = []
        timer = EarliestTimer(lambda: calls.append(0))
        timer.after(FAR_S)
        later = timer._pending
        timer.after(0.001)
        assert later.cancelled()
        await until(lambda: calls, "it calls")

    run(scenario)


def test_requests_for_now_can_be_repeated(run):
    """A timer of uvloop that is due at once has no method `when`."""

    async def scenario():
        calls = []
        timer = EarliestTimer(lambda: calls.append(0))
        for time_s in (0.0, 0.0, asyncio.get_running_loop().time()):
            timer.at(time_s)
        await until(lambda: calls, "it calls")
        assert calls == [0]

    run(scenario)


def test_a_request_that_is_earlier_by_no_more_than_the_resolution_keeps_the_call(run):
    async def scenario():
        timer = EarliestTimer(lambda: None, resolution_s=1.0)
        timer.at(FAR_S * FAR_S)
        kept = timer._pending
        timer.at(FAR_S * FAR_S - 1.0)
        assert timer._pending is kept
        timer.at(FAR_S * FAR_S - 2.0)
        assert timer._pending is not kept
        timer.cancel()

    run(scenario)


def test_a_cancelled_request_calls_nothing_and_another_one_may_follow(run):
    async def scenario():
        calls = []
        timer = EarliestTimer(lambda: calls.append(0))
        timer.at(0.0)
        timer.cancel()
        timer.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not calls
        timer.at(0.0)
        await until(lambda: calls, "it calls")

    run(scenario)

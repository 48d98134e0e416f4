"""Long work on the event loop of a node yields to other tasks."""

import asyncio
import math
import time

from cluster.process import cooperative
from cluster.process.cooperative import STEP_S, run_cooperatively
from tests.support.waiting import counting_turns


def test_long_work_yields_to_others_every_few_milliseconds():
    async def scenario():
        def steps():
            for _ in range(20):
                begin = time.monotonic()
                while time.monotonic() < begin + STEP_S:
                    continue
                yield
            return "done"

        async with counting_turns() as turns:
            assert await run_cooperatively(steps()) == "done"
            assert turns() >= 20

    asyncio.run(scenario())


def test_short_work_is_done_in_one_turn(monkeypatch):
    monkeypatch.setattr(cooperative, "STEP_S", math.inf)

    async def scenario():
        def steps():
            yield
            return 7

        asyncio.get_running_loop().call_soon(others.append, 1)
        assert await run_cooperatively(steps()) == 7
        assert not others

    others = []
    asyncio.run(scenario())

"""Places of requests that are received: fair shares, order, and what a cancelled call leaves."""

import asyncio
from collections import Counter
from random import Random

import pytest

from dledger.service.limits.reading_places import ReadingPlaces


async def turns():
    for _ in range(8):
        await asyncio.sleep(0)


class Line:
    """Tasks that wait for places; `served` has the callers in the order in which they got one."""

    def __init__(self, places):
        self.places, self.served, self.tasks = places, [], []

    def join(self, caller):
        self.tasks.append(asyncio.create_task(self._wait(caller)))
        return self.tasks[-1]

    async def _wait(self, caller):
        if not self.places.take(caller):
            await self.places.wait(caller)
        self.served.append(caller)


def test_one_caller_has_half_of_the_places_and_another_gets_one_at_once():
    places = ReadingPlaces(8)
    assert [places.take("one") for _ in range(6)] == [True] * 4 + [False] * 2
    assert places.take("other")
    assert (places.share_of("one"), places.share_of("other")) == (4, 1)


def test_callers_that_wait_are_served_in_turn():
    async def main():
        places = ReadingPlaces(1)
        assert places.take("first")
        line = Line(places)
        for caller in ("a", "a", "a", "b", "c"):
            line.join(caller)
        await turns()
        assert places.is_short
        places.give_back("first")
        for _ in range(5):
            await turns()
            places.give_back(line.served[-1])
        assert line.served == ["a", "b", "c", "a", "a"]
        assert not places.is_short
        await asyncio.gather(*line.tasks)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_no_caller_waits_while_its_share_is_free(seed):
    """Random calls that come, end and are cancelled; after each, no call waits that could take a place."""

    async def main():
        random, places = Random(seed), ReadingPlaces(size := 6)
        line, waiting, done = Line(places), [], 0
        for _ in range(200):
            match random.randrange(3):
                case 0:
                    caller = random.choice("abcd")
                    waiting.append((caller, line.join(caller)))
                case 1 if done < len(line.served):
                    places.give_back(line.served[done])
                    done += 1
                case 2 if waiting:
                    random.choice(waiting)[1].cancel()
            if random.random() < 0.7:
                await turns()
                waiting = [(caller, task) for caller, task in waiting if not task.done()]
                reading = Counter(line.served[done:])
                assert all(reading[caller] >= size - reading.total() for caller, _ in waiting)
                assert places.is_short == bool(waiting)
        for _, task in waiting:
            task.cancel()
        await turns()
        assert not places.is_short

    print(f"seed {seed}")
    asyncio.run(main())

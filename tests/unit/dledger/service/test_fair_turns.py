"""Calls by frames begin in turns: users alternate, a limited number in each iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

from dledger.service.frames.turns import FairTurns


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Connection:
    """A connection with calls that wait; each takes `cost_s` of the clock. It waits for its first turn."""

    def __init__(
        self,
        turns: FairTurns,
        begun: list[str],
        holder: str,
        calls: int,
        clock: Clock,
        *,
        cost_s: float = 0.0,
        is_held: bool = False,
    ) -> None:
        self._turns = turns
        self.holder = holder
        self.calls = calls
        self._is_held = is_held
        self._begun, self._clock, self._cost_s = begun, clock, cost_s
        turns.wait(self)

    def begin_next(self) -> None:
        assert self.calls, "it has nothing to begin"
        self.calls -= 1
        self._begun.append(self.holder)
        self._clock.now_s += self._cost_s
        if self.calls and not self._is_held:
            self._turns.wait(self)


async def all_begin(begun: list[str], count: int) -> list[int]:
    """Return the number of calls that each iteration of the loop began, until there are `count`."""
    counts = []
    while len(begun) < count:
        before = len(begun)
        await asyncio.sleep(0)
        counts.append(len(begun) - before)
    return [each for each in counts if each]


def test_calls_begin_at_once_while_few_arrive_in_each_iteration() -> None:
    async def scenario() -> None:
        turns = FairTurns(Clock())
        for _ in range(20):
            assert all(turns.may_begin() for _ in range(64))
            await asyncio.sleep(0)

    asyncio.run(scenario())


def test_call_beyond_the_number_of_an_iteration_must_wait() -> None:
    async def scenario() -> None:
        turns = FairTurns(Clock())
        begun = 0
        while turns.may_begin():
            begun += 1
        assert begun == 64
        await asyncio.sleep(0)
        assert turns.may_begin()

    asyncio.run(scenario())


def test_no_call_begins_before_one_that_waits() -> None:
    async def scenario() -> None:
        clock, begun = Clock(), list[str]()
        turns = FairTurns(clock)
        Connection(turns, begun, "a", 1, clock)
        assert not turns.may_begin()
        await all_begin(begun, 1)
        assert turns.may_begin()

    asyncio.run(scenario())


def test_users_alternate_however_many_connections_and_calls_they_have() -> None:
    async def scenario() -> None:
        clock, begun = Clock(), list[str]()
        turns = FairTurns(clock)
        for _ in range(5):
            Connection(turns, begun, "many", 100, clock)
        Connection(turns, begun, "other", 50, clock)
        Connection(turns, begun, "one", 1, clock)
        await all_begin(begun, 551)
        assert begun[:5] == ["many", "other", "one", "many", "other"]
        assert Counter(begun[:101]) == {"many": 50, "other": 50, "one": 1}

    asyncio.run(scenario())


def test_connections_of_a_user_alternate() -> None:
    async def scenario() -> None:
        clock, begun = Clock(), list[str]()
        turns = FairTurns(clock)
        first, second = (Connection(turns, begun, "user", 3, clock) for _ in range(2))
        await all_begin(begun, 6)
        assert (first.calls, second.calls) == (0, 0)

        held = Connection(turns, begun, "user", 100, clock, is_held=True)
        late = Connection(turns, begun, "user", 1, clock)
        await all_begin(begun, 8)
        assert (late.calls, held.calls) == (0, 99), "a connection that may begin nothing more does not wait"

    asyncio.run(scenario())


def test_iteration_with_costly_calls_begins_fewer_of_them() -> None:
    async def scenario() -> None:
        clock, begun = Clock(), list[str]()
        turns = FairTurns(clock)
        Connection(turns, begun, "user", 2_000, clock, cost_s=0.001)
        counts = await all_begin(begun, 2_000)
        assert counts[:4] == [64, 32, 16, 8]
        assert max(counts[3:]) <= 16, counts

    asyncio.run(scenario())


def test_iteration_with_cheap_calls_begins_more_of_them_up_to_a_bound() -> None:
    async def scenario() -> None:
        clock, begun = Clock(), list[str]()
        turns = FairTurns(clock)
        Connection(turns, begun, "user", 20_000, clock)
        counts = await all_begin(begun, 20_000)
        assert counts[:3] == [64, 80, 100]
        assert max(counts) == 1_024

    asyncio.run(scenario())

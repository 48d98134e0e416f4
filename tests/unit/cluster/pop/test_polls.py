"""Consumers that wait: which of them an acknowledgement wakes."""

import asyncio
from types import SimpleNamespace

import pytest

from cluster.pop.choosing import PopChoice
from cluster.pop.polls import GroupTopic, Polls
from cluster.state.pop.state import PopKey
from tests.support.waiting import in_a_loop

NAME = GroupTopic("g", "t")


def choice(queue_id, *, is_full=False, is_ordered=False):
    made = PopChoice(PopKey("g", "t", queue_id))
    made.is_full, made.is_ordered = is_full, is_ordered
    return made


class Waiting:
    """Consumers that wait in a store without messages; `woken` has the names of those that were woken, in order."""

    def __init__(self):
        self.woken, self.tasks = [], []
        silent = SimpleNamespace(cancel=lambda: None)
        self.polls = Polls(SimpleNamespace(wait=lambda *_: silent), lambda: 0)

    async def begin(self, **consumers):
        for name, choices in consumers.items():
            self.tasks.append(asyncio.create_task(self._wait(name, choices)))
        await asyncio.sleep(0)

    async def _wait(self, name, choices):
        await self.polls.wait(NAME, choices, "*", None, 30.0)
        self.woken.append(name)

    async def acknowledge(self, *queue_ids):
        """Return the consumers that acknowledgements in some queues wake."""
        self.woken.clear()
        self.polls.wake_acknowledged(NAME, {PopKey("g", "t", each) for each in queue_ids})
        # A woken consumer has ended after some iterations of the loop.
        for _ in range(10):
            await asyncio.sleep(0)
        return sorted(self.woken)

    async def end(self):
        self.polls.wake(NAME)
        await asyncio.gather(*self.tasks)


@in_a_loop
async def test_an_acknowledgement_in_order_wakes_the_consumers_of_its_queue_only():
    waiting = Waiting()
    await waiting.begin(
        first=[choice(0, is_ordered=True)],
        second=[choice(1, is_ordered=True)],
        both=[choice(0, is_ordered=True), choice(1, is_ordered=True)],
        unordered=[choice(0)],
    )
    assert await waiting.acknowledge(2) == []
    assert await waiting.acknowledge(1) == ["both", "second"]
    assert await waiting.acknowledge(0) == ["first"]
    await waiting.end()


@pytest.mark.parametrize("is_ordered", [False, True])
@in_a_loop
async def test_any_acknowledgement_wakes_a_consumer_to_which_a_limit_applied(is_ordered):
    waiting = Waiting()
    await waiting.begin(full=[choice(0, is_full=True, is_ordered=is_ordered), choice(1)], other=[choice(0)])
    assert await waiting.acknowledge(7) == ["full"]
    await waiting.end()

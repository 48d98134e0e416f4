"""Lists of topics and groups that one request sets: some calls at a time, and one limit for all."""

import asyncio
from types import SimpleNamespace

import pytest

from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.admin import lists
from cluster.remoting.admin.lists import CALLS_MAX, set_each
from tests.support.waiting import in_a_loop, until


class Leader:
    """Sets items when the test permits it."""

    def __init__(self, *, is_open=True):
        self.open, self.done, self.calls, self.calls_max, self.limits = asyncio.Event(), [], 0, 0, []
        self.failure = None
        if is_open:
            self.open.set()

    async def set(self, item, limit_s):
        self.calls += 1
        self.calls_max = max(self.calls_max, self.calls)
        self.limits.append(limit_s)
        try:
            await self.open.wait()
            if self.failure is not None:
                raise self.failure
            self.done.append(item)
        finally:
            self.calls -= 1


ITEMS = {f"T{number}": number for number in range(100)}


@in_a_loop
async def test_all_items_are_set_some_at_a_time():
    leader = Leader(is_open=False)
    setting = asyncio.create_task(set_each(ITEMS, leader.set))
    await until(lambda: leader.calls == CALLS_MAX)
    leader.open.set()
    await setting
    assert sorted(leader.done) == sorted(ITEMS.values())
    assert leader.calls_max == CALLS_MAX
    assert max(leader.limits) <= lists.LIMIT_S
    await set_each({}, leader.set)


@in_a_loop
async def test_a_list_has_one_limit_and_says_what_is_set(monkeypatch):
    monkeypatch.setattr(lists, "LIST_LIMIT_S", 0.0)
    leader = Leader()
    with pytest.raises(RequestFailed, match="0 of 100 were set in 0 s") as caught:
        await set_each(ITEMS, leader.set)
    assert caught.value.reason is Reason.ANSWER_LATE
    assert leader.done == []


@in_a_loop
async def test_a_call_that_ends_with_the_limit_of_the_list_says_what_is_set(monkeypatch):
    now_s, done = [100.0], []
    monkeypatch.setattr(lists, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(lists, "CALLS_MAX", 1)

    async def set_item(item, limit_s):
        if len(done) == 7:
            now_s[0] += lists.LIST_LIMIT_S
            raise RequestFailed(Reason.ANSWER_LATE, "the leader did not answer")
        done.append(item)

    with pytest.raises(RequestFailed, match=r"7 of 100 were set in 4 s \(the leader did not answer\)"):
        await set_each(ITEMS, set_item)


@in_a_loop
async def test_the_first_refusal_ends_the_calls_of_the_others():
    leader = Leader(is_open=False)
    leader.failure = RequestFailed(Reason.ILLEGAL_REQUEST, "no")
    setting = asyncio.create_task(set_each(ITEMS, leader.set))
    await until(lambda: leader.calls == CALLS_MAX)
    leader.open.set()
    with pytest.raises(RequestFailed, match="no"):
        await setting
    assert (leader.done, leader.calls) == ([], 0)
    assert len(leader.limits) == CALLS_MAX

"""Pending appends: each is answered once, with the true outcome of its entries."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from dledger.errors import InvariantBroken, ResponseCode, outcome_of
from dledger.pending.appends import AppendResult, PendingAppend, PendingAppends
from store.errors import Certainty

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

TIMEOUT_S = 2.0


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Bench:
    """Pending appends together with the terms of the committed log."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.terms: dict[int, int] = {}
        self.appends = PendingAppends(100, 1000, TIMEOUT_S, self.latencies.append)

    def take(self, entries_count: int = 1, taken_s: float = 0.0) -> PendingAppend:
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        pending = PendingAppend(future, entries_count, 10 * entries_count, taken_s)
        self.appends.take(pending)
        return pending

    def append(self, first_index: int, term: int, entries_count: int = 1) -> PendingAppend:
        pending = self.take(entries_count)
        positions = [100 * (first_index + number) for number in range(entries_count)]
        self.appends.appended(pending, first_index, term, positions)
        self.terms |= {first_index + number: term for number in range(entries_count)}
        return pending

    def commit(self, commit_index: int) -> None:
        self.appends.committed(commit_index, self.terms.__getitem__, 1.5)


@on_loop
async def test_commit_answers_whole_appends_in_order_and_only_those() -> None:
    bench = Bench()
    one, two = bench.append(5, 3, 2), bench.append(7, 3, 2)
    bench.commit(7)
    assert one.future.result() == AppendResult(ResponseCode.SUCCESS, "", 5, 3, [500, 600])
    assert not two.future.done()
    assert (bench.appends.entries_count, bench.appends.size_bytes, bench.appends.appends_count) == (2, 20, 1)
    bench.commit(8)
    assert two.future.result().first_index == 7
    assert bench.latencies == [1.5, 1.5]
    assert bench.appends.entries_count == 0


@on_loop
async def test_append_replaced_by_another_leader_fails_only_when_that_is_committed() -> None:
    bench = Bench()
    pending = bench.append(5, 3, 2)
    bench.appends.truncated(5)
    bench.terms |= {5: 4, 6: 4}
    bench.commit(4)
    assert not pending.future.done()
    bench.commit(5)
    assert pending.future.result().code is ResponseCode.TERM_CHANGED
    assert outcome_of(pending.future.result().code) is Certainty.NOT_APPENDED


@on_loop
async def test_append_cut_here_but_committed_by_others_is_a_success() -> None:
    bench = Bench()
    pending = bench.append(5, 3, 2)
    bench.appends.truncated(5)
    bench.commit(5)
    assert not pending.future.done()
    bench.commit(6)
    assert pending.future.result() == AppendResult(ResponseCode.SUCCESS, "", 5, 3, [500, 600])


@on_loop
async def test_append_that_survives_in_part_is_never_reported_as_not_appended() -> None:
    bench = Bench()
    pending = bench.append(5, 3, 3)
    bench.appends.truncated(6)
    bench.terms |= {6: 4, 7: 4}
    bench.commit(7)
    assert outcome_of(pending.future.result().code) is Certainty.UNKNOWN


@on_loop
async def test_later_appends_at_the_same_indexes_are_distinguished_from_cut_ones() -> None:
    bench = Bench()
    cut = bench.append(5, 3, 3)
    bench.appends.truncated(5)
    later = bench.append(5, 6)
    bench.commit(5)
    assert cut.future.result().code is ResponseCode.TERM_CHANGED
    assert later.future.result().term == 6


@on_loop
async def test_deadline_leaves_the_outcome_open_and_the_entries_counted() -> None:
    bench = Bench()
    old, young = bench.append(5, 3), bench.take(taken_s=1.0)
    bench.appends.expire(TIMEOUT_S)
    assert old.future.result().code is ResponseCode.WAIT_QUORUM_ACK_TIMEOUT
    assert outcome_of(old.future.result().code) is Certainty.UNKNOWN
    assert not young.future.done()
    assert bench.appends.entries_count == 2
    bench.commit(5)
    assert bench.appends.entries_count == 1
    assert bench.latencies == []


@on_loop
async def test_cancelled_append_is_forgotten_without_harm() -> None:
    bench = Bench()
    pending = bench.append(5, 3)
    pending.future.cancel()
    bench.commit(5)
    bench.appends.expire(TIMEOUT_S)
    assert bench.appends.entries_count == 0


@on_loop
async def test_bounds_hold_in_entries_and_bytes_and_refusals_free_their_share() -> None:
    bench = Bench()
    pending = bench.take(99)
    assert bench.appends.has_space(1, 10)
    assert not bench.appends.has_space(2, 10)
    assert not bench.appends.has_space(1, 11)
    bench.appends.refused(pending, AppendResult(ResponseCode.NOT_LEADER))
    assert pending.future.result().code is ResponseCode.NOT_LEADER
    assert bench.appends.has_space(100, 1000)


@on_loop
async def test_entry_replaced_without_being_cut_is_a_broken_invariant() -> None:
    bench = Bench()
    bench.append(5, 3)
    bench.terms[5] = 4
    with pytest.raises(InvariantBroken, match="expected term 3, found 4"):
        bench.commit(5)


@on_loop
async def test_closing_answers_every_pending_append() -> None:
    bench = Bench()
    one, two = bench.append(5, 3), bench.take()
    bench.appends.end(AppendResult(ResponseCode.DISK_ERROR, "the disk is gone"))
    assert [pending.future.result().message for pending in (one, two)] == ["the disk is gone"] * 2
    assert not bench.appends.futures()

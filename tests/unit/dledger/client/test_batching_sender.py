"""The sender of both clients, over a transport of the test: bounds, order, pauses, late answers, close.

Each test writes the answers itself, so that the requests in flight at each moment are known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest

from dledger.client.aio.batching_sender import FULL_SIZE_BYTES, BatchingSender, SendVerdict
from dledger.client.retry import HOPS_MAX
from tests.support.waiting import run, until


class Refusal(Exception):
    """Nothing was sent."""


class Response(NamedTuple):
    request_id: int
    verdict: SendVerdict[Refusal]


class Batch:
    """One number, sent at second 0 of the test's clock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent_at = 0.0

    def request(self, request_id: int) -> tuple[int, int]:
        return request_id, self.number


class Call:
    """One stream to `address`: requests are recorded, responses come from the test."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self.responses: asyncio.Queue[Any] = asyncio.Queue()
        self.is_cancelled = False

    async def write(self, request: tuple[int, int]) -> None:
        self.requests.append(request)

    async def read(self) -> Any:
        return await self.responses.get()

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED if self.is_cancelled else grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    async def done_writing(self) -> None:
        self.responses.put_nowait(grpc.aio.EOF)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.responses.put_nowait(grpc.aio.EOF)

    def answer(self, number: int, verdict: SendVerdict[Refusal]) -> None:
        """Send the policy's verdict on one batch to the sender."""
        request_id = next(request_id for request_id, found in self.requests if found == number)
        self.responses.put_nowait(Response(request_id, verdict))


class Policy:
    """Sends numbers, one a batch; its calls are recorded in `events`."""

    refusal = Refusal

    def __init__(self) -> None:
        self.numbers: deque[int] = deque()
        self.queued_bytes = 0
        self.linger_s = 0.0
        self.is_pausing = True
        self.openings: list[Refusal] = []
        self.calls: list[Call] = []
        self.events: list[tuple[str, Any]] = []

    @property
    def is_empty(self) -> bool:
        return not self.numbers

    def linger_left_s(self) -> float:
        return self.linger_s

    async def open(self) -> tuple[str, Any]:
        if self.openings:
            raise self.openings.pop(0)
        self.calls.append(Call())
        return f"node {len(self.calls)}", self.calls[-1]

    def take(self) -> Batch | None:
        return Batch(self.numbers.popleft()) if self.numbers else None

    def paused(self, refusal: Refusal) -> float | None:
        self.events.append(("refused", str(refusal)))
        return 0.0 if self.is_pausing else None

    def answered(self, address: str, batch: Batch, response: Response, *, may_retry: bool) -> SendVerdict[Refusal]:
        self.events.append((f"answered by {address}", batch.number))
        if response.verdict.refusals and may_retry:
            self.numbers.appendleft(batch.number)
        return response.verdict

    def lost(
        self, address: str, batches: list[Batch], code: Any, details: str, *, may_retry: bool
    ) -> SendVerdict[Refusal]:
        numbers = [batch.number for batch in batches]
        self.events.append((f"lost by {address}", (numbers, code.name, may_retry)))
        return SendVerdict()

    def expire_queued(self, now_s: float) -> None:
        self.events.append(("queue watched", now_s))

    def expire_sent(self, batch: Batch, now_s: float) -> None:
        self.events.append(("batch watched", (batch.number, now_s)))

    def fail_queued(self) -> None:
        self.events.append(("queue failed", list(self.numbers)))
        self.numbers.clear()


class Pauses:
    """A `Backoff` that counts and never waits."""

    def __init__(self) -> None:
        self.count = 0
        self.resets = 0

    def next_s(self, asked_s: float = 0.0) -> float:
        self.count += 1
        return asked_s

    def reset(self) -> None:
        self.resets += 1


class Stage:
    """A sender of two batches at a time, its policy, its pauses, and its clock."""

    def __init__(self, batches_max: int = 2) -> None:
        self.policy = Policy()
        self.pauses = Pauses()
        self.now_s = 0.0
        self.sender: Any = BatchingSender(self.policy, batches_max, 10.0, lambda: self.now_s, self.pauses)  # type: ignore[arg-type]

    def queue(self, *numbers: int) -> None:
        self.policy.numbers += numbers
        self.sender.queued()

    def sent(self) -> list[list[int]]:
        """Return the numbers sent over each stream."""
        return [[number for _, number in call.requests] for call in self.policy.calls]

    async def settle(self) -> None:
        """Run every task that does not wait for the test."""
        for _ in range(20):
            await asyncio.sleep(0)

    def events(self, kind: str) -> list[Any]:
        return [what for found, what in self.policy.events if found == kind]


TAKEN: SendVerdict[Refusal] = SendVerdict(is_taken=True)


def refused(*, is_named: bool = False, is_left: bool = False, is_drained_first: bool = False) -> SendVerdict[Refusal]:
    return SendVerdict(
        is_stream_left=is_left,
        refusals=1,
        cause=Refusal("why"),
        is_leader_named=is_named,
        is_drained_first=is_drained_first,
    )


@pytest.mark.parametrize(
    ("batches_max", "queued_bytes", "expected"),
    [(2, FULL_SIZE_BYTES - 1, 2), (2, FULL_SIZE_BYTES, 4), (1, FULL_SIZE_BYTES - 1, 1), (1, FULL_SIZE_BYTES, 1)],
)
def test_batches_in_flight_are_bounded_and_twice_as_many_when_full(batches_max, queued_bytes, expected):
    async def scenario():
        stage = Stage(batches_max)
        stage.policy.queued_bytes = queued_bytes
        stage.queue(*range(9))
        await stage.settle()
        assert [list(range(expected))] == stage.sent()
        stage.policy.calls[0].answer(0, TAKEN)
        await stage.settle()
        assert [list(range(expected + 1))] == stage.sent()
        await stage.sender.close()

    run(scenario())


def test_lingering_batch_is_sent_when_the_linger_ends_early():
    async def scenario():
        stage = Stage()
        stage.policy.linger_s = 1000.0
        stage.queue(1)
        await stage.settle()
        assert [] == stage.sent()
        stage.policy.linger_s = 0.0
        stage.sender.wake()
        await stage.settle()
        assert [[1]] == stage.sent()
        await stage.sender.close()

    run(scenario())


def test_all_that_is_queued_during_a_linger_shares_one_timer():
    async def scenario():
        stage, timers = Stage(), set()
        stage.policy.linger_s = 1000.0
        for number in range(5):
            stage.queue(number)
            await stage.settle()
            timers.add(stage.sender._linger_end._pending)
        (timer,) = timers
        # A batch with an earlier deadline does not wait for it.
        stage.policy.linger_s = 0.001
        stage.sender.wake()
        await stage.settle()
        assert timer.cancelled()
        stage.policy.linger_s = 0.0
        await until(lambda: stage.sent() == [[0, 1]], "the batches left at the end of the linger")
        await stage.sender.close()
        assert stage.sender._linger_end._pending is None

    run(scenario())


def test_a_timer_that_ends_later_by_a_rounding_error_is_kept():
    """The same linger in the same millisecond: the sums of the two ends differ in their last bit."""

    async def scenario():
        stage = Stage()
        stage.policy.linger_s = 1000.0
        stage.queue(1)
        await stage.settle()
        timer = stage.sender._linger_end._pending
        stage.policy.linger_s = timer.when() - asyncio.get_running_loop().time() - 1e-9
        stage.sender.wake()
        await stage.settle()
        assert stage.sender._linger_end._pending is timer
        await stage.sender.close()

    run(scenario())


def test_linger_whose_timer_fires_too_early_is_waited_for_again():
    """A loop may run a timer a moment before its time, uvloop as a rule: the batch was never sent."""

    async def scenario():
        stage = Stage()
        stage.policy.linger_s = 1000.0
        stage.queue(1)
        await stage.settle()
        early = stage.sender._linger_end._pending
        stage.sender._linger_end._fire()
        await stage.settle()
        assert stage.sender._linger_end._pending not in (None, early)
        early.cancel()
        await stage.sender.close()

    run(scenario())


def test_named_leader_is_tried_without_a_pause_a_limited_number_of_times():
    async def scenario():
        stage = Stage()
        stage.queue(1)
        await stage.settle()
        for hop in range(HOPS_MAX):
            stage.policy.calls[-1].answer(1, refused(is_named=True, is_left=True))
            await stage.settle()
            assert (hop + 2, 0) == (len(stage.policy.calls), stage.pauses.count)
        stage.policy.calls[-1].answer(1, refused(is_named=True, is_left=True))
        await until(lambda: len(stage.policy.calls) == HOPS_MAX + 2, "the stream after the pause is open")
        assert 1 == stage.pauses.count
        # An accepted request resets the count.
        stage.policy.calls[-1].answer(1, TAKEN)
        await stage.settle()
        stage.queue(2)
        await stage.settle()
        stage.policy.calls[-1].answer(2, refused(is_named=True, is_left=True))
        await stage.settle()
        assert (1, 1) == (stage.pauses.count, stage.pauses.resets)
        assert [2] == stage.sent()[-1]
        await stage.sender.close()

    run(scenario())


@pytest.mark.parametrize("verdict", [refused(), refused(is_named=True), refused(is_left=True)])
def test_refusal_is_followed_by_a_pause_if_the_same_node_stays_or_none_is_known(verdict):
    async def scenario():
        stage = Stage()
        stage.queue(1)
        await stage.settle()
        stage.policy.calls[0].answer(1, verdict)
        await until(lambda: sum(map(len, stage.sent())) == 2, "the batch is sent again")
        assert 1 == stage.pauses.count
        assert ["why"] == stage.events("refused")
        await stage.sender.close()

    run(scenario())


def test_search_for_the_leader_is_repeated_after_a_pause_unless_the_policy_ends_it():
    async def scenario():
        stage = Stage()
        stage.policy.openings = [Refusal("no leader"), Refusal("no leader yet")]
        stage.queue(1)
        await until(lambda: stage.sent() == [[1]], "the batch is sent")
        assert (2, ["no leader", "no leader yet"]) == (stage.pauses.count, stage.events("refused"))
        await stage.sender.close()

        stage = Stage()
        stage.policy.openings, stage.policy.is_pausing = [Refusal("permanent")], False
        stage.queue(1)
        await until(lambda: stage.sent() == [[1]], "the batch is sent")
        assert 0 == stage.pauses.count
        await stage.sender.close()

    run(scenario())


def test_ordered_refused_batch_is_sent_again_only_after_all_in_flight_are_answered():
    async def scenario():
        stage = Stage()
        stage.queue(1, 2, 3)
        await stage.settle()
        call = stage.policy.calls[0]
        call.answer(1, refused(is_drained_first=True, is_named=True, is_left=True))
        await stage.settle()
        assert [[1, 2]] == stage.sent()
        call.answer(2, TAKEN)
        await stage.settle()
        assert [[1, 2], [1, 3]] == stage.sent()
        await stage.sender.close()

    run(scenario())


def test_abandoned_stream_ends_with_its_last_answer():
    async def scenario():
        stage = Stage()
        stage.queue(1, 2)
        await stage.settle()
        first = stage.policy.calls[0]
        first.answer(1, refused(is_named=True, is_left=True))
        await stage.settle()
        assert ([[1, 2], [1]], False) == (stage.sent(), first.is_cancelled)
        first.answer(2, TAKEN)
        await stage.settle()
        assert first.is_cancelled
        assert [([], "CANCELLED", True)] == stage.events("lost by node 1")
        await stage.sender.close()

    run(scenario())


def test_stream_without_an_answer_for_too_long_is_cancelled_and_its_batches_are_lost():
    async def scenario():
        stage = Stage()
        stage.queue(1, 2)
        await until(lambda: stage.events("batch watched"), "the watch over deadlines has run")
        assert [] == stage.events("lost by node 1")
        stage.now_s = 10.0
        await until(lambda: stage.events("lost by node 1"), "the stream is given up")
        assert [([1, 2], "CANCELLED", True)] == stage.events("lost by node 1")
        # An idle sender is not watched.
        await until(lambda: stage.sender._sweeper is None, "the watch has ended")
        stage.queue(3)
        await stage.settle()
        assert [[1, 2], [3]] == stage.sent()
        await stage.sender.close()

    run(scenario())


def test_close_ends_batches_in_flight_and_then_queued_ones():
    async def scenario():
        stage = Stage()
        stage.queue(1, 2, 3)
        await stage.settle()
        await stage.sender.close()
        assert [("lost by node 1", ([1, 2], "CANCELLED", False)), ("queue failed", [3])] == stage.policy.events[-2:]
        assert stage.sender.is_closed
        assert all(call.is_cancelled for call in stage.policy.calls)

    run(scenario())


def test_close_ends_although_the_task_lost_its_cancellation():
    """A policy that fails in `open` must not make `close` wait for the task indefinitely."""

    async def scenario():
        stage = Stage()
        opens = asyncio.Event()

        async def opening():
            opens.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise Refusal("not reached")

        stage.policy.open = opening
        stage.queue(1)
        await opens.wait()
        async with asyncio.timeout(5):
            await stage.sender.close()
        assert [("queue failed", [1])] == stage.policy.events[-1:]

    run(scenario())

"""Both interfaces of the client against scripted nodes: retries of appends, and the outcome of each."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dledger.client import Appended, AppendUnknown, AsyncLogClient, LogClient, NotAppended, retry
from dledger.client.aio import sender as append_sender
from dledger.v1.log_pb2 import LeaderHint, StatusResponse
from tests.support.growing_deadlines import growing_deadlines
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, run, until

MakeNode = Callable[[], Any]
Outcome = Appended | Exception


def append_blocking(endpoints: str, bodies: Sequence[bytes], options: dict[str, float]) -> list[Outcome]:
    """Append one after the other."""
    outcomes: list[Outcome] = []
    with LogClient(endpoints, **options) as client:
        for body in bodies:
            try:
                outcomes.append(client.append(body))
            except (NotAppended, AppendUnknown) as error:
                outcomes.append(error)
    return outcomes


def append_asyncio(endpoints: str, bodies: Sequence[bytes], options: dict[str, float]) -> list[Outcome]:
    """Append one after the other."""

    async def main() -> list[Outcome]:
        outcomes: list[Outcome] = []
        async with AsyncLogClient(endpoints, **options) as client:
            for body in bodies:
                try:
                    outcomes.append(await client.append(body))
                except (NotAppended, AppendUnknown) as error:
                    outcomes.append(error)
        return outcomes

    return run(main())


@pytest.fixture(params=[append_blocking, append_asyncio], ids=["blocking", "asyncio"])
def append(request: pytest.FixtureRequest) -> Callable[..., list[Outcome]]:
    """Append bodies in order through one interface of the client; return the outcome of each."""

    def call(endpoints: str, *bodies: bytes, **options: float) -> list[Outcome]:
        return request.param(endpoints, bodies, {"deadline_s": PATIENCE_S, "answer_timeout_s": PATIENCE_S} | options)

    return call


def kinds(outcomes: list[Outcome]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def test_leader_is_found_through_any_node(append: Callable[..., list[Outcome]], make_node: MakeNode) -> None:
    follower, leader = make_node(), make_node()
    follower.follow(leader)

    assert [Appended(0, 1, 0), Appended(1, 1, 1)] == append(follower.address, b"a", b"b")
    assert [] == follower.requests


def test_hint_of_a_deposed_leader_is_followed(append: Callable[..., list[Outcome]], make_node: MakeNode) -> None:
    old, new = make_node(), make_node()
    old.refuse(404, leader=new.address)

    assert [Appended] == kinds(append(old.address, b"a"))
    assert [b"a"] == new.bodies


@pytest.mark.parametrize("code", [404, 501, 503, 505, 506])
def test_temporary_refusal_is_retried_until_it_succeeds(
    append: Callable[..., list[Outcome]], make_node: MakeNode, code: int
) -> None:
    node = make_node()
    node.refuse(code, times=3)

    assert [Appended(0, 1, 0)] == append(node.address, b"a")
    assert 4 == len(node.requests)


@pytest.mark.parametrize("code", [400, 411, 415, 420])
def test_permanent_refusal_is_not_retried(append: Callable[..., list[Outcome]], make_node: MakeNode, code: int) -> None:
    node = make_node()
    node.refuse(code)

    outcomes = append(node.address, b"a", b"b")

    assert [NotAppended, Appended] == kinds(outcomes)
    assert code == outcomes[0].code
    assert [b"b"] == node.bodies


@pytest.mark.parametrize("code", [502, 414, 500, 999])
def test_unknown_outcome_is_never_retried_and_the_next_append_continues(
    append: Callable[..., list[Outcome]], make_node: MakeNode, code: int
) -> None:
    node = make_node()
    node.refuse(code)

    outcomes = append(node.address, b"a", b"b")

    assert [AppendUnknown, Appended] == kinds(outcomes)
    assert [[b"a"], [b"b"]] == node.requests


def test_lost_connection_leaves_the_outcome_unknown_and_the_next_append_continues(
    append: Callable[..., list[Outcome]], make_node: MakeNode
) -> None:
    node = make_node()
    node.break_off()

    outcomes = append(node.address, b"a", b"b")

    assert [AppendUnknown, Appended] == kinds(outcomes)
    assert [[b"a"], [b"b"]] == node.requests


@pytest.mark.usefixtures("patient_search")
def test_silent_node_is_abandoned_for_another_leader(append: Callable[..., list[Outcome]], make_node: MakeNode) -> None:
    silent, other = make_node(), make_node()
    silent.stay_silent()
    silent.status.term = 2

    began = time.monotonic()
    endpoints = f"{silent.address},{other.address}"
    outcomes = append(endpoints, b"a", deadline_s=SCENARIO_LIMIT_S, answer_timeout_s=0.3)

    assert [AppendUnknown] == kinds(outcomes)
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.usefixtures("patient_search")
def test_deadline_bounds_the_wait_for_an_answer(append: Callable[..., list[Outcome]], make_node: MakeNode) -> None:
    node = make_node()
    node.stay_silent()

    for deadline_s in growing_deadlines(0.3):
        began = time.monotonic()
        outcomes = append(node.address, b"a", deadline_s=deadline_s)
        took_s = time.monotonic() - began
        # A busy machine may take as long before it sends anything.
        if [NotAppended] != kinds(outcomes):
            break
        assert [] == node.requests

    assert [AppendUnknown] == kinds(outcomes)
    assert took_s < PATIENCE_S


@pytest.mark.usefixtures("patient_search")
def test_refusals_until_the_deadline_are_provably_not_appended(
    append: Callable[..., list[Outcome]], make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late the answer to the last attempt is, it arrives before the deadline.
    for module in (append_sender, retry):
        monkeypatch.setattr(module, "LAST_TRY_S", PATIENCE_S)
    node = make_node()
    node.refuse(503, times=1000)

    outcomes = append(node.address, b"a", deadline_s=PATIENCE_S + 1.5)

    assert [NotAppended] == kinds(outcomes)
    assert "why" in str(outcomes[0])
    assert [] == node.bodies


@pytest.mark.usefixtures("patient_search")
def test_node_that_does_not_listen_costs_no_append(append: Callable[..., list[Outcome]], make_node: MakeNode) -> None:
    gone, node = make_node(), make_node()
    gone.stop()
    node.follow(gone)

    for deadline_s in growing_deadlines(0.5):
        asked = node.statuses_count
        outcomes = append(node.address, b"a", deadline_s=deadline_s)
        assert [NotAppended] == kinds(outcomes)
        # The leader is looked up again after the first try has failed.
        if node.statuses_count >= asked + 2:
            break

    assert "is not reachable (Connection refused)" in str(outcomes[0])


def test_node_that_accepts_connections_and_never_answers_costs_no_append(
    append: Callable[..., list[Outcome]], make_node: MakeNode
) -> None:
    node = make_node()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        node.status = StatusResponse(code=200, role="FOLLOWER", term=1, leader=LeaderHint(address=address))

        outcomes = append(node.address, b"a", deadline_s=1.5)

    assert [NotAppended] == kinds(outcomes)


@pytest.mark.usefixtures("patient_search")
def test_error_without_a_reachable_node_names_every_address(
    append: Callable[..., list[Outcome]], make_node: MakeNode
) -> None:
    one, two = make_node(), make_node()
    one.stop()
    two.stop()

    for deadline_s in growing_deadlines(0.3):
        error = str(append(f"{one.address},{two.address}", b"a", deadline_s=deadline_s)[0])
        # Otherwise the deadline passed before any node could have answered.
        if "the leader accepted nothing" not in error:
            break

    assert f"{one.address} is not reachable" in error
    assert f"{two.address} is not reachable" in error


# -------------------------------------------------------------------------------------------------------- asyncio


def test_concurrent_tasks_share_batches(make_node: MakeNode) -> None:
    node = make_node()

    async def main() -> list[Appended]:
        async with AsyncLogClient(node.address) as client:
            return await asyncio.gather(*(client.append(b"%d" % number) for number in range(500)))

    places = run(main())

    assert [b"%d" % number for number in range(500)] == [node.bodies[place.index] for place in places]
    assert len(node.requests) <= 5


def test_batch_of_one_caller_stays_together(make_node: MakeNode) -> None:
    node = make_node()

    async def main() -> list[list[Appended]]:
        async with AsyncLogClient(node.address) as client:
            return await asyncio.gather(*(client.append_many([b"%d" % number] * 40) for number in range(50)))

    for number, places in enumerate(run(main())):
        assert list(range(places[0].index, places[0].index + 40)) == [place.index for place in places]
        assert {b"%d" % number} == {node.bodies[place.index] for place in places}


def test_each_refused_batch_is_retried_once(make_node: MakeNode) -> None:
    node = make_node()
    node.refuse(503, times=7)

    async def main() -> list[Appended]:
        async with AsyncLogClient(node.address) as client:
            tasks = []
            for number in range(200):
                tasks.append(asyncio.ensure_future(client.append(b"%d" % number)))
                if number % 20 == 0:
                    await asyncio.sleep(0)
            return await asyncio.gather(*tasks)

    places = run(main())

    assert [b"%d" % number for number in range(200)] == [node.bodies[place.index] for place in places]
    assert 200 == len(node.bodies)


def test_every_call_in_flight_fails_with_a_lost_stream(make_node: MakeNode) -> None:
    node = make_node()
    node.break_off()

    async def main() -> list[Any]:
        async with AsyncLogClient(node.address) as client:
            return await asyncio.gather(*(client.append(b"x") for _ in range(10)), return_exceptions=True)

    outcomes = run(main())

    assert {AppendUnknown} == set(kinds(outcomes))
    assert 10 == len(set(map(id, outcomes)))


def test_cancelled_caller_does_not_disturb_the_others(make_node: MakeNode) -> None:
    node = make_node()

    async def main() -> tuple[Appended, bool]:
        async with AsyncLogClient(node.address) as client:
            leaver = asyncio.ensure_future(client.append(b"leaver"))
            stayer = asyncio.ensure_future(client.append(b"stayer"))
            await asyncio.sleep(0)
            leaver.cancel()
            return await stayer, leaver.cancelled() or bool(leaver.cancelling())

    place, is_cancelled = run(main())

    assert b"stayer" == node.bodies[place.index]
    assert is_cancelled


def test_closing_leaves_no_caller_waiting(make_node: MakeNode) -> None:
    node = make_node()
    node.stay_silent()

    async def main() -> list[Any]:
        client = AsyncLogClient(node.address)
        tasks = [asyncio.ensure_future(client.append(b"sent"))]
        await until(lambda: node.requests, "the node has received it")
        await client.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [AppendUnknown] == kinds(run(main()))


def test_closed_client_appends_nothing(make_node: MakeNode) -> None:
    node = make_node()

    async def main() -> None:
        async with AsyncLogClient(node.address) as client:
            await client.append(b"a")
        with pytest.raises(NotAppended, match="the client is closed"):
            await client.append(b"b")

    run(main())
    assert [b"a"] == node.bodies


def test_full_queue_makes_the_caller_wait_until_its_deadline(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dledger.client.aio import sender as append_sender

    monkeypatch.setattr(append_sender, "QUEUE_ENTRIES_MAX", 1)
    node = make_node()
    node.status = type(node.status)(code=200, role="CANDIDATE", term=1)

    async def main() -> list[Any]:
        client = AsyncLogClient(node.address, deadline_s=SCENARIO_LIMIT_S)
        try:
            first = asyncio.ensure_future(client.append(b"a"))
            await until(lambda: not client._sender.has_space, "the queue is full")
            # The previous one must not free space at the same moment.
            client._deadline_s = 0.3
            second = await asyncio.gather(client.append(b"b"), return_exceptions=True)
        finally:
            await client.close()
        return [*await asyncio.gather(first, return_exceptions=True), *second]

    outcomes = run(main())

    assert [NotAppended, NotAppended] == kinds(outcomes)
    assert 503 == outcomes[1].code

"""Pop consumption by the calls of a client: takes, acknowledgements, waiting, limits, and refused requests."""

import asyncio
import time

import pytest

from cluster.api.waiting.pop_calls import INVISIBLE_MS_MIN
from cluster.pop import choosing
from cluster.protocol.errors import Reason, Status
from cluster.state.features import WITH_POP
from cluster.state.pop import applying
from cluster.state.pop.ops import INVISIBLE_MS_MAX
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

GROUP = "billing"
OK, ALREADY, STALE = pb.ACK_OUTCOME_ACKNOWLEDGED, pb.ACK_OUTCOME_ALREADY_DONE, pb.ACK_OUTCOME_STALE
MINUTE_MS = 60_000


async def receive(shop, **fields):
    request = {"group": GROUP, "topic": TOPIC, "invisible_ms": MINUTE_MS, **fields}
    return await shop.stub.Receive(pb.ReceiveRequest(**request))


async def bodies(shop, **fields):
    found = await receive(shop, **fields)
    assert found.answer.code == 0, found.answer
    return list(found.columns.bodies)


async def acknowledge(shop, *handles, group=GROUP, topic=TOPIC):
    found = await shop.stub.Acknowledge(pb.AcknowledgeRequest(group=group, topic=topic, handles=handles))
    assert found.answer.code == 0, found.answer
    return list(found.outcomes)


async def change(shop, handle, invisible_ms, **fields):
    request = pb.ChangeInvisibleRequest(group=GROUP, topic=TOPIC, handle=handle, invisible_ms=invisible_ms, **fields)
    found = await shop.stub.ChangeInvisible(request)
    assert found.answer.code == 0, found.answer
    return found


def floors(shop):
    state = shop.replica.state
    return [None if (kept := state.offset(GROUP, TOPIC, each)) is None else kept.offset for each in range(2)]


def test_received_messages_are_given_once_and_are_done_when_acknowledged(shop):
    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(5)))
            await shop.put(b"five", queue_id=1)
            found = await receive(shop)
            assert sorted(found.columns.bodies) == [b"0", b"1", b"2", b"3", b"4", b"five"]
            assert list(found.attempts) == [1] * 6
            assert await bodies(shop) == [], "taken"
            assert floors(shop) == [0, 0]
            of_first = [each for each in found.handles if each.split(" ")[6] == "0"]
            assert await acknowledge(shop, *of_first[1:], of_first[1]) == [OK] * 5
            assert floors(shop) == [0, 0], "the first one is not done"
            assert await acknowledge(shop, *found.handles) == [
                ALREADY if each in of_first[1:] else OK for each in found.handles
            ]
            assert floors(shop) == [5, 1]
            kept = await shop.stub.FetchOffset(pb.FetchOffsetRequest(group=GROUP, topic=TOPIC, queue_ids=[0, 1]))
            assert list(kept.offsets) == [5, 1], "other tools show the floor"
            counts = shop.broker.core.metrics.counts
            assert (counts.pop_taken, counts.pop_redelivered, counts.pop_acknowledged, counts.pop_stale) == (6, 0, 6, 0)

    run(scenario)


def test_unacknowledged_message_is_given_again_with_its_attempts_after_the_invisible_time(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", b"c")
            first = await receive(shop, invisible_ms=5_000)
            assert await acknowledge(shop, first.handles[1]) == [OK]
            shop.clock_ahead_ms = 4_000
            assert await bodies(shop) == []
            shop.clock_ahead_ms = 5_000
            again = await receive(shop)
            assert (list(again.columns.bodies), list(again.attempts)) == ([b"a", b"c"], [2, 2])
            assert list(again.columns.reconsume_times) == [1, 1]
            assert await acknowledge(shop, *first.handles) == [STALE, ALREADY, STALE]
            assert await acknowledge(shop, *again.handles) == [OK, OK]

    run(scenario)


def test_concurrent_consumers_get_different_messages_in_few_entries(shop):
    async def scenario():
        async with shop.open(waiters_max=100):
            for queue_id in (0, 1):
                await shop.put(*(b"%d %d" % (queue_id, number) for number in range(100)), queue_id=queue_id)
            found = []
            while len(found) < 200:
                answers = await asyncio.gather(*(receive(shop, max_messages=7, wait_ms=100) for _ in range(8)))
                assert all(each.answer.code == 0 and len(each.handles) <= 7 for each in answers)
                found += [body for each in answers for body in each.columns.bodies]
            assert len(found) == len(set(found)) == 200

    run(scenario)


def test_consumers_that_do_not_wait_get_messages_at_the_same_time(shop):
    """They have no share of the waiting readers, which they could take or give back."""

    async def scenario():
        async with shop.open():
            for queue_id in (0, 1):
                await shop.put(*(b"%d %d" % (queue_id, number) for number in range(8)), queue_id=queue_id)
            answers = await asyncio.gather(*(receive(shop, max_messages=4) for _ in range(4)))
            assert [(each.answer.code, len(each.handles)) for each in answers] == [(0, 4)] * 4

    run(scenario)


def test_filter_passes_over_messages_which_are_then_done(shop):
    async def scenario():
        async with shop.open():
            tags = [b"TAGS\x01%s\x02n\x01%d\x02" % (b"odd" if number % 2 else b"even", number) for number in range(20)]
            await shop.put(*(b"%d" % number for number in range(20)), properties=tags)
            odd = await receive(shop, tags="odd", max_messages=3)
            assert list(odd.columns.bodies) == [b"1", b"3", b"5"]
            assert floors(shop)[0] == 1, "0 is passed over"
            by_sql = await receive(shop, tags="|SQL92|", sql="n > 8 AND TAGS = 'odd'")
            assert list(by_sql.columns.bodies) == [b"9", b"11", b"13", b"15", b"17", b"19"]
            await acknowledge(shop, *odd.handles, *by_sql.handles)
            assert floors(shop)[0] == 20

    run(scenario)


def test_sparse_filter_moves_the_floor_without_giving_messages(shop, monkeypatch):
    monkeypatch.setattr(choosing.Budget, "__init__", _small_scan(choosing.Budget.__init__))

    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(2_000)))
            assert await bodies(shop, tags="rare") == []
            assert 0 < floors(shop)[0] < 2_000
            waiting = asyncio.create_task(bodies(shop, tags="rare", wait_ms=30_000))
            await until(lambda: floors(shop)[0] == 2_000)
            await shop.put(b"found", properties=[b"TAGS\x01rare\x02"])
            assert await waiting == [b"found"]

    run(scenario)


def _small_scan(init):
    return lambda self, count, size_bytes: init(self, count, size_bytes, 5)


def test_waiting_consumer_gets_a_message_when_it_is_put(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"old")
            old = await receive(shop)
            waiting = asyncio.create_task(bodies(shop, wait_ms=30_000, tags="*"))
            await until(lambda: shop.replica.store.waiters_count == 2)
            await shop.put(b"new", queue_id=1)
            assert await waiting == [b"new"]
            assert shop.replica.store.waiters_count == 0
            assert await acknowledge(shop, *old.handles) == [OK]

    run(scenario)


def test_waiting_consumer_gets_a_message_at_its_deadline(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            first = await receive(shop, wait_ms=30_000)
            await change(shop, first.handles[0], 1_500)
            began = time.monotonic()
            again = await receive(shop, wait_ms=30_000, invisible_ms=1_000)
            assert list(again.attempts) == [2]
            # This lease begins while no consumer waits.
            assert list((await receive(shop, wait_ms=30_000)).attempts) == [3]
            assert time.monotonic() - began < 30, "not at the end of the wait"

    run(scenario)


def test_message_given_back_wakes_a_waiting_consumer_and_may_count_no_attempt(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            first = await receive(shop)
            waiting = asyncio.create_task(receive(shop, wait_ms=30_000))
            await until(lambda: shop.replica.store.waiters_count == 2)
            changed = await change(shop, first.handles[0], 0, is_uncounted=True)
            assert changed.outcome == OK
            second = await waiting
            assert list(second.attempts) == [1]
            assert (await change(shop, first.handles[0], 0)).outcome == STALE
            assert (await change(shop, changed.handle, 0)).outcome == STALE
            longer = await change(shop, second.handles[0], INVISIBLE_MS_MAX)
            assert await acknowledge(shop, second.handles[0], longer.handle) == [STALE, OK]
            assert (await change(shop, longer.handle, 0)).outcome == ALREADY

    run(scenario)


def test_consumer_that_never_acknowledges_meets_the_limit_and_acknowledging_ends_it(shop, monkeypatch):
    for module in (applying, choosing):
        monkeypatch.setattr(module, "IN_FLIGHT_OF_QUEUE_MAX", 4)

    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(6)))
            first = await receive(shop)
            assert list(first.columns.bodies) == [b"0", b"1", b"2", b"3"]
            refused = await receive(shop)
            assert (refused.answer.code, refused.answer.reason) == (Status.RESOURCE_EXHAUSTED, "TOO_MUCH_STATE")
            waiting = asyncio.create_task(bodies(shop, wait_ms=30_000))
            await until(lambda: shop.replica.store.waiters_count == 2)
            await acknowledge(shop, first.handles[2])
            assert await waiting == [b"4"]

    run(scenario)


def test_group_begins_at_the_first_message_or_at_the_end_of_all_queues_at_once(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"old")
            await shop.put(b"old", queue_id=1)
            assert await bodies(shop, group="late", is_from_end=True) == []
            await shop.put(b"new")
            await shop.put(b"new", queue_id=1)
            assert await bodies(shop, group="late", is_from_end=True) == [b"new", b"new"]
            assert await bodies(shop, group="early") == [b"old", b"new"] * 2
            await shop.set_topic(TOPIC, 3)
            await shop.put(b"third", queue_id=2)
            assert await bodies(shop, group="late", is_from_end=True) == [b"third"], "a new queue loses nothing"

    run(scenario)


def test_waiting_ends_when_the_topic_is_deleted_and_old_handles_are_stale(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            first = await receive(shop)
            waiting = asyncio.create_task(receive(shop, wait_ms=2_000))
            await until(lambda: shop.replica.store.waiters_count == 2)
            await shop.stub.DeleteTopic(pb.DeleteTopicRequest(topic=TOPIC))
            assert (await waiting).answer.reason in ("", "UNKNOWN_TOPIC")
            assert shop.replica.state.pop.count == 0
            await shop.set_topic(TOPIC)
            assert await acknowledge(shop, *first.handles) == [STALE]

    run(scenario)


def test_leases_are_those_of_before_after_a_restart(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b")
            first = await receive(shop)
            assert await acknowledge(shop, first.handles[0]) == [OK]
        async with shop.open():
            assert await bodies(shop) == []
            assert await acknowledge(shop, *first.handles) == [ALREADY, OK]
            assert floors(shop)[0] == 2

    run(scenario)


def test_lease_ends_in_time_although_the_clock_goes_back_by_an_hour(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            await receive(shop, invisible_ms=1_000)
            shop.clock_ahead_ms = -3_600_000
            assert await bodies(shop) == []
            assert await bodies(shop, wait_ms=10_000) == [b"a"]

    run(scenario)


def test_messages_that_retention_deleted_are_passed_over_and_counted(shop):
    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(6)))
            await receive(shop, max_messages=4)
            store, known = shop.replica.store, shop.replica.store.min_offset
            store.min_offset = lambda topic, queue_id: 5 if queue_id == 0 else known(topic, queue_id)
            assert await bodies(shop) == [b"5"]
            assert (floors(shop)[0], shop.replica.state.pop.lost_count) == (5, 4)

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_messages": -1}, Reason.ILLEGAL_REQUEST),
        ({"wait_ms": -1}, Reason.ILLEGAL_REQUEST),
        ({"invisible_ms": 0}, Reason.ILLEGAL_REQUEST),
        ({"invisible_ms": INVISIBLE_MS_MIN - 1}, Reason.ILLEGAL_REQUEST),
        ({"invisible_ms": INVISIBLE_MS_MAX + 1}, Reason.ILLEGAL_REQUEST),
        ({"tags": "a", "sql": "a = 1"}, Reason.ILLEGAL_REQUEST),
        ({"tags": "|SQL92|", "sql": "a = "}, Reason.ILLEGAL_REQUEST),
        ({"queue_ids": [2]}, Reason.UNKNOWN_QUEUE),
        ({"queue_ids": [-1]}, Reason.UNKNOWN_QUEUE),
        ({"topic": "unknown"}, Reason.UNKNOWN_TOPIC),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Reason.UNKNOWN_TOPIC),
        ({"group": "a b"}, Reason.ILLEGAL_MESSAGE),
        ({"group": ""}, Reason.ILLEGAL_MESSAGE),
    ],
)
def test_invalid_receives_are_refused_with_their_reason(shop, fields, reason):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            assert (await receive(shop, **fields)).answer.reason == reason
            assert shop.replica.state.pop.is_empty

    run(scenario)


@pytest.mark.parametrize(
    ("handle", "reason"),
    [
        ("", Reason.ILLEGAL_REQUEST),
        ("0 1 2 3 0 b 0", Reason.ILLEGAL_REQUEST),
        ("0 1 2 999 0 b 0 0", Reason.ILLEGAL_REQUEST),
        ("0 -1 2 3 0 b 0 0", Reason.ILLEGAL_REQUEST),
        ("0 1 2 3 0 b 0 99999999999999999999", Reason.ILLEGAL_REQUEST),
        ("0 1 2 3 0 other 0 0", Reason.ILLEGAL_REQUEST),
        ("0 1 2 3 0 b 2 0", Reason.UNKNOWN_QUEUE),
    ],
)
def test_invalid_handles_are_refused_with_their_reason(shop, handle, reason):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            good = (await receive(shop)).handles[0]
            request = pb.AcknowledgeRequest(group=GROUP, topic=TOPIC, handles=[good, handle])
            assert (await shop.stub.Acknowledge(request)).answer.reason == reason
            changed = pb.ChangeInvisibleRequest(group=GROUP, topic=TOPIC, handle=handle, invisible_ms=5)
            assert (await shop.stub.ChangeInvisible(changed)).answer.reason == reason
            none = pb.AcknowledgeRequest(group=GROUP, topic=TOPIC)
            assert (await shop.stub.Acknowledge(none)).answer.reason == Reason.ILLEGAL_REQUEST
            late = pb.ChangeInvisibleRequest(group=GROUP, topic=TOPIC, handle=good, invisible_ms=INVISIBLE_MS_MAX + 1)
            assert (await shop.stub.ChangeInvisible(late)).answer.reason == Reason.ILLEGAL_REQUEST
            assert await acknowledge(shop, good, group="unknown") == [STALE]
            assert await acknowledge(shop, good) == [OK], "nothing of the refused requests was done"

    run(scenario)


def test_more_messages_than_the_maximum_are_reduced_to_it(shop):
    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(300)))
            assert len(await bodies(shop, max_messages=257)) == 256
            assert len(await bodies(shop, max_messages=3)) == 3
            assert len(await bodies(shop)) == 32, "without a number"

    run(scenario)


def test_group_below_the_feature_level_refuses(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a")
            shop.replica.state._content.feature_level = WITH_POP - 1
            assert (await receive(shop)).answer.reason == Reason.UNSUPPORTED

    run(scenario)


def test_consumers_that_do_not_wait_need_no_share_of_readers(shop):
    async def scenario():
        async with shop.open():
            answers = await asyncio.gather(*(receive(shop) for _ in range(40)))
            assert {each.answer.code for each in answers} == {0}

    run(scenario)


def test_waiting_consumers_have_their_share_of_readers(shop):
    async def scenario():
        async with shop.open():
            waiting = [asyncio.create_task(receive(shop, wait_ms=2_000)) for _ in range(12)]
            names = [(await each).answer.reason for each in waiting]
            assert set(names) == {"", "OVERLOADED"}

    run(scenario)

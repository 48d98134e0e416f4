"""Pop consumption in order by the calls of a client: message groups, attempt ids, limits, and changes of the order."""

import asyncio

from cluster.pop import ordered_choosing
from cluster.state.pop import applying
from cluster.v1 import broker_pb2 as pb
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

GROUP = "billing"
OK, STALE = pb.ACK_OUTCOME_ACKNOWLEDGED, pb.ACK_OUTCOME_STALE
MINUTE_MS = 60_000


async def set_order(shop, *, is_orderly, retry_max=16):
    group = pb.Group(
        name=GROUP, is_consume_enabled=True, is_orderly=is_orderly, retry_queues=1, retry_max_times=retry_max
    )
    answer = (await shop.stub.SetGroup(pb.SetGroupRequest(group=group))).answer
    assert answer.code == 0, answer


async def put(shop, *named, queue_id=0):
    """Put messages named `<message group><number>`; `-` is no message group."""
    groups = [each[0] for each in named]
    properties = [b"" if each == "-" else b"__SHARDINGKEY\x01%s\x02" % each.encode() for each in groups]
    await shop.put(*(each.encode() for each in named), properties=properties, queue_id=queue_id)


async def receive(shop, **fields):
    request = {"group": GROUP, "topic": TOPIC, "invisible_ms": MINUTE_MS, **fields}
    found = await shop.stub.Receive(pb.ReceiveRequest(**request))
    assert found.answer.code == 0, found.answer
    return found


def names(found):
    return [each.decode() for each in found.columns.bodies]


async def acknowledge(shop, *handles):
    found = await shop.stub.Acknowledge(pb.AcknowledgeRequest(group=GROUP, topic=TOPIC, handles=handles))
    assert found.answer.code == 0, found.answer
    return list(found.outcomes)


def floor(shop):
    return shop.replica.state.offset(GROUP, TOPIC, 0).offset


def test_message_in_flight_blocks_its_message_group_and_no_other_one(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "a2", "b1", "-1", "a3", "b2", "-2", "c1")
            first = await receive(shop)
            assert names(first) == ["a1", "b1", "-1", "c1"], (
                "messages without a message group are one group of the queue"
            )
            assert names(await receive(shop)) == []
            by_name = dict(zip(names(first), first.handles, strict=True))
            assert await acknowledge(shop, by_name["b1"]) == [OK]
            second = await receive(shop)
            assert names(second) == ["b2"]
            assert await acknowledge(shop, by_name["a1"], by_name["-1"]) == [OK, OK]
            assert floor(shop) == 1, "a2"
            third = await receive(shop)
            assert names(third) == ["a2", "-2"]
            assert await acknowledge(shop, *third.handles, *second.handles, by_name["c1"]) == [OK] * 4
            last = await receive(shop)
            assert (names(last), list(last.attempts)) == (["a3"], [1])
            assert await acknowledge(shop, *last.handles) == [OK]
            assert floor(shop) == 8
            assert (shop.replica.state.pop.count, shop.replica.state.pop.ordered_count) == (0, 0)

    run(scenario)


def test_failed_message_is_given_again_before_the_next_one_of_its_message_group(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "a2", "b1")
            first = await receive(shop, invisible_ms=5_000)
            shop.clock_ahead_ms = 5_000
            again = await receive(shop)
            assert (names(again), list(again.attempts)) == (["a1", "b1"], [2, 2])
            assert await acknowledge(shop, *first.handles) == [STALE, STALE]
            change = pb.ChangeInvisibleRequest(group=GROUP, topic=TOPIC, handle=again.handles[0], invisible_ms=2_000)
            assert (await shop.stub.ChangeInvisible(change)).outcome == OK
            assert names(await receive(shop)) == [], "it waits for its time, and a2 for it"
            shop.clock_ahead_ms = 7_000
            third = await receive(shop)
            assert (names(third), list(third.attempts)) == (["a1"], [3])
            assert await acknowledge(shop, *third.handles) == [OK]
            assert names(await receive(shop)) == ["a2"]

    run(scenario)


def test_message_that_failed_too_often_becomes_a_dead_letter_and_its_message_group_continues(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True, retry_max=1)
            await put(shop, "a1", "a2")
            for attempt in (1, 2):
                found = await receive(shop, invisible_ms=5_000, attempt_id=str(attempt))
                assert (names(found), list(found.attempts)) == (["a1"], [attempt])
                shop.clock_ahead_ms += 5_000
            found = await receive(shop, wait_ms=30_000, attempt_id="three")
            assert (names(found), list(found.attempts)) == (["a2"], [1])
            dead = await shop.get(topic=f"%DLQ%{GROUP}")
            assert [each.decode() for each in dead.columns.bodies] == ["a1"]
            assert await acknowledge(shop, *found.handles) == [OK]
            assert floor(shop) == 2

    run(scenario)


def test_waiting_consumer_gets_the_next_message_of_a_group_when_the_one_before_is_acknowledged(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "a2")
            first = await receive(shop)
            waiting = asyncio.ensure_future(receive(shop, wait_ms=30_000))
            await until(lambda: shop.broker._service.pops._receiver._polls._waiting)
            await acknowledge(shop, *first.handles)
            assert names(await waiting) == ["a2"]

    run(scenario)


def test_receive_with_the_same_attempt_id_gets_the_same_messages_and_handles(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "a2", "b1")
            await put(shop, "c1", "c2", queue_id=1)
            first = await receive(shop, attempt_id="one")
            assert sorted(names(first)) == ["a1", "b1", "c1"]
            shop.clock_ahead_ms = 40_000
            again = await receive(shop, attempt_id="one")
            pairs = lambda found: sorted(zip(names(found), found.handles, found.attempts, strict=True))  # noqa: E731
            assert pairs(again) == pairs(first), "the same lease, not another attempt"
            assert names(await receive(shop, attempt_id="two")) == [], "another consumer"
            shop.clock_ahead_ms = 90_000
            assert names(await receive(shop, attempt_id="three")) == [], "its time began again"
            by_name = dict(zip(names(first), first.handles, strict=True))
            assert await acknowledge(shop, by_name["a1"]) == [OK]
            assert sorted(names(await receive(shop, attempt_id="one"))) == ["b1", "c1"], "what is not done"
            shop.clock_ahead_ms = 150_001
            later = await receive(shop, attempt_id="one")
            assert sorted(zip(names(later), later.attempts, strict=True)) == [("a2", 1), ("b1", 2), ("c1", 2)]

    run(scenario)


def test_attempt_that_is_repeated_while_its_first_request_is_at_work_gets_the_same_messages(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "b1", "a2")
            found = await asyncio.gather(*(receive(shop, attempt_id="one") for _ in range(4)))
            assert [sorted(names(each)) for each in found] == [["a1", "b1"]] * 4
            assert len({tuple(each.handles) for each in found}) == 1
            waiting = [asyncio.ensure_future(receive(shop, attempt_id="two", wait_ms=30_000)) for _ in range(2)]
            await until(lambda: shop.broker._service.pops._receiver._polls._waiting)
            await put(shop, "c1")
            assert [names(each) for each in await asyncio.gather(*waiting)] == [["c1"]] * 2

    run(scenario)


def test_blocked_message_group_is_read_once_however_many_messages_follow(shop, monkeypatch):
    async def scenario():
        async with shop.open():
            monkeypatch.setattr(ordered_choosing, "WAITING_PER_TAKE_MAX", 20)
            await set_order(shop, is_orderly=True)
            await put(shop, *(f"a{number}" for number in range(100)), "b1")
            assert names(await receive(shop, max_messages=1)) == ["a0"]
            found = await receive(shop, wait_ms=5_000)
            assert names(found) == ["b1"], "those that wait are passed by, some with each take"
            reads = []
            get = shop.replica.store.get
            monkeypatch.setattr(shop.replica.store, "get", lambda *args: reads.append(args) or get(*args))
            for _ in range(5):
                assert names(await receive(shop)) == []
            assert reads == [], "nothing is read again"
            await put(shop, "c1")
            assert names(await receive(shop)) == ["c1"]
            assert len(reads) == 1

    run(scenario)


def test_queue_with_too_many_waiting_messages_continues_when_the_first_one_is_done(shop, monkeypatch):
    async def scenario():
        async with shop.open():
            for module in (applying, ordered_choosing):
                monkeypatch.setattr(module, "IN_FLIGHT_OF_QUEUE_MAX", 4)
            await set_order(shop, is_orderly=True)
            await put(shop, *(f"a{number}" for number in range(6)), "b1")
            first = await receive(shop)
            assert names(first) == ["a0"]
            assert names(await receive(shop)) == [], "b1 is after four messages"
            got = []
            while len(got) < 6:
                await acknowledge(shop, *first.handles)
                first = await receive(shop, wait_ms=5_000)
                got += names(first)
                assert shop.replica.state.pop.count <= 4
            assert [each for each in got if each != "b1"] == ["a1", "a2", "a3", "a4", "a5"]

    run(scenario)


def test_order_of_a_group_changes_once_nothing_of_the_old_way_is_in_flight(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=False)
            await put(shop, "a1", "a2")
            without = await receive(shop, invisible_ms=5_000)
            assert names(without) == ["a1", "a2"]
            await set_order(shop, is_orderly=True)
            await put(shop, "a3", "a4")
            assert names(await receive(shop)) == [], "a3 follows a1 and a2"
            assert await acknowledge(shop, without.handles[1]) == [OK]
            shop.clock_ahead_ms = 5_000
            again = await receive(shop)
            assert names(again) == ["a1"]
            assert await acknowledge(shop, *again.handles) == [OK]
            ordered = await receive(shop)
            assert names(ordered) == ["a3"]
            await set_order(shop, is_orderly=False)
            await put(shop, "a5", "a6")
            assert await acknowledge(shop, *ordered.handles) == [OK]
            ordered = await receive(shop)
            assert names(ordered) == ["a4"], "what waits in order is given in order"
            assert await acknowledge(shop, *ordered.handles) == [OK]
            assert names(await receive(shop)) == ["a5", "a6"]

    run(scenario)


def test_state_of_message_groups_survives_a_restart(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "a2", "b1", "b2")
            first = await receive(shop, max_messages=1, attempt_id="one")
            assert names(first) == ["a1"]
        async with shop.open():
            assert names(await receive(shop)) == ["b1"]
            again = await receive(shop, attempt_id="one")
            assert (names(again), list(again.handles)) == (["a1"], list(first.handles))
            assert await acknowledge(shop, *again.handles) == [OK]
            assert names(await receive(shop)) == ["a2"]

    run(scenario)


def test_reset_and_deletion_of_the_topic_leave_nothing_in_flight(shop):
    async def scenario():
        async with shop.open():
            await set_order(shop, is_orderly=True)
            await put(shop, "a1", "a2", "a3")
            await receive(shop)
            reset = pb.ResetOffsetRequest(group=GROUP, topic=TOPIC, queue_ids=[0], offsets=[1])
            assert (await shop.stub.ResetOffset(reset)).answer.code == 0
            assert names(await receive(shop)) == ["a2"], "#10229"
            await shop.stub.DeleteTopic(pb.DeleteTopicRequest(topic=TOPIC))
            await shop.set_topic(TOPIC)
            assert shop.replica.state.pop.ordered_count == 0
            assert names(await receive(shop, wait_ms=1_000)) == ["a1"], "nothing of the old topic's state is left"

    run(scenario)

"""Pop consumers whose messages fail: dead letters at the maximum of attempts, and old ones in the retry topic."""

import asyncio
import json
from random import Random
from typing import ClassVar

import pytest

from cluster.cli.waiting.dead_letter_queues import DLQ_ORIGIN_TOPIC
from cluster.pop import moving
from cluster.pop.handles import decode_handle
from cluster.protocol.topic_config import GroupConfig
from cluster.replica.standalone import StandaloneReplica
from cluster.state.commands import SetGroup
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import PROPERTIES_SIZE_MAX, decode_properties
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.waiting.test_delayed import Unsteady
from tests.integration.cluster.api.waiting.test_pop import GROUP, OK, STALE, acknowledge, bodies, floors, receive
from tests.support.waiting import until

DEAD, RETRY = "%DLQ%billing", "%RETRY%billing_orders"
LEASE_MS = 1_000


REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


async def with_group(shop, **settings):
    await shop.broker.core.change(SetGroup(GroupConfig(GROUP, **settings)))


async def fail(shop, **fields):
    """Receive, and let the time of all leases pass; the answer."""
    found = await receive(shop, invisible_ms=LEASE_MS, **fields)
    assert found.answer.code == 0, found.answer
    shop.clock_ahead_ms += LEASE_MS
    return found


async def settled(shop):
    """Wait until nothing is being moved."""
    await until(lambda: not shop.broker._service.pops._receiver._moves._tasks)


async def stored(shop, topic, count):
    """Return the columns of a topic of one queue after it has `count` messages."""
    await until(lambda: shop.replica.store.max_offset(topic, 0) >= count)
    return (await shop.get(topic=topic, max_messages=100)).columns


def test_message_that_fails_17_times_is_one_dead_letter_with_its_origin(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"poison", b"good", properties=[b"TAGS\x01t\x02KEYS\x01k\x02", b""], flags=[7, 0])
            first = await fail(shop)
            assert await acknowledge(shop, first.handles[1]) == [OK]
            attempts = [first.attempts[0]]
            while DEAD not in shop.replica.state.topics:
                attempts += (await fail(shop)).attempts
            assert attempts == list(range(1, 18)), "a maximum of 16 redeliveries"

            dead = await stored(shop, DEAD, 1)
            assert (list(dead.bodies), list(dead.flags), list(dead.reconsume_times)) == ([b"poison"], [7], [17])
            properties = decode_properties(dead.properties[0])
            record = shop.replica.store.get(TOPIC, 0, 0).messages[0]
            assert properties.pop("__EFFECT").startswith(f"p:{GROUP}:{TOPIC}:0:0:")
            assert properties == {
                "TAGS": "t",
                "KEYS": "k",
                "RETRY_TOPIC": TOPIC,
                "ORIGIN_MESSAGE_ID": record.message_id,
                DLQ_ORIGIN_TOPIC: TOPIC,
                "DLQ_ORIGIN_MESSAGE_ID": record.message_id,
            }
            await until(lambda: floors(shop)[0] == 2)
            assert (shop.replica.state.pop.count, await bodies(shop)) == (0, [])
            assert await acknowledge(shop, first.handles[0]) == [pb.ACK_OUTCOME_ALREADY_DONE]
            counts = shop.broker.core.metrics.counts
            assert (counts.pop_dead, counts.pop_moved, counts.dead_letters) == (1, 0, {GROUP: 1})
        async with shop.open():
            assert (floors(shop)[0], await bodies(shop)) == (2, []), "also after a restart"
            assert list((await stored(shop, DEAD, 1)).bodies) == [b"poison"]

    run(scenario)


@pytest.mark.parametrize(("settings", "given"), [({"retry_max_times": 0}, 1), ({"retry_queues": 0}, 1)])
def test_group_without_retries_has_dead_letters_after_the_first_failure(shop, settings, given):
    async def scenario():
        async with shop.open():
            await with_group(shop, **settings)
            await shop.put(b"a", b"b")
            assert list((await fail(shop)).attempts) == [1, 1]
            assert await bodies(shop) == []
            dead = await stored(shop, DEAD, 2)
            assert (sorted(dead.bodies), list(dead.reconsume_times)) == ([b"a", b"b"], [given, given])

    run(scenario)


def test_group_without_a_maximum_is_given_a_message_as_often_as_it_fails(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop, retry_max_times=-1)
            await shop.put(b"a")
            for attempt in range(1, 30):
                assert list((await fail(shop)).attempts) == [attempt]
            assert DEAD not in shop.replica.state.topics

    run(scenario)


def test_last_holder_of_a_dead_letter_may_acknowledge_it_until_it_is_taken(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop, retry_max_times=0)
            await shop.put(b"late", b"too late")
            first = await fail(shop)
            assert await acknowledge(shop, first.handles[0]) == [OK]
            assert await bodies(shop) == []
            assert list((await stored(shop, DEAD, 1)).bodies) == [b"too late"]
            await until(lambda: not shop.replica.state.pop.count)
            assert STALE not in await acknowledge(shop, first.handles[1])

    run(scenario)


def test_message_that_cannot_be_put_to_the_dead_letters_is_given_again(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop, retry_max_times=0)
            await shop.put(b"large", properties=[b"KEYS\x01%s\x02" % (b"k" * (PROPERTIES_SIZE_MAX - 6))])
            assert list((await fail(shop)).attempts) == [1]
            assert list((await fail(shop)).attempts) == [2]
            await shop.set_topic(DEAD, 1, permission=4)
            await shop.put(b"small", queue_id=1)
            await fail(shop)
            assert sorted(await bodies(shop)) == [b"large", b"small"], "the topic accepts nothing"

    run(scenario)


def test_dead_letters_that_are_popped_are_given_without_end(shop):
    async def scenario():
        async with shop.open():
            await with_group(shop, retry_max_times=0)
            await shop.put(b"a")
            await fail(shop)
            await bodies(shop)
            await stored(shop, DEAD, 1)
            for attempt in (1, 2, 3):
                assert list((await fail(shop, topic=DEAD)).attempts) == [attempt]

    run(scenario)


class Late(Unsteady):
    """Own puts fail at random; what was late is stored before the next put, as in a log."""

    late: ClassVar[list[asyncio.Future]] = []

    def begin_own_put(self, messages):
        kept, self.undecided = self.undecided, None
        if kept:
            self.late.append(StandaloneReplica.begin_own_put(self, kept))
        return super().begin_own_put(messages)


@pytest.mark.parametrize("seed", range(3))
def test_each_dead_letter_is_put_once_whatever_becomes_of_the_puts(shop, monkeypatch, seed):
    monkeypatch.setattr(moving, "_PAUSE_S", 0.001)
    shop.replica_kind = Late

    async def scenario():
        Unsteady.random, Unsteady.counts = Random(seed), {}
        async with shop.open():
            await with_group(shop, retry_max_times=1)
            await shop.put(*(b"%d" % number for number in range(40)))
            await asyncio.gather(*(receive(shop, max_messages=10, invisible_ms=LEASE_MS) for _ in range(4)))
            while shop.replica.state.pop.count:
                shop.clock_ahead_ms += LEASE_MS
                answers = await asyncio.gather(
                    *(receive(shop, max_messages=3, invisible_ms=LEASE_MS) for _ in range(4))
                )
                assert max((attempt for each in answers for attempt in each.attempts), default=0) <= 2
                await settled(shop)
            found = list((await stored(shop, DEAD, 40)).bodies)
            assert sorted(map(int, found)) == list(range(40))
            assert (shop.replica.state.unfit_effects_count, floors(shop)[0]) == (0, 40)
            assert len(Unsteady.counts) == 6, Unsteady.counts

    run(scenario)


class Gated(StandaloneReplica):
    """Its own puts are stored, but not before the gate is open."""

    gate: ClassVar[asyncio.Event]

    def begin_own_put(self, messages):
        async def stored_later():
            await self.gate.wait()
            return await super(Gated, self).begin_own_put(messages)

        return asyncio.ensure_future(stored_later())


def test_message_is_not_taken_again_while_its_copy_may_still_be_put(shop):
    shop.replica_kind = Gated

    async def scenario():
        Gated.gate = asyncio.Event()
        async with shop.open():
            await with_group(shop, retry_max_times=0)
            await shop.put(b"a", b"b")
            await fail(shop)
            for _ in range(3):
                assert list((await fail(shop)).attempts) == []
                await until(lambda: DEAD in shop.replica.state.topics)
            Gated.gate.set()
            await settled(shop)
            assert sorted((await stored(shop, DEAD, 2)).bodies) == [b"a", b"b"]
            assert (shop.replica.store.max_offset(DEAD, 0), shop.replica.state.pop.count) == (2, 0)
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


# --------------------------------------------------------------------------------------------------------- retry topic


@pytest.mark.parametrize("limit", ["DISTANCE_MAX", "AGE_MS_MAX"])
def test_failing_message_that_holds_the_floor_is_moved_and_comes_from_the_retry_topic(shop, monkeypatch, limit):
    monkeypatch.setattr(moving, limit, 3 if limit == "DISTANCE_MAX" else -1)

    async def scenario():
        async with shop.open():
            await with_group(shop, retry_max_times=4)
            await shop.put(
                b"poison", *(b"%d" % number for number in range(5)), properties=[b"TAGS\x01t\x02"] + [b""] * 5
            )
            first = await fail(shop, max_messages=6)
            await acknowledge(shop, *first.handles[1:])
            attempts = [first.attempts[0]]
            for _ in range(30):
                found = await fail(shop)
                attempts += found.attempts
                await settled(shop)
                assert floors(shop)[0] == (6 if shop.replica.store.max_offset(RETRY, 0) else 0)
            assert attempts == [1, 2, 3, 4, 5], "as in the queue"
            dead = await stored(shop, DEAD, 1)
            assert (list(dead.bodies), list(dead.reconsume_times)) == ([b"poison"], [5])
            assert decode_properties(dead.properties[0])[DLQ_ORIGIN_TOPIC] == TOPIC
            assert shop.broker.core.metrics.counts.pop_moved >= 1
            assert shop.replica.state.pop.count == 0

    run(scenario)


def test_message_in_the_retry_topic_is_acknowledged_and_extended_by_its_handle(shop, monkeypatch):
    monkeypatch.setattr(moving, "DISTANCE_MAX", 0)

    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b")
            await fail(shop)
            waiting = asyncio.create_task(receive(shop, invisible_ms=LEASE_MS, wait_ms=10_000))
            found = await waiting
            if len(found.handles) < 2:
                more = await receive(shop, invisible_ms=LEASE_MS, wait_ms=10_000)
                found.handles.extend(more.handles)
                found.attempts.extend(more.attempts)
            assert (list(found.attempts), len(found.handles)) == ([2, 2], 2)
            assert all(decode_handle(each).is_retry for each in found.handles)
            request = pb.ChangeInvisibleRequest(group=GROUP, topic=TOPIC, handle=found.handles[0], invisible_ms=60_000)
            changed = await shop.stub.ChangeInvisible(request)
            assert changed.outcome == OK
            assert await acknowledge(shop, changed.handle, *found.handles) == [OK, pb.ACK_OUTCOME_ALREADY_DONE, OK]
            kept = shop.replica.state.offset(GROUP, RETRY, 0)
            assert (kept.offset, floors(shop)[0], shop.replica.state.pop.count) == (2, 2, 0)

    run(scenario)


def test_two_groups_whose_retry_topics_have_one_name_get_their_own_messages(shop, monkeypatch):
    monkeypatch.setattr(moving, "DISTANCE_MAX", 0)

    async def scenario():
        async with shop.open():
            await shop.set_topic("b_c", 1)
            await shop.set_topic("c", 1)
            for topic in ("b_c", "c"):
                await shop.put(topic.encode(), topic=topic)
            for group, topic in (("a", "b_c"), ("a_b", "c")):
                await fail(shop, group=group, topic=topic)
                found = await receive(shop, group=group, topic=topic, wait_ms=10_000)
                assert (list(found.columns.bodies), list(found.attempts)) == ([topic.encode()], [2])
            assert shop.replica.store.max_offset("%RETRY%a_b_c", 0) == 2

    run(scenario)


def test_pop_group_of_a_java_store_continues_at_its_offset_and_gets_what_waits_in_its_retry_topic(shop):
    """Java keeps leases in a topic of its own, which is imported and closed, but not interpreted."""
    config = shop.path / "config"
    config.mkdir(parents=True)
    topics = {name: {"topicName": name, "perm": 6, "readQueueNums": 2, "writeQueueNums": 2} for name in (TOPIC, RETRY)}
    topics[REVIVE] = {"topicName": REVIVE, "perm": 6, "readQueueNums": 8, "writeQueueNums": 8}
    offsets = {f"{TOPIC}@{GROUP}": {"0": 2}, f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 4}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))

    async def scenario():
        async with shop.open():
            await shop.put(*(b"%d" % number for number in range(4)))
            await shop.put(b"revived", topic=RETRY, reconsume_times=[1])
            found = await receive(shop)
            assert list(zip(found.columns.bodies, found.attempts, strict=True)) == [
                (b"revived", 2),
                (b"2", 1),
                (b"3", 1),
            ]
            assert await acknowledge(shop, *found.handles) == [OK] * 3
            refused = await receive(shop, topic=REVIVE)
            assert refused.answer.reason == "TOPIC_NOT_READABLE"

    run(scenario)

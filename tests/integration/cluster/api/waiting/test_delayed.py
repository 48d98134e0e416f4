"""Delayed messages of a standalone broker: in their own topic and queue once, not before their time."""

import asyncio
from random import Random
from typing import ClassVar

import pytest

from cluster.delivery import delay_levels, leader_task
from cluster.protocol.errors import Reason, RequestFailed
from cluster.replica.standalone import StandaloneReplica
from cluster.state.commands import DeleteTopic
from cluster.state.features import FEATURE_LEVEL
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import decode_properties
from store.access.message_store import MessageStore
from store.errors import Certainty, StoreStopped
from store.model.commit_log import PutOutcome, PutStatus
from store.model.topics import DELAY_LEVELS_MS, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run, run_only_awaited_dispatch
from tests.support.waiting import until

HOUR_MS = 3_600_000


def delayed(level, *more):
    return b"DELAY\x01%d\x02" % level + b"".join(more)


async def bodies_of(shop, count, queue_id=0, topic=TOPIC):
    """Return the bodies of a queue after it has `count` messages."""

    await until(lambda: shop.replica.store.max_offset(topic, queue_id) >= count)
    return list((await shop.get(topic=topic, queue_id=queue_id, max_messages=32)).columns.bodies)


def test_message_appears_in_its_queue_after_its_delay_and_not_before(shop):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"now", b"later", queue_id=1, properties=[b"", delayed(1, b"TAGS\x01t\x02")])
            assert put.answer.code == 0, put.answer
            assert list(put.queue_offsets) == [0, 0]

            assert await bodies_of(shop, 2, queue_id=1) == [b"now", b"later"]

            found = (await shop.get(queue_id=1)).columns
            stored = shop.replica.store.get(SCHEDULE_TOPIC, 0, 0).messages[0]
            properties = decode_properties(found.properties[1])
            assert found.store_timestamps[1] >= stored.store_timestamp + 1_000
            assert properties == {"DELAY": "1", "TAGS": "t", "REAL_TOPIC": TOPIC, "REAL_QID": "1", "__EFFECT": "d:1:0"}
            assert list((await shop.get(queue_id=1, tags="t")).columns.bodies) == [b"later"]
            assert shop.replica.state.delay_offsets == {1: 1}
            assert shop.broker.core.metrics.counts.delayed_delivered == 1
            assert (stored.topic, stored.queue_id, stored.properties_raw) == (
                SCHEDULE_TOPIC,
                0,
                b"DELAY\x011\x02TAGS\x01t\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02",
            )

    run(scenario)


def test_levels_are_delivered_at_their_times_and_each_in_the_order_of_its_puts(shop):
    async def scenario():
        async with shop.open():
            await shop.put(
                *(b"%d" % level for level in range(18, 0, -1)), properties=list(map(delayed, range(18, 0, -1)))
            )
            await shop.put(b"1 again", b"19", properties=[delayed(1), delayed(19)])
            seen = []
            for level, delay_ms in enumerate(DELAY_LEVELS_MS, start=1):
                shop.clock_ahead_ms = delay_ms + 500
                count = sum(delay <= delay_ms + 500 for delay in DELAY_LEVELS_MS) + 1 + (level == 18)
                seen = await bodies_of(shop, count)
                assert len(seen) == count
            assert seen[:4] == [b"1", b"1 again", b"2", b"3"]
            assert seen[4:] == [*(b"%d" % level for level in range(4, 19)), b"19"]
            assert shop.replica.state.delay_offsets == {**dict.fromkeys(range(2, 18), 1), 1: 2, 18: 2}

    run(scenario)


def test_what_is_delivered_is_not_delivered_again_after_a_restart_and_the_rest_is(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", b"c", properties=[delayed(1), delayed(18), delayed(1)])
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 2) == [b"a", b"c"]
        shop.clock_ahead_ms = 2 * HOUR_MS + 5_000
        async with shop.open():
            assert await bodies_of(shop, 3) == [b"a", b"c", b"b"]
            assert shop.replica.state.delay_offsets == {1: 2, 18: 1}
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_effects_after_the_last_snapshot_are_read_from_the_log(shop):
    """As after a kill -9: the state on disk lacks them."""

    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", properties=[delayed(1), delayed(1)])
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 2) == [b"a", b"b"]
            # The state is not saved at the end.
            shop.replica._local._cut_offset = 1 << 60
        async with shop.open():
            assert shop.replica.state.delay_offsets == {1: 2}
            await shop.put(b"c")
            assert await bodies_of(shop, 3) == [b"a", b"b", b"c"]

    run(scenario)


def test_levels_show_every_message_that_was_acknowledged_before_also_while_dispatch_is_late(shop, monkeypatch):
    async def scenario():
        async with shop.open() as stub:
            run_only_awaited_dispatch(monkeypatch)
            await shop.put(b"a", b"b", properties=[delayed(1), delayed(18)])
            found = await stub.DelayLevels(pb.DelayLevelsRequest())
            assert [(each.level, each.max_offset) for each in found.levels if each.max_offset] == [(1, 1), (18, 1)]

    run(scenario)


def test_levels_show_what_waits_and_when_it_is_due(shop):
    async def scenario():
        async with shop.open() as stub:
            await shop.put(b"a", b"b", b"c", properties=[delayed(1), delayed(18), delayed(18)])
            shop.clock_ahead_ms = 1_500
            await bodies_of(shop, 1)
            found = await stub.DelayLevels(pb.DelayLevelsRequest())

            assert (found.answer.code, found.feature_level, len(found.levels)) == (0, FEATURE_LEVEL, 18)
            stored = shop.replica.store.get(SCHEDULE_TOPIC, 17, 0).messages[0]
            rows = {each.level: (each.delivered_offset, each.max_offset, each.next_due_ms) for each in found.levels}
            assert rows.pop(1) == (1, 1, -1)
            assert rows.pop(18) == (0, 2, stored.store_timestamp + 2 * HOUR_MS)
            assert set(rows.values()) == {(0, 0, -1)}
            assert [each.delay_ms for each in found.levels] == list(DELAY_LEVELS_MS)

    run(scenario)


def test_message_of_a_deleted_topic_is_passed_over_and_counted(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic("gone")
            await shop.put(b"lost", topic="gone", properties=[delayed(1)])
            await shop.put(b"kept", properties=[delayed(1)])
            await shop.put(b"lost, too", topic="gone", properties=[delayed(1)])
            await shop.broker.core.change(DeleteTopic("gone"))
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 1) == [b"kept"]

            await until(lambda: shop.replica.state.delay_offsets == {1: 3})
            assert shop.broker.core.metrics.counts.delayed_not_delivered == {"unknown_topic": 2}
            assert shop.replica.store.max_offset("gone", 0) == 0

    run(scenario)


def test_messages_of_a_deleted_topic_among_others_leave_each_in_its_place(shop):
    """They are due together, so their copies are made together: of several queues, and with the unit of each."""

    async def scenario():
        async with shop.open():
            await shop.set_topic("gone")
            for number in range(12):
                topic, queue_id = ("gone", 0) if number % 3 == 1 else (TOPIC, number % 2)
                await shop.put(b"%d" % number, topic=topic, queue_id=queue_id, properties=[delayed(1)])
            await shop.broker.core.change(DeleteTopic("gone"))
            shop.clock_ahead_ms = 1_500
            for queue_id, numbers in ((0, [0, 2, 6, 8]), (1, [3, 5, 9, 11])):
                assert await bodies_of(shop, 4, queue_id) == [b"%d" % number for number in numbers]
                found = (await shop.get(queue_id=queue_id, max_messages=32)).columns
                effects = [decode_properties(properties)["__EFFECT"] for properties in found.properties]
                assert effects == [f"d:1:{number}" for number in numbers]
            await until(lambda: shop.replica.state.delay_offsets == {1: 12})
            assert shop.broker.core.metrics.counts.delayed_not_delivered == {"unknown_topic": 4}

    run(scenario)


def test_put_of_copies_has_no_more_bytes_than_its_limit(shop, monkeypatch):
    monkeypatch.setattr(delay_levels, "_BATCH_BYTES_MAX", 2_000)
    sizes, put_own = [], MessageStore.put_own

    def counted(store, messages):
        sizes.append(sum(len(message.body) for message in messages))
        return put_own(store, messages)

    monkeypatch.setattr(MessageStore, "put_own", counted)

    async def scenario():
        async with shop.open():
            bodies = [b"%d" % number * 400 for number in range(9)]
            await shop.put(*bodies, b"x" * 3_000, properties=[delayed(1)] * 10)
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 10) == [*bodies, b"x" * 3_000]
            assert max(sizes[:-1]) <= 2_000
            assert sum(sizes) == 9 * 400 + 3_000

    run(scenario)


def test_queue_that_the_topic_lacks_since_is_replaced_by_another_one(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic("shrunk", queues=8)
            await shop.put(b"x", topic="shrunk", queue_id=7, properties=[delayed(1)])
            await shop.set_topic("shrunk", queues=3)
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 1, queue_id=1, topic="shrunk") == [b"x"]

    run(scenario)


def test_copy_that_cannot_be_stored_blocks_nothing(shop, monkeypatch):
    """A Java broker may have stored properties that leave no space for the effect."""

    async def scenario():
        async with shop.open():
            monkeypatch.setattr("cluster.delivery.diversion._SPACE", 0)
            large = b"KEYS\x01%s\x02" % (b"k" * 32_720)
            for body, more in ((b"a", b""), (b"large", large), (b"b", b"")):
                answer = (await shop.put(body, properties=[delayed(1, more)])).answer
                assert answer.code == 0, answer
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 2) == [b"a", b"b"]
            assert shop.broker.core.metrics.counts.delayed_not_delivered == {"illegal": 1}

    run(scenario)


def test_thousands_are_delivered_in_batches(shop, monkeypatch):
    monkeypatch.setattr(delay_levels, "BATCH_MAX", 7)

    async def scenario():
        async with shop.open():
            for begin in range(0, 600, 100):
                bodies = [b"%d" % number for number in range(begin, begin + 100)]
                await shop.put(*bodies, properties=[delayed(1 + number % 3) for number in range(100)])
            shop.clock_ahead_ms = 11_000
            await bodies_of(shop, 600)
            found = []
            while len(found) < 600:
                found += (await shop.get(offset=len(found), max_messages=100)).columns.bodies
            assert sorted(map(int, found)) == list(range(600))
            assert shop.replica.state.delay_offsets == {1: 204, 2: 198, 3: 198}

    run(scenario)


def test_retry_of_a_put_is_recognised_and_delivered_once(shop):
    async def scenario():
        async with shop.open():
            key = b"UNIQ_KEY\x01A1\x02"
            first = await shop.put(b"x", properties=[delayed(1, key)])
            again = await shop.put(b"x", properties=[delayed(1, key)])
            assert (again.repeated_count, list(again.physical_offsets)) == (1, list(first.physical_offsets))
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 1) == [b"x"]
            late = await shop.put(b"x", properties=[delayed(1, key)])
            assert late.repeated_count == 1
            await shop.put(b"end")
            assert await bodies_of(shop, 2) == [b"x", b"end"]

    run(scenario)


def test_message_with_the_key_of_another_one_is_delivered_too(shop):
    """If the dedupe window took the copy for a repeated put, the level would never move on."""

    async def scenario():
        async with shop.open():
            key = b"UNIQ_KEY\x01A1\x02"
            await shop.put(b"at once", properties=[key])
            await shop.put(b"later", properties=[delayed(1, key)])
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 2) == [b"at once", b"later"]
            assert shop.replica.state.delay_offsets == {1: 1}

    run(scenario)


def test_level_has_precedence_over_a_time_and_is_bounded(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"x", properties=[delayed(99, b"TIMER_DELAY_SEC\x011\x02A\x01b\x02")])

            await until(lambda: shop.replica.store.max_offset(SCHEDULE_TOPIC, 17) == 1)
            record = shop.replica.store.get(SCHEDULE_TOPIC, 17, 0).messages[0]
            assert dict(record.properties) == {"DELAY": "18", "A": "b", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}

    run(scenario)


def test_message_whose_record_the_log_deletes_before_its_time_is_put_again_as_one_for_that_time(shop, monkeypatch):
    """The log keeps its records for less than the two hours of the last level."""
    monkeypatch.setattr(delay_levels, "kept_ms", lambda _: HOUR_MS)

    async def scenario():
        async with shop.open():
            await shop.put(b"far", b"near", b"later", properties=[delayed(18), delayed(16), delayed(18)])
            await until(lambda: shop.replica.store.max_offset(SCHEDULE_TOPIC, 17) == 2)
            shop.clock_ahead_ms = HOUR_MS - 5_000
            assert await bodies_of(shop, 1) == [b"near"]
            assert shop.replica.store.max_offset(TIMER_TOPIC, 0) == 0
            shop.clock_ahead_ms = HOUR_MS + 5_000
            await until(lambda: shop.replica.store.max_offset(TIMER_TOPIC, 0) == 2)
            assert shop.replica.state.delay_offsets[18] == 2
            await until(lambda: shop.broker.gauges().delayed_put_again == 2)
            (first, _) = shop.replica.store.get(TIMER_TOPIC, 0, 0).messages
            assert (first.properties["REAL_TOPIC"], first.properties["__EFFECT"]) == (TOPIC, "d:18:0")
            (far,) = shop.replica.store.get(SCHEDULE_TOPIC, 17, 0, 1).messages
            assert int(first.properties["TIMER_DELIVER_MS"]) == far.store_timestamp + 2 * HOUR_MS
            assert "DELAY" not in first.properties
            shop.clock_ahead_ms = 2 * HOUR_MS - 5_000
            assert await bodies_of(shop, 1) == [b"near"]
            shop.clock_ahead_ms = 2 * HOUR_MS + 5_000
            assert await bodies_of(shop, 3) == [b"near", b"far", b"later"]
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


class Unsteady(StandaloneReplica):
    """Its own puts fail at random: without effect, or with an unknown outcome, which is decided later.

    The first puts have each fate once: how many there are depends on timing.
    """

    random = Random(0)
    counts: ClassVar[dict[str, int]] = {}
    undecided = None

    def begin_own_put(self, messages):
        assert self.undecided is None, "a put was begun while the outcome of another one was unknown"
        fates = ["done", "done", "refused", "lost", "late", "cut", "broken"]
        fate = self.random.choice([each for each in fates if each not in self.counts] or fates)
        self.counts[fate] = self.counts.get(fate, 0) + 1
        if fate == "done":
            return super().begin_own_put(messages)
        if fate == "cut":
            raise RequestFailed(Reason.NOT_LEADER, "it does not lead any more", certainty=Certainty.NOT_APPENDED)
        if fate == "refused":
            return answered(PutOutcome(PutStatus.OS_PAGE_CACHE_BUSY, Certainty.NOT_APPENDED, (), "busy"))
        self.undecided = messages if fate == "late" else []
        if fate == "broken":
            return answered(StoreStopped("the answer is lost"))
        return answered(PutOutcome(PutStatus.FLUSH_DISK_TIMEOUT, Certainty.UNKNOWN, (), "too late"))

    async def decide_own_puts(self):
        if self.random.random() < 0.3:
            raise RequestFailed(Reason.ANSWER_LOST, "not decided", certainty=Certainty.UNKNOWN)
        messages, self.undecided = self.undecided, None
        if messages:
            await super().begin_own_put(messages)
        await super().decide_own_puts()


def answered(outcome):
    """Return a future that is resolved later, after the next messages were chosen."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    resolve = future.set_exception if isinstance(outcome, Exception) else future.set_result
    loop.call_later(0.002, resolve, outcome)
    return future


@pytest.mark.parametrize("seed", range(3))
def test_each_message_is_delivered_once_whatever_becomes_of_the_puts(shop, monkeypatch, seed):
    monkeypatch.setattr(delay_levels, "BATCH_MAX", 5)
    monkeypatch.setattr(leader_task, "_PAUSE_S", 0.001)
    shop.replica_kind = Unsteady

    async def scenario():
        Unsteady.random, Unsteady.counts = Random(seed), {}
        async with shop.open():
            bodies = [b"%d" % number for number in range(120)]
            await shop.put(*bodies, properties=[delayed(1 + number % 3) for number in range(120)])
            shop.clock_ahead_ms = 11_000
            await until(lambda: shop.replica.state.delay_offsets == {1: 40, 2: 40, 3: 40})
            found = []
            while columns := (await shop.get(offset=len(found), max_messages=100)).columns.bodies:
                found += columns
            numbers = list(map(int, found))
            assert sorted(numbers) == list(range(120))
            assert all([n for n in numbers if n % 3 == level] == list(range(level, 120, 3)) for level in range(3))
            assert shop.replica.state.unfit_effects_count == 0
            assert len(Unsteady.counts) == 6, Unsteady.counts

    run(scenario)

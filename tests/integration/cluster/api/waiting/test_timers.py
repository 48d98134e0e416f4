"""Messages at any time, of a standalone broker: in their own topic once, not before their time; and their recall."""

import time
from random import Random

import pytest
from typer.testing import CliRunner

from cluster.broker.core import wall_clock_ms
from cluster.cli.app import app
from cluster.delivery import leader_task, timers
from cluster.protocol.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from cluster.state.commands import DeleteTopic
from cluster.v1 import broker_pb2 as pb
from commitlog.record.properties import decode_properties
from store.model.message import QueueKey
from store.model.topics import TIMER_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.waiting.test_delayed import Unsteady, bodies_of
from tests.support.waiting import until

HOUR_MS = 3_600_000
RECALLED, DELIVERED = pb.RECALL_OUTCOME_RECALLED, pb.RECALL_OUTCOME_DELIVERED


def later(seconds, *more):
    return b"TIMER_DELAY_SEC\x01%d\x02" % seconds + b"".join(more)


def at(time_ms, *more):
    return b"TIMER_DELIVER_MS\x01%d\x02" % time_ms + b"".join(more)


def key(name):
    return b"UNIQ_KEY\x01%s\x02" % name


async def recall(shop, handle, topic=TOPIC):
    found = await shop.stub.RecallMessage(pb.RecallMessageRequest(topic=topic, recall_handle=handle))
    return found.outcome if not found.answer.code else found.answer.reason


def waiting(shop):
    """The number of those that wait, recall records that are not passed over included."""
    return shop.broker._timers.waiting_count


def test_message_appears_in_its_queue_at_its_time_and_not_before(shop):
    async def scenario():
        async with shop.open():
            due_ms = wall_clock_ms() + 700
            put = await shop.put(
                b"now", b"later", queue_id=1, properties=[b"", at(due_ms, b"TAGS\x01t\x02", key(b"k"))]
            )
            assert put.answer.code == 0, put.answer
            assert decode_recall_handle(put.recall_handles[1]) == RecallHandle(TOPIC, "b", due_ms, "k")
            assert put.recall_handles[0] == ""

            assert await bodies_of(shop, 2, queue_id=1) == [b"now", b"later"]

            columns = (await shop.get(queue_id=1)).columns
            stored = shop.replica.store.get(TIMER_TOPIC, 0, 0).messages[0]
            properties = decode_properties(columns.properties[1])
            assert due_ms <= columns.store_timestamps[1] < due_ms + 500
            assert due_ms <= int(properties.pop("TIMER_DEQUEUE_MS")) <= columns.store_timestamps[1]
            assert properties == {
                "TIMER_DELIVER_MS": str(due_ms),
                "TAGS": "t",
                "UNIQ_KEY": "k",
                "TIMER_OUT_MS": str((due_ms - 1) // 1_000 * 1_000),
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "1",
                "TIMER_ENQUEUE_MS": str(stored.store_timestamp),
                "__EFFECT": "t:0",
            }
            assert (stored.topic, stored.queue_id) == (TIMER_TOPIC, 0)
            assert list((await shop.get(queue_id=1, tags="t")).columns.bodies) == [b"later"]
            assert (shop.replica.state.timers.floor, waiting(shop)) == (1, 0)
            assert shop.broker.core.metrics.counts.delayed_delivered == 1

    run(scenario)


def test_messages_come_in_the_order_of_their_times(shop):
    async def scenario():
        async with shop.open():
            now_ms, random = wall_clock_ms(), Random(5)
            seconds = [random.randrange(60, 3_600) for _ in range(200)]
            for begin in range(0, 200, 50):
                part = seconds[begin : begin + 50]
                await shop.put(
                    *(b"%d" % each for each in part), properties=[at(now_ms + each * 1_000) for each in part]
                )
            shop.clock_ahead_ms = 1_800_000
            soon = sorted(each for each in seconds if each <= 1_795)
            await until(lambda: shop.replica.store.max_offset(TOPIC, 0) >= len(soon))
            # A new one that is due before those that wait.
            await shop.put(b"1900", properties=[at(now_ms + 1_900_000)])
            shop.clock_ahead_ms = 3_700_000
            await until(lambda: shop.replica.store.max_offset(TOPIC, 0) == 201)
            found = []
            while columns := (await shop.get(offset=len(found), max_messages=100)).columns.bodies:
                found += map(int, columns)
            assert found == sorted([*seconds, 1900])

    run(scenario)


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        (b"TIMER_DELAY_SEC\x0110\x02TIMER_DELAY_MS\x0120000\x02TIMER_DELIVER_MS\x011\x02", 10),
        (b"TIMER_DELAY_MS\x0120000\x02TIMER_DELIVER_MS\x011\x02", 20),
        (b"TIMER_DELAY_SEC\x01259200\x02", 259_200),
    ],
)
def test_delay_in_seconds_comes_first_then_that_in_milliseconds(shop, properties, seconds):
    async def scenario():
        async with shop.open():
            before = wall_clock_ms()
            assert (await shop.put(b"x", properties=[properties])).answer.code == 0
            await until(lambda: waiting(shop) == 1)
            ((_, _, time_ms),) = shop.replica.store.derived.queues.get(QueueKey(TIMER_TOPIC, 0)).unit_tuples(0, 1)
            assert before + seconds * 1_000 <= time_ms <= wall_clock_ms() + seconds * 1_000

    run(scenario)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (b"TIMER_DELAY_SEC\x01ten\x02", "ILLEGAL_MESSAGE"),
        (b"TIMER_DELIVER_MS\x0199999999999999999999\x02", "ILLEGAL_MESSAGE"),
        (b"TIMER_DELAY_SEC\x01259201\x02", "ILLEGAL_MESSAGE"),
        (b"TIMER_DELAY_SEC\x019\x02TIMER_DEL_UNIQKEY\x01k\x02", "UNSUPPORTED"),
        (b"TIMER_OUT_MS\x019\x02", "UNSUPPORTED"),
    ],
)
def test_time_that_is_no_number_or_too_far_away_is_refused(shop, properties, reason):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"x", properties=[properties])
            assert put.answer.reason == reason, put.answer
            assert shop.replica.store.log.end_offset == 0

    run(scenario)


@pytest.mark.parametrize(
    "properties", [b"TIMER_DELIVER_MS\x011\x02", b"TIMER_DELAY_SEC\x010\x02", b"TIMER_DELAY_MS\x01-5\x02"]
)
def test_time_that_has_passed_is_at_once(shop, properties):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"x", properties=[properties + key(b"k")])
            assert list(put.recall_handles) == []
            assert await bodies_of(shop, 1) == [b"x"]
            assert shop.replica.store.max_offset(TIMER_TOPIC, 0) == 0

    run(scenario)


def test_group_below_the_feature_level_refuses(shop):
    async def scenario():
        async with shop.open():
            shop.replica.state._content.feature_level = 1
            assert (await shop.put(b"x", properties=[later(9)])).answer.reason == "UNSUPPORTED"
            assert (await shop.put(b"x", properties=[b"DELAY\x011\x02"])).answer.code == 0
            assert await recall(shop, encode_recall_handle(RecallHandle(TOPIC, "b", 1, "k"))) == "UNSUPPORTED"

    run(scenario)


def test_no_more_messages_wait_than_the_limit(shop):
    async def scenario():
        async with shop.open(timers_max=2):
            for body in (b"a", b"b"):
                await shop.put(body, properties=[later(9)])
            await until(lambda: waiting(shop) == 2)
            assert (await shop.put(b"c", properties=[later(9)])).answer.reason == "OVERLOADED"
            assert (await shop.put(b"d")).answer.code == 0

    run(scenario)


def test_what_is_delivered_is_not_delivered_again_after_a_crash_and_the_rest_is(shop):
    """The state on disk lacks what became of the messages, and the queue is cut."""

    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", b"c", properties=[later(2), later(7_200), later(1)])
            handle = (await shop.put(b"d", properties=[later(7_200, key(b"d"))])).recall_handles[0]
            shop.clock_ahead_ms = 2_500
            assert await bodies_of(shop, 2) == [b"c", b"a"]
            assert await recall(shop, handle) == RECALLED
            # The state is not saved at the end.
            shop.replica._local._saved_offset = 1 << 60
        shop.clock_ahead_ms = 2 * HOUR_MS + 5_000
        async with shop.open():
            assert await bodies_of(shop, 3) == [b"c", b"a", b"b"]
            assert await recall(shop, handle) == RECALLED
            await until(lambda: waiting(shop) == 0)
            await shop.put(b"end")
            assert (await bodies_of(shop, 4))[3] == b"end"
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_message_of_a_deleted_topic_is_passed_over_and_counted(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic("gone")
            await shop.put(b"lost", topic="gone", properties=[later(1)])
            await shop.put(b"kept", properties=[later(1)])
            await shop.broker.core.change(DeleteTopic("gone"))
            shop.clock_ahead_ms = 1_500
            assert await bodies_of(shop, 1) == [b"kept"]
            await until(lambda: waiting(shop) == 0)
            assert shop.broker.core.metrics.counts.delayed_not_delivered == {"unknown_topic": 1}

    run(scenario)


def test_copy_that_cannot_be_stored_blocks_nothing(shop, monkeypatch):
    async def scenario():
        async with shop.open():
            monkeypatch.setattr("cluster.delivery.diversion._TIMER_SPACE", 0)
            large = b"KEYS\x01%s\x02" % (b"k" * 32_640)
            for body, more in ((b"a", b""), (b"large", large), (b"b", b"")):
                answer = (await shop.put(body, properties=[later(1, more)])).answer
                assert answer.code == 0, answer
            shop.clock_ahead_ms = 1_500
            assert sorted(await bodies_of(shop, 2)) == [b"a", b"b"]
            await until(lambda: waiting(shop) == 0)
            assert shop.broker.core.metrics.counts.delayed_not_delivered == {"illegal": 1}

    run(scenario)


def test_unit_of_rocketmq_without_a_time_is_not_early(shop, monkeypatch):
    """RocketMQ has the hash of the tags in the unit, which looks like a time long ago."""

    async def scenario():
        async with shop.open():
            monkeypatch.setattr("commitlog.record.columns.timer_time_ms", lambda _: 7)
            monkeypatch.setattr("commitlog.record.tags_code.timer_time_ms", lambda _: 7)
            await shop.put(b"x", properties=[later(3_600)])
            await until(lambda: waiting(shop) == 1)
            await shop.put(b"now")
            assert await bodies_of(shop, 1) == [b"now"]
            shop.clock_ahead_ms = 3_601_000
            assert await bodies_of(shop, 2) == [b"now", b"x"]

    run(scenario)


# ---------------------------------------------------------------------------------------- failures, bounds, retention


@pytest.mark.parametrize("seed", range(3))
def test_each_message_is_delivered_or_recalled_once_whatever_becomes_of_the_puts(shop, monkeypatch, seed):
    monkeypatch.setattr(timers, "BATCH_MAX", 5)
    monkeypatch.setattr(timers, "ROWS_MAX", 16)
    monkeypatch.setattr(leader_task, "_PAUSE_S", 0.001)
    shop.replica_kind = Unsteady
    random = Random(seed)

    async def scenario():
        Unsteady.random, Unsteady.counts, Unsteady.undecided = Random(seed), {}, None
        async with shop.open():
            keys = [b"%d" % number for number in range(150)]
            put = await shop.put(*keys, properties=[later(random.randrange(1, 9), key(each)) for each in keys])
            shop.clock_ahead_ms = 4_000
            recalled = set()
            for number in random.sample(range(150), 40):
                outcome = await recall(shop, put.recall_handles[number])
                while isinstance(outcome, str):
                    outcome = await recall(shop, put.recall_handles[number])
                if outcome == RECALLED:
                    recalled.add(number)
            shop.clock_ahead_ms = 11_000
            await until(lambda: waiting(shop) == 0)
            found = []
            while columns := (await shop.get(offset=len(found), max_messages=100)).columns.bodies:
                found += map(int, columns)
            assert sorted(found) == sorted(set(range(150)) - recalled), seed
            assert recalled
            assert shop.replica.state.unfit_effects_count == 0
            assert len(Unsteady.counts) == 6, Unsteady.counts

    run(scenario)


def test_messages_are_put_again_before_the_log_deletes_their_records(shop):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"far", b"near", properties=[later(250_000, key(b"far")), later(100, key(b"near"))])
            await until(lambda: waiting(shop) == 2)
            # Three quarters of three days.
            shop.clock_ahead_ms = 194_000_000
            assert await bodies_of(shop, 1) == [b"near"]
            assert shop.replica.store.max_offset(TIMER_TOPIC, 0) == 2
            shop.clock_ahead_ms = 195_000_000
            await until(lambda: shop.replica.store.max_offset(TIMER_TOPIC, 0) == 3)
            again = shop.replica.store.get(TIMER_TOPIC, 0, 2).messages[0]
            assert (again.properties["TIMER_ROLL_TIMES"], again.properties["__EFFECT"]) == ("1", "r:0")
            await until(lambda: waiting(shop) == 1)
            assert shop.broker.gauges().timers_put_again == 1
            shop.clock_ahead_ms = 250_001_000
            assert await bodies_of(shop, 2) == [b"near", b"far"]
            assert await recall(shop, put.recall_handles[0]) == DELIVERED

    run(scenario)


def test_queue_with_the_times_is_rebuilt_from_the_log(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", properties=[later(7_200), later(60)])
            await until(lambda: waiting(shop) == 2)
            before = shop.replica.store.derived.queues.get(QueueKey(TIMER_TOPIC, 0)).unit_bytes(0, 2)
        for file in (shop.path / "consumequeue" / TIMER_TOPIC / "0").iterdir():
            file.write_bytes(bytes(file.stat().st_size))
        result = CliRunner().invoke(app, ["rebuild", str(shop.path)])
        assert result.exit_code == 0, result.output
        shop.clock_ahead_ms = 61_000
        async with shop.open():
            assert shop.replica.store.derived.queues.get(QueueKey(TIMER_TOPIC, 0)).unit_bytes(0, 2) == before
            assert await bodies_of(shop, 1) == [b"b"]
            assert waiting(shop) == 1

    run(scenario)


def test_messages_that_a_full_disk_has_deleted_are_counted(shop):
    async def scenario():
        async with shop.open():
            await shop.put(b"a", b"b", b"c", properties=[later(60), later(50), later(70)])
            await until(lambda: waiting(shop) == 3)
            delivery = shop.broker._timers
            shop.replica.store.derived.queues.get(QueueKey(TIMER_TOPIC, 0)).min_offset = 2
            # As on a new leader.
            delivery._window = None
            delivery._task.wake()
            await until(lambda: waiting(shop) == 1)
            await until(lambda: shop.broker.core.metrics.counts.delayed_not_delivered == {"unreadable": 2})
            shop.clock_ahead_ms = 71_000
            assert await bodies_of(shop, 1) == [b"c"]

    run(scenario)


def test_levels_answer_shows_how_many_wait_for_a_time_and_the_next(shop):
    async def scenario():
        async with shop.open() as stub:
            due_ms = wall_clock_ms() + 60_000
            await shop.put(b"a", b"b", properties=[at(due_ms + 5), at(due_ms)])
            await until(lambda: shop.broker._timers.next_due_ms() == due_ms)
            found = await stub.DelayLevels(pb.DelayLevelsRequest())
            assert (found.timers_waiting, found.timers_next_due_ms) == (2, due_ms)

    run(scenario)


@pytest.mark.slow
def test_crowd_that_is_due_in_one_second_is_delivered_with_bounded_memory(shop, monkeypatch):
    monkeypatch.setattr(timers, "ROWS_MAX", 4_096)

    async def scenario():
        async with shop.open():
            due_ms = wall_clock_ms() + 200_000
            for begin in range(0, 100_000, 1_000):
                numbers = range(begin, begin + 1_000)
                await shop.put(*(b"%d" % n for n in numbers), properties=[at(due_ms + n % 1_000) for n in numbers])
            await until(lambda: waiting(shop) == 100_000)
            await until(lambda: shop.broker._timers._window.end == 100_000)
            assert len(shop.broker._timers._window) <= 2 * 4_096
            begin_s = time.monotonic()
            shop.clock_ahead_ms = 202_000
            await until(lambda: shop.replica.store.max_offset(TOPIC, 0) == 100_000, limit_s=120)
            print(f"{100_000 / (time.monotonic() - begin_s):,.0f} copies/s")
            found = set()
            offset = 0
            while columns := (await shop.get(offset=offset, max_messages=10_000)).columns.bodies:
                found.update(columns)
                offset += len(columns)
            assert (len(found), offset) == (100_000, 100_000)

    run(scenario)

"""Recall of messages for a time, at a standalone broker: it takes effect, or the answer says why not."""

import asyncio
from typing import ClassVar

from cluster.delivery import timers
from cluster.protocol.recall_handle import decode_recall_handle, encode_recall_handle
from cluster.replica.standalone import StandaloneReplica
from cluster.v1 import broker_pb2 as pb
from store.model.topics import TIMER_TOPIC
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.waiting.test_delayed import bodies_of
from tests.integration.cluster.api.waiting.test_timers import DELIVERED, RECALLED, key, later, recall, waiting
from tests.support.waiting import until

UNKNOWN = pb.RECALL_OUTCOME_UNKNOWN


def test_recalled_message_is_not_delivered_and_recalls_are_idempotent(shop):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"a", b"b", properties=[later(60, key(b"a")), later(60, key(b"b"))])
            handle = put.recall_handles[0]
            assert await recall(shop, handle) == RECALLED
            assert await recall(shop, handle) == RECALLED
            record = shop.replica.store.get(TIMER_TOPIC, 0, 2).messages[0]
            assert record.body == b"0"
            assert dict(record.properties) == {
                "TAGS": "_RECALL_TAG_",
                "UNIQ_KEY": "a",
                "TIMER_DEL_UNIQKEY": f"{TOPIC}+a",
                "TIMER_DELIVER_MS": str(decode_recall_handle(handle).deliver_ms),
                "TIMER_OUT_MS": str((decode_recall_handle(handle).deliver_ms - 1) // 1_000 * 1_000),
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "0",
                "__EFFECT": "c:0",
            }
            shop.clock_ahead_ms = 61_000
            assert await bodies_of(shop, 1) == [b"b"]
            await until(lambda: waiting(shop) == 0)
            assert shop.broker.core.metrics.counts.delayed_not_delivered == {}
            assert shop.replica.store.max_offset(TIMER_TOPIC, 0) == 3
            assert await recall(shop, handle) == RECALLED
            assert await recall(shop, put.recall_handles[1]) == DELIVERED

    run(scenario)


def test_wrong_handles_are_refused_or_unknown(shop):
    async def scenario():
        async with shop.open():
            await shop.set_topic("other")
            put = await shop.put(b"a", properties=[later(60, key(b"a"))])
            handle = put.recall_handles[0]
            assert await recall(shop, handle, topic="other") == "ILLEGAL_REQUEST"
            content = decode_recall_handle(handle)
            assert await recall(shop, encode_recall_handle(content._replace(broker="c"))) == "ILLEGAL_REQUEST"
            for wrong in ("", "abc", "djE=", "é", handle[4:]):
                assert await recall(shop, wrong) == "ILLEGAL_REQUEST"
            assert await recall(shop, encode_recall_handle(content._replace(unique_key="b"))) == UNKNOWN
            stolen = encode_recall_handle(content._replace(topic="other"))
            assert await recall(shop, stolen, topic="other") == UNKNOWN
            await until(lambda: waiting(shop) == 1)
            assert await recall(shop, handle) == RECALLED

    run(scenario)


def test_concurrent_recalls_of_many_messages_take_effect_once_each(shop):
    async def scenario():
        async with shop.open():
            keys = [b"k%d" % number for number in range(40)]
            put = await shop.put(*keys, properties=[later(60, key(each)) for each in keys])
            twice = [*put.recall_handles[:30], *put.recall_handles[:30]]
            found = await asyncio.gather(*(recall(shop, handle) for handle in twice))
            assert found == [RECALLED] * 60
            shop.clock_ahead_ms = 61_000
            assert sorted(await bodies_of(shop, 10)) == sorted(keys[30:])
            await until(lambda: waiting(shop) == 0)
            assert shop.replica.store.max_offset(TIMER_TOPIC, 0) == 70
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_message_that_is_recalled_while_others_are_put_is_not_delivered(shop, monkeypatch):
    """It is chosen already when the recall arrives, but not put."""
    monkeypatch.setattr(timers, "BATCH_MAX", 1)

    class Slow(StandaloneReplica):
        is_held: ClassVar[asyncio.Event]

        def begin_own_put(self, messages):
            return asyncio.ensure_future(self.held(messages))

        async def held(self, messages):
            await self.is_held.wait()
            return await super().begin_own_put(messages)

    shop.replica_kind = Slow

    async def scenario():
        Slow.is_held = asyncio.Event()
        async with shop.open():
            put = await shop.put(*(b"a", b"b", b"c"), properties=[later(1, key(each)) for each in (b"a", b"b", b"c")])
            shop.clock_ahead_ms = 1_500
            delivery = shop.broker._timers
            await until(lambda: delivery._ahead is not None)
            ((row, _),) = delivery._ahead.copies
            recalling = asyncio.create_task(recall(shop, put.recall_handles[row.unit]))
            await until(lambda: delivery._recalls)
            Slow.is_held.set()
            assert await recalling == RECALLED
            await until(lambda: waiting(shop) == 0)
            left = {b"a", b"b", b"c"} - {[b"a", b"b", b"c"][row.unit]}
            assert set(await bodies_of(shop, 2)) == left
            assert shop.replica.state.unfit_effects_count == 0

    run(scenario)


def test_message_that_was_put_again_is_recalled(shop):
    async def scenario():
        async with shop.open():
            put = await shop.put(b"far", properties=[later(250_000, key(b"far"))])
            shop.clock_ahead_ms = 195_000_000
            await until(lambda: shop.replica.store.max_offset(TIMER_TOPIC, 0) == 2)
            assert await recall(shop, put.recall_handles[0]) == RECALLED
            shop.clock_ahead_ms = 251_000_000
            await shop.put(b"end")
            assert await bodies_of(shop, 1) == [b"end"]
            await until(lambda: waiting(shop) == 0)

    run(scenario)

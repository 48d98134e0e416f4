"""Consumers that return messages: both interfaces, with a broker whose clock is set by the test."""

import asyncio

import pytest

from cluster import Consumer, RequestFailed
from cluster.protocol.topic_config import GroupConfig
from cluster.state.commands import DeleteGroup, SetGroup
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.waiting.test_delayed import bodies_of
from tests.support.waiting import until

GROUP = "billing"
RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


def consumer(shop, **options):
    return Consumer(str(shop.address), group=GROUP, topics=TOPIC, **{"start": "first", "has_retries": True} | options)


async def next_of(polling, count=1):
    """Poll until that many messages have come."""
    found = []
    while len(found) < count:
        found += await polling.poll(timeout_s=0.2)
    return found


async def committed(shop, topic, offset, queue_id=0):
    def is_there():
        kept = shop.replica.state.offset(GROUP, topic, queue_id)
        return kept is not None and kept.offset == offset

    await until(is_there)


def test_returned_message_comes_again_with_its_origin_and_attempts(shop):
    async def scenario():
        async with shop.open(), consumer(shop) as reading:
            await shop.put(b"x", properties=[b"TAGS\x01t\x02"])
            (first,) = await next_of(reading)
            assert (first.topic, first.origin_topic, first.attempts) == (TOPIC, TOPIC, 1)
            await reading.nack(first)
            await committed(shop, TOPIC, 1)
            shop.clock_ahead_ms = 11_000
            (second,) = await next_of(reading)
            assert (second.topic, second.origin_topic, second.attempts, second.tags) == (RETRY, TOPIC, 2, "t")
            await reading.nack(second, delay_level=-1)
            await committed(shop, RETRY, 1)
            assert await bodies_of(shop, 1, topic=DEAD) == [b"x"]

    run(scenario)


def test_handler_that_fails_has_its_messages_again_until_the_maximum(shop):
    async def scenario():
        seen = []

        async def handle(message):
            seen.append((message.body, message.attempts))
            if message.body == b"bad":
                raise ValueError("cannot be processed")

        async with shop.open():
            shop.clock_ahead_ms = 3 * 3_600_000
            async with consumer(shop, max_attempts=3, is_auto_acknowledged=False) as reading:
                running = asyncio.create_task(reading.run(handle))
                await shop.put(b"good", b"bad", b"good")
                assert await bodies_of(shop, 1, topic=DEAD) == [b"bad"]
                await committed(shop, TOPIC, 3)
                await committed(shop, RETRY, 2)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            assert sorted(seen) == [(b"bad", 1), (b"bad", 2), (b"bad", 3), (b"good", 1), (b"good", 1)]

    run(scenario)


def test_blocking_handler_returns_messages_too(shop):
    def consume():
        with consumer(shop, max_attempts=2) as reading:
            count = 0

            def handle(message):
                nonlocal count
                count += 1
                if message.attempts == 2:
                    raise KeyboardInterrupt
                raise ValueError("not this time")

            with pytest.raises(KeyboardInterrupt):
                reading.run(handle)
            return count

    async def scenario():
        async with shop.open():
            shop.clock_ahead_ms = 3 * 3_600_000
            await shop.put(b"x")
            assert await asyncio.to_thread(consume) == 2
            await committed(shop, TOPIC, 1)
            # The interrupted one was not processed.
            assert shop.replica.state.offset(GROUP, RETRY, 0) is None

    run(scenario)


def test_message_that_cannot_be_returned_is_not_acknowledged(shop):
    async def scenario():
        async with shop.open():
            await shop.broker.core.change(SetGroup(GroupConfig(GROUP)))
            await shop.put(b"x")
            async with consumer(shop, has_retries=False, is_auto_acknowledged=False) as reading:
                (message,) = await next_of(reading)
                await shop.broker.core.change(DeleteGroup(GROUP))
                with pytest.raises(RequestFailed, match="no group"):
                    await reading.nack(message)
                assert message.reader.progress.position == 0
            async with consumer(shop, mode="broadcast", has_retries=False) as reading:
                (message,) = await next_of(reading)
                with pytest.raises(RequestFailed, match="broadcast"):
                    await reading.nack(message)

    run(scenario)


def test_retry_topic_that_does_not_exist_is_no_failure_and_its_first_message_is_read(shop):
    """Also by a consumer that begins with the last message, and did not return it itself."""

    async def scenario():
        async with shop.open():
            await shop.broker.core.change(SetGroup(GroupConfig(GROUP)))
            async with consumer(shop, start="last", no_route_limit_s=0.05) as reading:
                for _ in range(5):
                    assert await reading.poll(timeout_s=0.1) == []
                await shop.set_topic(RETRY, queues=1)
                await shop.put(b"again", topic=RETRY)
                (message,) = await next_of(reading)
                assert (message.body, message.origin_topic) == (b"again", RETRY)

    run(scenario)


@pytest.mark.parametrize("wrong", [{"mode": "broadcast"}, {"max_attempts": -1}])
def test_options_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError, match=r"has_retries|max_attempts"):
        Consumer("127.0.0.1:1", group=GROUP, topics=TOPIC, **{"has_retries": True} | wrong)

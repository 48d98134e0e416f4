"""A stream of many queues: queues with new messages are read, and all others only after the time limit."""

import asyncio

import pytest

from cluster.broker.queue_watch import QueueWatch
from store.errors import StoreStopped
from tests.support.message_stores import SMALL, numbered, open_small
from tests.support.waiting import PATIENCE_S

TOPIC, QUEUES = "TopicTest", range(4)


@pytest.fixture
def opened(tmp_path):
    opened = open_small(tmp_path / "store", SMALL)
    yield opened
    opened.lifecycle.abandon()


def watched(opened, scenario):
    async def run():
        watch = QueueWatch(opened.messages, TOPIC, "*", QUEUES)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(watch, opened.messages)
        finally:
            watch.end()
        assert opened.messages.waiters_count == 0

    asyncio.run(run())


def put(store, *queue_ids):
    for queue_id in queue_ids:
        store.put(numbered(queue_id))
    store.dispatch()


def wait_for_all(watch, store):
    for queue_id in watch.take_ready():
        watch.wait_for(queue_id, store.max_offset(TOPIC, queue_id))


def test_all_queues_are_read_first_and_then_those_with_new_messages(opened):
    async def scenario(watch, store):
        assert watch.take_ready() == [0, 1, 2, 3]
        for queue_id in QUEUES:
            watch.put_ready(queue_id)
        wait_for_all(watch, store)
        assert (watch.take_ready(), store.waiters_count) == ([], 4)
        waiting = asyncio.create_task(watch.wait(20))
        await asyncio.sleep(0)
        put(store, 1, 3)
        await waiting
        assert sorted(watch.take_ready()) == [1, 3]
        put(store, 2)
        await watch.wait(20)
        assert watch.take_ready() == [2]

    watched(opened, scenario)


def test_a_queue_that_has_a_message_is_ready_at_once(opened):
    async def scenario(watch, store):
        put(store, 2)
        for queue_id in watch.take_ready():
            watch.wait_for(queue_id, 0)
        await watch.wait(20)
        assert watch.take_ready() == [2]

    watched(opened, scenario)


def test_after_the_time_limit_all_queues_are_checked_again(opened):
    async def scenario(watch, store):
        wait_for_all(watch, store)
        await watch.wait(0.001)
        assert watch.take_ready() == [0, 1, 2, 3]
        assert store.waiters_count == 0

    watched(opened, scenario)


def test_a_store_that_stops_ends_the_waiting(opened):
    async def scenario(watch, store):
        wait_for_all(watch, store)
        waiting = asyncio.create_task(watch.wait(20))
        await asyncio.sleep(0)
        store.stop("the disk is gone")
        with pytest.raises(StoreStopped, match="the disk is gone"):
            await waiting

    watched(opened, scenario)

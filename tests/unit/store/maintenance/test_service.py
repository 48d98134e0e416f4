"""The store in an asyncio loop: group commit, waiting readers, failing disks, a clean stop."""

import asyncio
import re
import shutil
from collections import Counter
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

import store.maintenance.background
from store.errors import Certainty, StorageFailed, StoreStopped
from store.maintenance import paced_flush
from store.maintenance.service import StoreService
from store.model.commit_log import PutStatus
from store.queues.consume_queue import ConsumeQueue
from tests.support.faulty_disk import FaultyDisk
from tests.support.message_stores import (
    SMALL,
    Clock,
    derived_files,
    numbered,
    open_small,
    queued,
    rebuilt_files,
    with_log,
    with_store,
)
from tests.support.waiting import PATIENCE_S, SCENARIO_LIMIT_S, until

# A put times out only in tests of timeouts, however slow the disk is.
SYNC = with_store(with_log(SMALL, is_flush_sync=True), sync_flush_timeout_ms=int(1000 * PATIENCE_S))


@asynccontextmanager
async def running(root, config=SYNC, files=None):
    opened = open_small(root, config, clock=Clock(), files=files)
    service = StoreService(
        opened.messages,
        opened.log,
        opened.lifecycle,
        config.store,
        is_flush_sync=config.log.is_flush_sync,
    )
    service.start()
    try:
        yield service
    finally:
        if not service.failure.done():
            await service.stop()


@pytest.mark.parametrize("config", [SYNC, SMALL], ids=["sync", "async"])
def test_puts_are_read_by_waiting_readers_and_survive_a_restart(tmp_path, config):
    async def run():
        async with running(tmp_path / "store", config) as service:
            waiting = asyncio.create_task(service.wait("TopicTest", 1, 0, PATIENCE_S))
            outcomes = await asyncio.gather(*(service.put(numbered(number)) for number in range(200)))
            assert {outcome.certainty for outcome in outcomes} == {Certainty.APPENDED}
            assert max(place.queue_offset for outcome in outcomes for place in outcome.places) == 49
            assert await waiting
            assert await service.wait("TopicTest", 3, 49, PATIENCE_S)
            assert service.store.get("TopicTest", 1, 0).status == "FOUND"
            if config is SYNC:
                assert service.store.log.flushed_offset == service.store.log.written_offset

    asyncio.run(run())

    assert not (tmp_path / "store/abort").exists()
    assert derived_files(tmp_path / "store") == rebuilt_files(tmp_path / "store", tmp_path / "again", config)
    store = open_small(tmp_path / "store", config)
    assert sum(map(len, queued(store).values())) == 200
    store.close()


def test_wait_ends_with_its_time(tmp_path):
    async def run():
        async with running(tmp_path) as service:
            assert not await service.wait("TopicTest", 0, 0, 0.01)
            assert service.store.waiters_count == 0

    asyncio.run(run())


def timestamps(root):
    content = (root / "checkpoint").read_bytes()
    return [int.from_bytes(content[at : at + 8], "big") for at in (0, 8, 16)]


def test_checkpoint_and_queues_are_flushed_while_it_runs(tmp_path):
    config = with_store(
        SYNC, flush_interval_consume_queue_ms=1, flush_consume_queue_thorough_interval_ms=1, checkpoint_interval_ms=1
    )

    async def run():
        async with running(tmp_path, config) as service:
            await service.put_many([numbered(number) for number in range(10)])
            saved = asyncio.Event()
            sync_checkpoint = service.background._lifecycle.sync_checkpoint

            def syncing():
                sync_checkpoint()
                if all(timestamps(tmp_path)):
                    loop.call_soon_threadsafe(saved.set)

            loop, service.background._lifecycle.sync_checkpoint = asyncio.get_running_loop(), syncing
            async with asyncio.timeout(PATIENCE_S):
                await saved.wait()
            assert service.store.derived.durable_offset == service.store.log.end_offset

    asyncio.run(run())


def test_start_after_a_kill_redispatches_a_bounded_amount_however_much_was_put(tmp_path):
    bound = 20_000
    # Without the bound nothing would be flushed for a minute: no queue gets two pages.
    config = with_store(SYNC, redispatch_max_bytes=bound, flush_interval_consume_queue_ms=10, dispatch_size_bytes=1000)

    async def run():
        clock = Clock()
        opened = open_small(tmp_path / "store", config, clock=clock)
        arguments = opened.messages, opened.log, opened.lifecycle, config.store
        service = StoreService(*arguments, is_flush_sync=True)
        service.start()
        derived = opened.messages.derived
        async with asyncio.timeout(SCENARIO_LIMIT_S):
            for number in range(300):
                clock.pass_s(4)
                await service.put(numbered(number, tag="t", body_size=300))
                await service.dispatched_to(opened.log.end_offset)
                await until(lambda: derived.dispatcher.offset - derived.durable_offset < 2 * bound)
            check = lambda: opened.lifecycle.derived._root._checkpoint.checkpoint.index_msg_timestamp  # noqa: E731
            await until(lambda: opened.log.offset_at_timestamp(check()) >= derived.durable_offset - 1000)
            count = 300
            if derived.durable_offset == opened.log.end_offset:
                # The last flush included the last message: one more, so that something is dispatched again.
                await service.put(numbered(count, tag="t", body_size=300))
                count += 1
        end = opened.log.end_offset
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
        await service.stop()
        return end, count

    end, count = asyncio.run(run())
    assert end > 5 * bound
    store = open_small(tmp_path / "killed", config)
    (note,) = [note for note in store.messages.derived.notes if "dispatched" in note]
    dispatched, begin = (int(word) for word in re.findall(r"\d+", note))
    assert dispatched + begin == end
    assert dispatched < 2 * bound + 5000
    assert sum(map(len, queued(store).values())) == count
    store.close()
    assert derived_files(tmp_path / "killed") == rebuilt_files(tmp_path / "killed", tmp_path / "again", config)


def test_failed_sync_ends_the_store_and_leaves_the_put_unknown(tmp_path):
    disk = FaultyDisk()

    async def run():
        async with running(tmp_path, files=disk) as service:
            assert (await service.put(numbered(0))).certainty is Certainty.APPENDED
            waiting = asyncio.create_task(service.wait("TopicTest", 2, 0, PATIENCE_S))
            await asyncio.sleep(0)
            disk.is_broken = True
            outcome = await service.put(numbered(1))
            assert (outcome.status, outcome.certainty) == (PutStatus.UNKNOWN_ERROR, Certainty.UNKNOWN)
            assert isinstance(await service.failure, StorageFailed)
            with pytest.raises(StoreStopped):
                await waiting
            assert (await service.put(numbered(2))).status is PutStatus.SERVICE_NOT_AVAILABLE
            with pytest.raises(StorageFailed, match="sync failed"):
                await service.stop()

    asyncio.run(run())

    assert (tmp_path / "abort").exists(), "it was not closed cleanly"


def test_put_that_waits_for_a_slow_disk_is_answered_in_time(tmp_path):
    disk = FaultyDisk()
    config = with_store(SYNC, sync_flush_timeout_ms=20, pending_puts_max=2)

    async def run():
        async with running(tmp_path, config, disk) as service:
            disk.is_going.clear()
            outcomes = await asyncio.gather(*(service.put(numbered(number)) for number in range(3)))
            assert [outcome.status for outcome in outcomes] == [
                PutStatus.FLUSH_DISK_TIMEOUT,
                PutStatus.FLUSH_DISK_TIMEOUT,
                PutStatus.OS_PAGE_CACHE_BUSY,
            ]
            assert [outcome.certainty for outcome in outcomes] == [
                Certainty.UNKNOWN,
                Certainty.UNKNOWN,
                Certainty.NOT_APPENDED,
            ]
            disk.is_going.set()

    asyncio.run(run())


def test_group_commit_needs_few_syncs(tmp_path):
    async def run():
        async with running(tmp_path) as service:
            begun = []
            begin_flush = service._log.begin_flush
            service._log.begin_flush = lambda: begun.append(1) or begin_flush()
            await asyncio.gather(*(service.put(numbered(number)) for number in range(100)))
            assert len(begun) <= 10

    asyncio.run(run())


QUEUES = 40
# Written in seven steps.
MANY_QUEUES = 200
# Files of a log that holds messages of all queues in each file.
EXPIRING = with_store(with_log(SYNC, mapped_file_size=16384), dispatch_size_bytes=1 << 20)


@asynccontextmanager
async def expiring(root, monkeypatch, files=None):
    """Run a service whose log has just lost its first files; yield it and the actions of the loop, in order."""
    steps_seen = []
    expire = ConsumeQueue.expire

    def noted(queue, log_begin):
        steps_seen.append(log_begin)
        expire(queue, log_begin)

    monkeypatch.setattr(ConsumeQueue, "expire", noted)
    monkeypatch.setattr(store.maintenance.background, "STEP_S", 0)

    async def watch():
        while True:
            steps_seen.append("turn")
            await asyncio.sleep(0)

    async with running(root, EXPIRING, files) as service:
        for first in range(0, 400, 40):
            await asyncio.gather(*(service.put(numbered(first + at, queues=QUEUES)) for at in range(40)))
        await service.dispatched_to(service.store.log.end_offset)
        service.store.log.delete_before(3 * 16384)
        watching = asyncio.create_task(watch())
        try:
            yield service, steps_seen
        finally:
            watching.cancel()


def ends_of(steps_seen):
    """Return the number of queues truncated to each start of the log."""
    return Counter(step for step in steps_seen if step != "turn")


def while_expiring(tmp_path, monkeypatch, check):
    """Run `check(service, steps_seen, begin)` when the first queues are truncated to the new start of the log."""

    async def run():
        async with expiring(tmp_path, monkeypatch) as (service, steps_seen):
            begin = service.store.log.begin_offset
            await until(lambda: ends_of(steps_seen)[begin], "the first queues follow the log")
            await check(service, steps_seen, begin)

    asyncio.run(run())


def test_queues_follow_the_start_of_the_log_one_iteration_after_the_other(tmp_path, monkeypatch):
    """If each queue uses up the time of a step, the loop does other work after each of them."""

    async def check(service, steps_seen, begin):
        await until(lambda: ends_of(steps_seen)[begin] == QUEUES, "all queues follow the log")
        steps = [step != "turn" for step in steps_seen]
        assert not any(one and other for one, other in pairwise(steps))
        for queue_id in range(QUEUES):
            queue_offset = service.store.min_offset("TopicTest", queue_id)
            assert queue_offset > 0
            found = service.store.get("TopicTest", queue_id, queue_offset)
            assert found.messages[0].physical_offset >= begin

    while_expiring(tmp_path, monkeypatch, check)


def test_queues_follow_a_log_that_loses_further_files_meanwhile(tmp_path, monkeypatch):
    async def check(service, steps_seen, begin):
        service.store.log.delete_before(4 * 16384)
        second = service.store.log.begin_offset
        await until(lambda: ends_of(steps_seen)[second] >= QUEUES, "all queues follow the log to its second begin")
        assert second > begin
        assert all(service.store.min_offset("TopicTest", queue_id) > 0 for queue_id in range(QUEUES))

    while_expiring(tmp_path, monkeypatch, check)


def test_service_that_is_stopped_between_two_turns_leaves_the_rest_to_the_next_start(tmp_path, monkeypatch):
    async def check(service, steps_seen, begin):
        await service.stop()
        count = ends_of(steps_seen)[begin]
        await asyncio.sleep(0)
        assert ends_of(steps_seen)[begin] == count
        service.failure.cancel()  # it is stopped already

    while_expiring(tmp_path, monkeypatch, check)

    opened = open_small(tmp_path, EXPIRING)
    assert all(opened.messages.min_offset("TopicTest", queue_id) > 0 for queue_id in range(QUEUES))
    opened.close()


def while_flush_pauses(tmp_path, monkeypatch, check):
    """Run `check(service)` while a flush of many queues pauses after some of them."""
    monkeypatch.setattr(paced_flush, "STEP_INTERVAL_S", 1e6)
    config = with_store(SYNC, flush_interval_consume_queue_ms=50, flush_consume_queue_thorough_interval_ms=1)

    def is_pausing(service):
        flush = service.background._flushing
        return flush is not None and flush._pause is not None and 0 < flush._ticket.queues.left_count < MANY_QUEUES

    async def run():
        async with running(tmp_path / "store", config) as service:
            await service.put_many([numbered(number, queues=MANY_QUEUES) for number in range(MANY_QUEUES)])
            await until(lambda: is_pausing(service), "a flush makes a pause")
            await check(service)

    asyncio.run(run())


def test_service_that_is_stopped_while_a_flush_pauses_ends_it_first(tmp_path, monkeypatch):
    async def check(service):
        flush = service.background._flushing
        await service.stop()
        assert flush._ticket.queues.is_synced
        service.failure.cancel()  # it is stopped already

    while_flush_pauses(tmp_path, monkeypatch, check)
    store_root = tmp_path / "store"
    assert derived_files(store_root) == rebuilt_files(store_root, tmp_path / "again", SYNC)


def test_service_that_fails_while_a_flush_pauses_writes_no_more_queues(tmp_path, monkeypatch):
    async def check(service):
        ticket = service.background._flushing._ticket
        left_count = ticket.queues.left_count
        service.background.fail(StorageFailed("log", "sync", OSError(5, "I/O error")))
        with pytest.raises(StorageFailed, match="log"):
            await service.stop()
        assert ticket.queues.left_count == left_count

    while_flush_pauses(tmp_path, monkeypatch, check)

"""Dispatch is batched: many puts share a step, waiting readers are not delayed, and everything is dispatched."""

import asyncio

import pytest

from cluster.replica.port import ReadMode
from cluster.replica.standalone import StandaloneConfig, StandaloneReplica
from commitlog.plain.store import PlainStoreConfig
from store.errors import Certainty, StoreStopped
from store.fs.linux.files import OsFiles
from store.maintenance import background
from store.maintenance.debouncer import Debouncer
from store.model.config import MessageStoreConfig
from tests.support.message_stores import numbered
from tests.support.waiting import PATIENCE_S, until

NEVER_S = 3600.0
# However slow the disk is, a put does not time out.
PATIENT = MessageStoreConfig(sync_flush_timeout_ms=int(1000 * PATIENCE_S))


def in_loop(scenario):
    async def run():
        async with asyncio.timeout(PATIENCE_S):
            return await scenario()

    return asyncio.run(run())


async def loop_turns():
    """Run the due tasks of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_all_requests_for_a_later_turn_share_it():
    async def scenario():
        runs = []
        debouncer = Debouncer(lambda: runs.append(1), 0.001)
        for _ in range(100):
            debouncer.later()
        await until(lambda: runs)
        assert runs == [1]
        debouncer.later()
        await until(lambda: len(runs) == 2)

    in_loop(scenario)


def test_urgent_request_also_serves_waiting_ones():
    async def scenario():
        runs = []
        debouncer = Debouncer(lambda: runs.append(1), NEVER_S)
        debouncer.later()
        debouncer.at_once()
        debouncer.at_once()
        debouncer.later()
        assert runs == []
        await asyncio.sleep(0)
        assert runs == [1]
        await asyncio.sleep(0.005)
        assert runs == [1]

    in_loop(scenario)


def test_request_gets_a_turn_at_once_when_there_was_none_for_a_while():
    async def scenario():
        runs = []
        debouncer = Debouncer(lambda: runs.append(1), NEVER_S, gap_s=NEVER_S)
        debouncer.later()
        debouncer.soon()
        debouncer.soon()
        await asyncio.sleep(0)
        assert runs == [1]

    in_loop(scenario)


def test_all_requests_soon_after_a_turn_share_the_next_one_after_the_gap():
    async def scenario():
        loop, gap_s, runs = asyncio.get_running_loop(), 8.0, []
        # The test advances the clock: otherwise a gap may end before the next request, wherever the process stalls.
        now_s = float(int(loop.time()))
        loop.time = lambda: now_s
        debouncer = Debouncer(lambda: runs.append(now_s), NEVER_S, gap_s)
        debouncer.soon()
        await loop_turns()
        assert runs == [now_s]
        for _ in range(100):
            debouncer.soon()
        now_s += gap_s - 0.5
        await loop_turns()
        assert len(runs) == 1
        now_s += 0.5
        await loop_turns()
        assert runs == [now_s - gap_s, now_s]

    in_loop(scenario)


def test_urgent_request_does_not_wait_for_the_gap():
    async def scenario():
        runs = []
        debouncer = Debouncer(lambda: runs.append(1), NEVER_S, gap_s=NEVER_S)
        debouncer.soon()
        await until(lambda: runs)
        debouncer.soon()
        debouncer.at_once()
        debouncer.soon()
        await asyncio.sleep(0)
        assert len(runs) == 2

    in_loop(scenario)


def test_work_may_request_the_next_turn_and_a_cancelled_one_never_runs():
    async def scenario():
        runs = []

        def work():
            runs.append(1)
            if len(runs) < 5:
                debouncer.at_once()

        debouncer = Debouncer(work, NEVER_S)
        debouncer.at_once()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(runs) == 5
        debouncer.at_once()
        debouncer.cancel()
        await asyncio.sleep(0)
        assert len(runs) == 5

    in_loop(scenario)


@pytest.fixture
def slow_dispatch(monkeypatch):
    """Dispatch only for waiting readers."""
    monkeypatch.setattr(background, "_DISPATCH_PACE_S", NEVER_S)


def with_broker(tmp_path, scenario):
    async def run():
        config = StandaloneConfig(str(tmp_path / "store"), "broker-a", "127.0.0.1:1", PlainStoreConfig(store=PATIENT))
        broker = StandaloneReplica.open(OsFiles(), config)
        try:
            # The dispatch at the start has nothing to do; a later one would include messages that are put now.
            await asyncio.sleep(0)
            await scenario(broker)
        finally:
            if not broker.failure.done():
                await broker.stop()

    in_loop(run)


async def put(broker, *numbers):
    outcome = await broker.serving_puts().begin_put([numbered(number) for number in numbers])
    assert outcome.certainty is Certainty.APPENDED
    return outcome.places[-1]


def found_at(broker, place, number):
    message = numbered(number)
    return broker.store.max_offset(message.topic, message.queue_id) > place.queue_offset


def test_a_single_put_is_dispatched_within_the_pace_without_a_waiting_reader(tmp_path):
    async def scenario(broker):
        place = await put(broker, 1)
        await until(lambda: found_at(broker, place, 1))

    with_broker(tmp_path, scenario)


@pytest.mark.usefixtures("slow_dispatch")
def test_much_undispatched_log_is_dispatched_at_once(tmp_path):
    async def scenario(broker):
        message = numbered(1)._replace(body=bytes(background._DISPATCH_GATHER_SIZE_BYTES))
        outcome = await broker.serving_puts().begin_put([message])
        await until(lambda: found_at(broker, outcome.places[-1], 1))

    with_broker(tmp_path, scenario)


@pytest.mark.usefixtures("slow_dispatch")
def test_a_confirmed_read_sees_what_was_acknowledged_before(tmp_path):
    async def scenario(broker):
        for number in range(20):
            place = await put(broker, number)
            assert not found_at(broker, place, number)
            await broker.confirm(ReadMode.LOCAL)
            assert not found_at(broker, place, number)
            await broker.confirm(ReadMode.LEASE if number % 2 else ReadMode.LINEARIZABLE)
            assert found_at(broker, place, number)

    with_broker(tmp_path, scenario)


@pytest.mark.usefixtures("slow_dispatch")
def test_reads_that_time_out_before_dispatch_leave_nothing(tmp_path):
    async def scenario(broker):
        tasks = broker.service.background
        confirming = [asyncio.create_task(tasks.dispatched_to(1 << 40)) for _ in range(5)]
        await until(lambda: len(tasks._awaited) == 5)
        for each in confirming[1:]:
            each.cancel()
        await asyncio.wait(confirming[1:])
        assert len(tasks._awaited) == 1
        tasks.fail(StoreStopped("the disk is gone"))
        with pytest.raises(StoreStopped):
            await confirming[0]
        assert not tasks._awaited

    with_broker(tmp_path, scenario)


@pytest.mark.usefixtures("slow_dispatch")
def test_a_waiting_reader_is_woken_at_once_whether_it_came_before_the_put_or_after(tmp_path):
    async def scenario(broker):
        message = numbered(1)
        early = asyncio.create_task(broker.wait(message.topic, message.queue_id, 0, PATIENCE_S, "*"))
        await until(lambda: broker.store.waiters_count)
        await put(broker, 1)
        assert await early
        await put(broker, 1)
        assert await broker.wait(message.topic, message.queue_id, 1, PATIENCE_S, "*")
        await put(broker, 1)
        woken = asyncio.Event()
        broker.store.wait(message.topic, message.queue_id, 2, woken.set)
        await woken.wait()

    with_broker(tmp_path, scenario)


@pytest.mark.usefixtures("slow_dispatch")
def test_messages_not_dispatched_at_the_end_are_readable_after_a_restart(tmp_path):
    async def fill(broker):
        await put(broker, 0, 1, 2, 3, 4)
        assert broker.store.derived.dispatcher.behind_bytes

    async def look(broker):
        assert not broker.store.derived.dispatcher.behind_bytes
        assert broker.store.derived.queues.max_physical_offset == broker.store.log.end_offset

    with_broker(tmp_path, fill)
    with_broker(tmp_path, look)


@pytest.mark.usefixtures("slow_dispatch")
def test_waiters_for_dispatch_fail_when_the_store_has_stopped(tmp_path):
    async def scenario(broker):
        await put(broker, 1)
        waiting = asyncio.create_task(broker.confirm(ReadMode.LINEARIZABLE))
        await asyncio.sleep(0)
        broker.service.background.fail(StoreStopped("the disk is gone"))
        with pytest.raises(StoreStopped, match="the disk is gone"):
            await waiting
        with pytest.raises(StoreStopped, match="the disk is gone"):
            await broker.confirm(ReadMode.LINEARIZABLE)

    with_broker(tmp_path, scenario)

"""Messages for a time that a RocketMQ broker left: each is delivered once, at its time, and none is lost."""

import asyncio
import struct
from contextlib import asynccontextmanager

import pytest

from cluster.broker.core import wall_clock_ms
from cluster.delivery.delay_levels import DelayDelivery
from cluster.delivery.timers import TimerDelivery
from cluster.replica.old import copies
from store.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.support.brokers.old_stores import (
    delayed,
    delayed_copy,
    opened,
    recall,
    timed,
    timer_copy,
    write_store,
)
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import run, until

HOUR_MS = 3_600_000


async def waiting_units(root):
    """Open a store twice, so that the state of the first time was saved; return the units that wait."""
    for _ in range(2):
        replica = opened(root)
        end = replica.store.max_offset(TIMER_TOPIC, 0)
        await replica.stop()
    return replica.state.timers.waiting(0, end, 1_000)


def now_slot_ms():
    return wall_clock_ms() // 1_000 * 1_000


def test_messages_of_emptied_slots_are_done_and_all_others_wait(tmp_path):
    async def scenario():
        now_ms = now_slot_ms()
        messages = [timed("a", now_ms - HOUR_MS), timed("b", now_ms + HOUR_MS), timed("c", now_ms - HOUR_MS)]
        # The third one came to the queue, but not to the wheel.
        await write_store(tmp_path, *messages, timercheck=(now_ms, 2))
        assert await waiting_units(tmp_path) == [1, 2]

    run(scenario())


@pytest.mark.parametrize("content", [None, b"", b"\0" * 31])
def test_without_readable_progress_each_message_waits_that_has_no_copy(tmp_path, content, monkeypatch):
    monkeypatch.setattr(copies, "_SCAN_SIZE_BYTES", 300)

    async def scenario():
        past_ms = now_slot_ms() - HOUR_MS
        messages = [timed("a", past_ms), timed("b", past_ms), timer_copy("b", past_ms), timed("", past_ms)]
        await write_store(tmp_path, *messages, timer_copy("", past_ms))
        if content is not None:
            (tmp_path / "config/timercheck").write_bytes(content)
        # Without an id a copy may be that of an equal message.
        assert await waiting_units(tmp_path) == [0, 2]

    run(scenario())


def test_copies_after_the_noted_progress_are_not_repeated(tmp_path):
    """RocketMQ notes its progress each second: after a crash it delivers again what it delivered since."""

    async def scenario():
        now_ms = now_slot_ms()
        messages = [timed("a", now_ms - 1_000), timed("b", now_ms - 1_000), timer_copy("a", now_ms - 1_000)]
        await write_store(tmp_path, *messages, timercheck=(now_ms - 2_000, 2))
        assert await waiting_units(tmp_path) == [1]

    run(scenario())


def test_copy_of_an_earlier_attempt_does_not_deliver_a_later_one(tmp_path):
    async def scenario():
        now_ms = now_slot_ms()
        messages = [timed("a", now_ms - HOUR_MS, attempts=1), timed("a", now_ms - 2_000, attempts=2)]
        copy = timer_copy("a", now_ms - HOUR_MS, attempts=1)
        await write_store(tmp_path, *messages, copy, timercheck=(now_ms, 1))
        assert await waiting_units(tmp_path) == [1]

    run(scenario())


def test_of_equal_messages_as_many_wait_as_there_are_fewer_copies(tmp_path):
    async def scenario():
        past_ms = now_slot_ms() - 2_000
        await write_store(tmp_path, timed("a", past_ms), timed("a", past_ms), timer_copy("a", past_ms))
        assert await waiting_units(tmp_path) == [1]

    run(scenario())


def test_message_that_was_put_again_replaces_the_one_before(tmp_path):
    async def scenario():
        far_ms = now_slot_ms() + 100 * HOUR_MS
        again = [timed("a", far_ms, TIMER_ROLL_TIMES=times) for times in (1, 2)]
        await write_store(tmp_path, timed("a", far_ms), timed("b", far_ms), *again, timercheck=(now_slot_ms(), 4))
        assert await waiting_units(tmp_path) == [1, 3]

    run(scenario())


@pytest.mark.parametrize("form", ["T+", ""])
def test_recalled_messages_do_not_wait_and_those_for_another_time_do(tmp_path, form):
    async def scenario():
        far_ms = now_slot_ms() + HOUR_MS
        messages = [
            timed("a", far_ms),
            timed("b", far_ms),
            recall("a", far_ms, form),
            recall("b", far_ms + 1_000, form),
        ]
        await write_store(tmp_path, *messages, timercheck=(now_slot_ms(), 4))
        assert await waiting_units(tmp_path) == [1]

    run(scenario())


@asynccontextmanager
async def delivering(replica, kind, clock_ms):
    """Deliver, as the broker does."""
    task = asyncio.create_task(kind(replica, clock_ms, lambda _: None, lambda *_: None).run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.slow
def test_group_delivers_what_waits_in_a_store_of_rocketmq_once_and_not_before_its_time(tmp_path):
    async def scenario():
        now_ms = now_slot_ms()
        later_ms = now_ms + HOUR_MS
        messages = [timed("a", now_ms - HOUR_MS), timed("b", now_ms - 5_000), timed("c", later_ms)]
        messages += [timer_copy("b", now_ms - 5_000), timed("d", now_ms - 5_000)]
        await write_store(tmp_path / "n0", *messages, timercheck=(now_ms - 6_000, 3))
        clock_ms = [now_ms + HOUR_MS // 2]
        async with running_group(configs_in(tmp_path, count=1)) as group:
            await group.start()
            replica = await group.leader()
            async with delivering(replica, TimerDelivery, lambda: clock_ms[0]):
                await until(lambda: replica.store.max_offset("T", 0) == 2)
                clock_ms[0] = later_ms + 1_000
                await until(lambda: replica.store.max_offset("T", 0) == 3)
                await until(lambda: replica.state.timers.waiting_count(replica.store.max_offset(TIMER_TOPIC, 0)) == 0)
            assert [each.body for each in replica.store.get("T", 0, 0, 10).messages] == [b"b", b"d", b"c"]
            assert replica.state.unfit_effects_count == 0

    run(scenario())


def write_tags_codes(root, topic, *codes):
    """Write what RocketMQ has in the units of a queue."""
    (path,) = (root / "consumequeue" / topic / "0").iterdir()
    content = bytearray(path.read_bytes())
    for unit, code in enumerate(codes):
        struct.pack_into(">q", content, unit * 20 + 12, code)
    path.write_bytes(content)


def test_more_messages_than_the_window_has_are_read_for_their_times(tmp_path, monkeypatch):
    """The queue has the hashes of their tags in place of their times."""
    monkeypatch.setattr("cluster.delivery.timers.ROWS_MAX", 3)

    async def scenario():
        now_ms = now_slot_ms()
        times = [now_ms + (number * 7 % 20) * 1_000 for number in range(20)]
        messages = [timed(str(number), time_ms) for number, time_ms in enumerate(times)]
        await write_store(tmp_path, *messages, timercheck=(now_ms, 20))
        # Hashes of tags, also negative ones.
        write_tags_codes(tmp_path, TIMER_TOPIC, *((unit - 3) * 1_000_003 for unit in range(20)))
        replica = opened(tmp_path)
        clock_ms = [now_ms]
        async with delivering(replica, TimerDelivery, lambda: clock_ms[0]):
            for second in range(1, 21):
                clock_ms[0] = now_ms + second * 1_000
                await until(lambda second=second: replica.store.max_offset("T", 0) == second)
        delivered = [int(each.body) for each in replica.store.get("T", 0, 0, 100).messages]
        assert [times[number] for number in delivered] == sorted(times)
        await replica.stop()

    run(scenario())


def test_delayed_messages_with_a_copy_after_the_noted_offset_are_not_repeated(tmp_path):
    """RocketMQ notes the offsets every ten seconds."""

    async def scenario():
        keys = "abcde"
        copied = [delayed_copy(key) for key in "abc"]
        await write_store(tmp_path, *(delayed(key) for key in keys), *copied, delays={"1": 1}, step_ms=500)
        replica = opened(tmp_path)
        assert replica.state.delay_offsets == {1: 3}
        later_ms = wall_clock_ms() + 10_000
        async with delivering(replica, DelayDelivery, lambda: later_ms):
            await until(lambda: replica.state.delay_offsets[1] == 5)
        assert [each.body for each in replica.store.get("T", 0, 0, 10).messages] == [b"a", b"b", b"c", b"d", b"e"]
        await replica.stop()

    run(scenario())


def test_delays_of_a_table_of_rocketmq_are_kept_and_a_time_by_a_wrong_clock_blocks_nothing(tmp_path):
    async def scenario():
        now_ms = wall_clock_ms()
        await write_store(tmp_path, delayed("long"), delayed("wrong"), delays={"1": 0})
        write_tags_codes(tmp_path, SCHEDULE_TOPIC, now_ms + HOUR_MS, 1 << 62)
        replica = opened(tmp_path)
        clock_ms, looks = [now_ms + HOUR_MS // 2], []
        found = DelayDelivery._choose_of

        def looked(self, *arguments):
            looks.append(1)
            found(self, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DelayDelivery, "_choose_of", looked)
            async with delivering(replica, DelayDelivery, lambda: clock_ms[0]):
                await until(lambda: looks)
                assert replica.store.max_offset("T", 0) == 0
                clock_ms[0] = now_ms + HOUR_MS + 1_000
                await until(lambda: replica.store.max_offset("T", 0) == 2)
        await replica.stop()

    run(scenario())

"""The state of a standalone broker: acknowledged changes survive a crash; changes without space are refused."""

import asyncio
import threading

import pytest

import cluster.replica.local_state
import cluster.state.snapshot
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.journal.journal import SEGMENTS_MAX
from cluster.replica.saved_state import load_state
from cluster.state.commands import DeleteTopic, SetTopic
from cluster.state.verdicts import CommandVerdict
from store.errors import Certainty, DiskFull, StorageFailed
from store.fs.linux.files import OsFiles
from tests.support.brokers.inline_worker import InlineWorker
from tests.support.brokers.local_states import (
    SEGMENT_SIZE,
    STATE,
    durable_topics,
    fill,
    opened,
    run_until_a_crash,
    segments,
    snapshots,
    topic,
)
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import run, until

# ------------------------------------------------------------------------------------------------------ durability


def test_acknowledged_change_is_in_the_journal_and_in_no_snapshot(tmp_path):
    async def scenario(disk, state):
        created = disk.counts["create"]
        assert (await state.change(topic("a"))).verdict is CommandVerdict.CHANGED
        assert durable_topics(tmp_path) == {"a"}
        assert (snapshots(tmp_path), disk.counts["create"]) == ([0], created)

    run_until_a_crash(scenario, tmp_path)


def test_callers_that_wait_at_the_same_time_share_a_sync(tmp_path):
    async def scenario(disk, state):
        before = disk.counts["sync"]
        await asyncio.gather(*(state.change(topic(f"t{number}")) for number in range(64)))
        assert disk.counts["sync"] - before == 2, "the first one, and all that came during its sync"
        assert len(durable_topics(tmp_path)) == 64

    run_until_a_crash(scenario, tmp_path)


def test_repeated_change_waits_for_the_first_one(tmp_path):
    async def scenario(disk, state):
        disk.is_going.clear()
        both = [asyncio.ensure_future(state.change(topic("a"))) for _ in range(2)]
        done, _ = await asyncio.wait(both, timeout=0.05)
        assert done == set()
        disk.is_going.set()
        assert [each.verdict for each in await asyncio.gather(*both)] == ["CHANGED", "UNCHANGED"]

    run_until_a_crash(scenario, tmp_path)


def test_failed_sync_ends_the_state_and_all_callers(tmp_path):
    async def scenario(disk, state):
        disk.is_broken, disk.broken_part = True, "journal"
        found = await asyncio.gather(*(state.change(topic(name)) for name in "abc"), return_exceptions=True)
        assert [type(each) for each in found] == [StorageFailed] * 3
        assert isinstance(await state.failure, StorageFailed)
        disk.is_broken = False
        with pytest.raises(StorageFailed):
            await state.change(topic("d"))
        assert "d" not in state.state.topics

    run_until_a_crash(scenario, tmp_path)


def test_stopped_state_continues_with_the_next_command(tmp_path):
    async def scenario():
        for number in range(3):
            state = opened(OsFiles(), tmp_path)
            await fill(state, 5, number * 5)
            await state.stop()
        assert snapshots(tmp_path) == [0]
        return load_state(OsFiles(), str(tmp_path)).changes()

    assert [each.number for each in run(scenario())] == [*range(1, 16)]
    assert len(durable_topics(tmp_path)) == 15


def test_too_large_command_is_refused_and_changes_nothing(tmp_path):
    async def scenario(_, state):
        many = TopicConfig("a", 1, 1, attributes=tuple((f"+key.{number:03d}", "x" * 100) for number in range(30)))
        applied = await state.change(SetTopic(many))
        assert applied.verdict is CommandVerdict.ILLEGAL_REQUEST
        assert not state.state.topics

    run_until_a_crash(scenario, tmp_path, segment_size=SEGMENT_SIZE)


def test_invalid_command_is_refused(tmp_path):
    async def scenario(_, state):
        assert (await state.change(DeleteTopic(""))).verdict is CommandVerdict.ILLEGAL_REQUEST

    run_until_a_crash(scenario, tmp_path)


# ------------------------------------------------------------------------------------------- segments and snapshots


def test_snapshot_bounds_the_journal_and_old_segments_are_deleted_after_it(tmp_path):
    async def scenario(_, state):
        for begin in range(0, 400, 10):
            await fill(state, 10, begin)
            assert len(segments(tmp_path)) <= SEGMENTS_MAX
            assert len(durable_topics(tmp_path)) == begin + 10
        assert int(segments(tmp_path)[0]) > 1
        assert len(snapshots(tmp_path)) == 3

    run_until_a_crash(scenario, tmp_path, segment_size=SEGMENT_SIZE)


def test_number_of_commands_bounds_the_journal_too(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster.replica.local_state, "_COMMANDS_MAX", 10)

    async def scenario():
        # In a thread, a snapshot may still be running when the next one is due, which is then taken later.
        state = opened(OsFiles(), tmp_path, new_worker=InlineWorker)
        await fill(state, 25)
        await state.stop()

    run(scenario())
    assert snapshots(tmp_path) == [0, 10, 20]


def test_frequent_starts_do_not_delay_snapshots(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster.replica.local_state, "_COMMANDS_MAX", 10)

    async def scenario():
        for begin in range(0, 24, 4):
            state = opened(OsFiles(), tmp_path)
            await fill(state, 4, begin)
            await state.stop()

    run(scenario())
    assert snapshots(tmp_path) == [0, 10, 20]


@pytest.mark.parametrize("removed_count", [1, 2])
def test_journal_completes_an_older_snapshot_too(tmp_path, removed_count):
    async def scenario():
        state = opened(OsFiles(), tmp_path, segment_size=SEGMENT_SIZE)
        await fill(state, 300)
        await state.stop()

    run(scenario())
    for index in snapshots(tmp_path)[-removed_count:]:
        (tmp_path / STATE / "snapshot" / f"{index:020d}").unlink()
    assert len(durable_topics(tmp_path)) == 300


class SlowSnapshots(FaultyDisk):
    """Snapshots after the first one are not saved while `may_save` is cleared."""

    def __init__(self):
        super().__init__()
        self.may_save = threading.Event()
        self.saves_count = 0

    def create_from(self, path, chunks):
        if path.endswith("saving"):
            self.saves_count += 1
            assert self.saves_count == 1 or self.may_save.wait(60)
        super().create_from(path, chunks)


def test_changes_are_acknowledged_while_a_snapshot_is_saved(tmp_path):
    async def scenario():
        disk = SlowSnapshots()
        state = opened(disk, tmp_path, segment_size=SEGMENT_SIZE)
        await fill(state, 100)
        assert (snapshots(tmp_path), disk.saves_count) == ([0], 2)
        assert len(durable_topics(tmp_path)) == 100
        disk.may_save.set()
        await state.stop()
        assert len(snapshots(tmp_path)) == 2

    run(scenario())


def test_full_journal_waits_for_a_running_snapshot(tmp_path):
    async def scenario():
        disk = SlowSnapshots()
        state = opened(disk, tmp_path, segment_size=SEGMENT_SIZE)
        filling = asyncio.ensure_future(fill(state, 1_000))
        await until(lambda: len(segments(tmp_path)) == SEGMENTS_MAX)
        done, _ = await asyncio.wait([filling], timeout=0.1)
        assert done == set()
        assert len(segments(tmp_path)) == SEGMENTS_MAX
        disk.may_save.set()
        await filling
        await state.stop()
        assert len(durable_topics(tmp_path)) == 1_000

    run(scenario())


# -------------------------------------------------------------------------------------------------------- full disk


def test_full_disk_does_not_prevent_changes_that_have_space_in_the_journal(tmp_path):
    async def scenario(disk, state):
        disk.is_full = True
        await fill(state, 10)
        assert len(durable_topics(tmp_path)) == 10

    run_until_a_crash(scenario, tmp_path)


def test_change_without_space_is_refused_and_not_applied(tmp_path):
    async def scenario(disk, state):
        disk.is_full = True
        with pytest.raises(RequestFailed) as failed:
            await fill(state, 1_000)
        assert (failed.value.reason, failed.value.certainty) == (Reason.DISK_FULL, Certainty.NOT_APPENDED)
        assert durable_topics(tmp_path) == set(state.state.topics)
        count = len(state.state.topics)
        assert 10 < count < 100
        assert not state.failure.done()
        disk.is_full = False
        await fill(state, 100, count)
        assert len(durable_topics(tmp_path)) == count + 100

    run_until_a_crash(scenario, tmp_path, segment_size=SEGMENT_SIZE)


def test_disk_without_space_for_snapshots_bounds_the_journal_and_refuses_further_changes(tmp_path):
    async def scenario(disk, state):
        disk.full_part, disk.is_full = "snapshot", True
        with pytest.raises(RequestFailed) as failed:
            await fill(state, 10_000)
        assert (failed.value.reason, failed.value.certainty) == (Reason.DISK_FULL, Certainty.NOT_APPENDED)
        assert len(segments(tmp_path)) == SEGMENTS_MAX
        assert durable_topics(tmp_path) == set(state.state.topics)
        disk.is_full = False
        count = len(state.state.topics)
        await fill(state, 300, count)
        assert len(segments(tmp_path)) < SEGMENTS_MAX
        assert len(durable_topics(tmp_path)) == count + 300

    run_until_a_crash(scenario, tmp_path, segment_size=SEGMENT_SIZE)


def test_full_disk_at_the_first_start_leaves_a_directory_that_opens_later(tmp_path):
    async def scenario():
        disk = FaultyDisk()
        for files_left in (0, 1):
            disk.files_left = files_left
            with pytest.raises(DiskFull):
                opened(disk, tmp_path)
        disk.is_full = False
        state = opened(disk, tmp_path)
        await state.change(topic("a"))
        await state.stop()

    run(scenario())
    assert durable_topics(tmp_path) == {"a"}

"""The sync policy and its two ways of running: fast and small syncs inline, others in a thread; failures."""

from __future__ import annotations

import asyncio
import threading
from time import perf_counter

import pytest

from dledger.driver.syncer import GroupSyncer, SyncPolicy
from store.errors import StorageFailed
from store.fs.storage_thread import StorageThread

FAST_S, SLOW_S, STALL_S = 0.0001, 0.005, 0.5


def warmed() -> SyncPolicy:
    policy = SyncPolicy()
    policy.observe(FAST_S, 0.0)
    return policy


def test_first_sync_goes_to_the_thread() -> None:
    assert not SyncPolicy().is_inline(0.0, is_lightly_loaded=True)


def test_fast_disk_under_light_load_syncs_inline() -> None:
    assert warmed().is_inline(0.0, is_lightly_loaded=True)


def test_load_sends_a_fast_sync_to_the_thread() -> None:
    assert not warmed().is_inline(0.0, is_lightly_loaded=False)


def test_one_slow_sync_keeps_syncs_in_the_thread_for_a_limited_time() -> None:
    policy = warmed()
    policy.observe(SLOW_S, 0.0)
    fast_syncs = 0
    while not policy.is_inline(0.0, is_lightly_loaded=True):
        policy.observe(FAST_S, 0.0)
        fast_syncs += 1
    assert 10 < fast_syncs < 50


def test_a_stall_keeps_syncs_in_the_thread_for_seconds() -> None:
    policy = warmed()
    policy.observe(STALL_S, 100.0)
    for _ in range(1000):
        policy.observe(FAST_S, 101.0)
    assert not policy.is_inline(104.9, is_lightly_loaded=True)
    assert policy.is_inline(105.1, is_lightly_loaded=True)


class Disk:
    """A ticket whose syncs succeed or fail, and a listener that records its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.is_light = True
        self.threads: list[str] = []
        self.synced_count = 0
        self.failures: list[Exception] = []
        self.reported = asyncio.Event()

    def sync(self) -> None:
        self.threads.append(threading.current_thread().name)
        if self.error:
            raise self.error

    def is_lightly_loaded(self) -> bool:
        return self.is_light

    def on_synced(self, ticket: object, duration_s: float) -> None:
        assert ticket is self
        assert duration_s >= 0
        self.synced_count += 1
        self.reported.set()

    def on_sync_failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.reported.set()


async def sync_once(syncer: GroupSyncer, disk: Disk) -> None:
    disk.reported.clear()
    syncer.start(disk)  # type: ignore[arg-type]
    assert not disk.reported.is_set(), "the end must never be reported from within start"
    await disk.reported.wait()


def test_syncs_run_in_the_thread_until_the_disk_has_shown_itself_fast() -> None:
    async def main() -> None:
        disk, thread = Disk(), StorageThread("disk")
        syncer = GroupSyncer(disk, thread, now_s=perf_counter)
        while not syncer.inline_count:
            await sync_once(syncer, disk)
        disk.is_light = False
        await sync_once(syncer, disk)
        assert disk.threads[0] == "disk"
        assert disk.threads[-2:] == ["MainThread", "disk"]
        assert disk.synced_count == syncer.inline_count + syncer.threaded_count
        await thread.stop()

    asyncio.run(main())


@pytest.mark.parametrize("is_inline", [False, True])
def test_failed_sync_is_reported_and_not_as_synced(is_inline: bool) -> None:
    error = StorageFailed("data", "fdatasync", OSError(5, "Input/output error"))

    async def main() -> None:
        disk, thread = Disk(), StorageThread("disk")
        syncer = GroupSyncer(disk, thread, now_s=perf_counter)
        while is_inline and not syncer.inline_count:
            await sync_once(syncer, disk)
        synced_count, disk.error = disk.synced_count, error
        await sync_once(syncer, disk)
        assert disk.failures == [error]
        assert disk.synced_count == synced_count
        await thread.stop()

    asyncio.run(main())


def test_stopping_the_thread_waits_for_the_running_job() -> None:
    async def main() -> None:
        thread, release, ended = StorageThread("disk"), threading.Event(), []
        thread.run(release.wait, ended.append)
        stopping = asyncio.create_task(thread.stop())
        await asyncio.sleep(0)
        assert not ended
        release.set()
        await stopping
        assert ended == [None]

    asyncio.run(main())

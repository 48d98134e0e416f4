"""A reset sets the old log aside; it is deleted when the new one has caught up, or when space is short."""

import shutil
from pathlib import Path

import pytest

from dledger.entries.aside import Aside
from dledger.testing.faults import SimulatedCrash
from store.errors import DiskFull

FILE = 4096
BODY = 952


@pytest.fixture
def long_log(log, fill, flush):
    """Return a log with 22 entries in six files."""
    store = log.open()
    fill(store, 22, BODY)
    flush(store)
    return log


def bodies(store):
    return [store.get(index).body for index in range(store.begin_index, store.last_index + 1)]


def aside_path(log):
    return Path(log.directory) / "aside"


def aside_bodies(log, make_log, tmp_path):
    """Return the entries of a copy of the folder, opened as the log of another directory."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(aside_path(log), copy)
    (copy / "record").unlink()
    other = make_log("copy")
    found = bodies(other.open())
    other.kill()
    return found


def advance(store, held_index):
    """Advance the clock, often enough for any number of files."""
    for now_ms in range(0, 60_000, 10):
        store.aside.advance(held_index, now_ms)


@pytest.mark.parametrize("deleted_before", [0, 9])
def test_old_entries_stay_readable_until_the_new_log_has_caught_up(long_log, fill, make_log, tmp_path, deleted_before):
    log, store = long_log, long_log.store
    store.delete_before(deleted_before)
    old, begin_index = bodies(store), store.begin_index

    store.reset(100, 10 * FILE, 5, caught_up_index=104)

    assert (store.begin_index, store.last_index, store.end_position) == (100, 99, 10 * FILE)
    record = store.aside.record
    assert (record.begin_index, record.last_index, record.caught_up_index) == (begin_index, 21, 104)
    assert aside_bodies(log, make_log, tmp_path) == old
    fill(store, 5, 100, 6)
    advance(store, 103)
    store = log.reopen()
    advance(store, 103)
    assert aside_bodies(log, make_log, tmp_path) == old
    advance(store, 104)
    assert not aside_path(log).exists()
    assert not store.aside.files_count
    assert len(bodies(log.reopen())) == 5


def test_old_files_are_deleted_one_at_a_time(long_log):
    store = long_log.store
    store.reset(100, 10 * FILE, 5, caught_up_index=100)
    counts = []

    for now_ms in range(0, 3_000, 10):
        store.aside.advance(100, now_ms)
        counts.append(store.aside.files_count)

    assert [counts.count(count) for count in range(6)] == [50, 50, 50, 50, 50, 50]


def test_empty_log_is_not_set_aside(log):
    store = log.open()

    store.reset(100, 10 * FILE, 5)
    store.reset(200, 20 * FILE, 5)

    assert not aside_path(log).exists()


def test_second_reset_keeps_the_log_that_had_caught_up(log, long_log, fill, make_log, tmp_path):
    store = long_log.store
    old = bodies(store)
    store.reset(100, 10 * FILE, 5, caught_up_index=150)
    fill(store, 3, BODY, 6)

    store.reset(200, 20 * FILE, 6, caught_up_index=220)

    assert aside_bodies(log, make_log, tmp_path) == old
    record = store.aside.record
    assert (record.begin_index, record.last_index, record.caught_up_index) == (0, 21, 220)
    advance(store, 220)
    assert not aside_path(log).exists()


def test_reset_during_the_deletion_sets_the_newer_log_aside(log, long_log, fill, make_log, tmp_path):
    store = long_log.store
    store.reset(100, 10 * FILE, 5, caught_up_index=100)
    fill(store, 3, BODY, 6)
    store.aside.advance(102, 1_000)
    assert store.aside.files_count == 5

    newer = bodies(store)
    store.reset(200, 20 * FILE, 6, caught_up_index=220)

    assert aside_bodies(log, make_log, tmp_path) == newer
    assert store.aside.record.last_index == 102


def test_deletion_that_a_crash_interrupted_continues(log, long_log):
    long_log.store.reset(100, 10 * FILE, 5, caught_up_index=100)
    names = sorted(path.name for path in (aside_path(log) / "data").iterdir())
    long_log.store.aside.advance(100, 1_000)
    # The remaining files are the first part of that log, and can be opened.
    assert sorted(path.name for path in (aside_path(log) / "data").iterdir()) == names[:5]
    store = log.reopen()
    assert (store.aside.files_count, store.aside.record) == (5, None)

    advance(store, -1)

    assert not aside_path(log).exists()


def test_folder_with_a_damaged_record_stays(log, long_log, make_log, tmp_path):
    old = bodies(long_log.store)
    long_log.store.reset(100, 10 * FILE, 5, caught_up_index=100)
    (aside_path(log) / "record").write_bytes(b"#checked\nbeginIndex=7\n")
    store = log.reopen()

    advance(store, 1_000)

    assert store.aside.is_kept
    assert aside_bodies(log, make_log, tmp_path) == old


def test_old_log_is_deleted_if_appends_need_its_space(log, long_log, fill):
    store = long_log.store
    store.reset(100, 10 * FILE, 5, caught_up_index=1_000)
    log.files.files_left = 0

    # The new log has its first data file; its first index file needs space.
    with pytest.raises(DiskFull):
        fill(store, 1, BODY, 6)

    assert not store.aside.files_count
    assert store.aside.freed_count == 6
    log.files.files_left = None


def dying_at_each_effect(machine, prepare, act, effects_min, *, is_power_cut):
    """Stop `act` at its first effect on the disk, at its second, and so on; open the log again after each.

    Args:
        machine: another one like it is used each time.
        prepare: brings a log of 20 entries to what `act` finds; it is closed in between.
        act: it does not die any more after `effects_min` effects or later; then this ends.
        is_power_cut: the machine loses what was not synced; else only the process dies.

    Yields:
        (machine, log that was opened again, last index and bodies before `act`)
    """
    for number in range(1, 200):
        machine = type(machine)()
        machine.write_log([400] * 20)
        store = machine.open()
        prepare(store)
        before = store.last_index, bodies(store)
        store.close()
        files = machine.process()
        store = machine.open(files=files)
        files.crash_point.arm(number)
        try:
            act(store)
        except SimulatedCrash:
            if is_power_cut:
                machine.disk.cut_power()
        else:
            assert number > effects_min
            return
        store = machine.open()
        yield machine, store, before
        store.close()
    raise AssertionError("it never ended")


def _synced(store):
    ticket = store.begin_flush()
    ticket.sync()
    return ticket


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("has_aside", [False, True])
def test_reset_that_crashes_anywhere_loses_neither_log(machine, is_power_cut, has_aside):
    """Old log in its place, or old log aside and new log empty: no state in between remains after a start."""

    def prepare(store):
        if has_aside:
            store.reset(30, 20 * 2048, 4, caught_up_index=70)
            store.append([b"x" * 900] * 5, 30, 7)
            store.end_flush(_synced(store))

    def act(store):
        store.reset(50, 40 * 2048 + 500, 8, caught_up_index=90)

    found = set()
    for disk_of, store, (old, expected) in dying_at_each_effect(machine, prepare, act, 8, is_power_cut=is_power_cut):
        found.add("old" if store.last_index == old else store.last_index)
        if store.last_index == old:
            assert bodies(store) == expected
            assert store.aside.is_kept == has_aside
        else:
            assert (store.begin_index, store.last_index, store.end_position) == (50, 49, 40 * 2048 + 500)
            assert store.aside.is_kept
        if store.aside.is_kept:
            assert (store.aside.record.begin_index, store.aside.record.last_index) == (0, 19)
            assert store.aside.files_count == 5
        assert Aside.open(disk_of.process(), "/n0").record == store.aside.record
    assert found == {"old", 49}


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_deletion_that_crashes_anywhere_is_completed_later(machine, is_power_cut):
    def prepare(store):
        store.reset(30, 20 * 2048, 4, caught_up_index=30)

    def act(store):
        advance(store, 30)

    for disk_of, store, _ in dying_at_each_effect(machine, prepare, act, 10, is_power_cut=is_power_cut):
        assert (store.begin_index, store.last_index) == (30, 29)
        # The record is deleted first: a log that has one is complete.
        assert store.aside.files_count == 5 or not store.aside.is_kept
        advance(store, 30)
        assert not [path for path in disk_of.disk.directories if "aside" in path]

"""Durability of appends, refusals of a full disk, and the log after a truncation."""

import pytest

from dledger.entries import next_write as module
from dledger.storage.checkpoint import Checkpoint, CheckpointFile
from store.errors import DiskFull, StorageFailed
from store.fs.linux.files import OsFiles

FILE = 4096


# ---------------------------------------------------------------------------------------------------------- full disk


def test_full_disk_refuses_a_batch_whole(log, fill):
    store = log.open()
    fill(store, 20)
    log.files.files_left = 1
    before = (store.last_index, store.end_position, log.data_path().read_bytes())

    for refused in (lambda: store.reserve([3000, 3000, 3000]), lambda: store.append([bytes(3000)] * 3, 20, 1)):
        with pytest.raises(DiskFull, match="no space for 4096 bytes"):
            refused()

    assert (store.last_index, store.end_position, log.data_path().read_bytes()) == before
    store.append([bytes(10)], 20, 1)
    assert log.reopen().last_index == 20
    assert log.store.recovery_notes == ()


def test_full_disk_is_found_before_the_index_is_full_too(log):
    store = log.open()
    store.append([b"x"] * 16, 0, 1)
    log.files.files_left = 0

    with pytest.raises(DiskFull, match="index"):
        store.reserve([1])
    assert store.last_index == 15


def test_append_uses_its_reserved_space(log):
    store = log.open()
    store.reserve([3000, 3000, 3000])
    log.files.files_left = 0

    store.append([bytes(3000)] * 3, 0, 1)

    assert store.last_index == 2


def test_reserved_batch_is_laid_out_once(monkeypatch, log):
    laid_out, original = [], module.lay_out

    def lay_out(sizes, *arguments):
        laid_out.append(list(sizes))
        return original(sizes, *arguments)

    monkeypatch.setattr(module, "lay_out", lay_out)
    store = log.open()
    store.reserve([3000, 3000, 3000])
    store.append([bytes(3000)] * 3, 0, 1)
    # A batch that differs from the one with reserved space, and one without.
    store.reserve([10])
    store.append([bytes(20)], 3, 1)
    store.append([bytes(20)], 4, 1)

    assert [[3000] * 3, [10], [20], [20]] == laid_out


# --------------------------------------------------------------------------------------------------------- durability


def test_entries_are_durable_when_their_flush_has_completed(log, fill, flush):
    store = log.open()
    fill(store, 50)
    assert store.durable_index == -1

    ticket = store.begin_flush()
    fill(store, 1)
    ticket.sync()
    assert store.durable_index == -1
    store.end_flush(ticket)

    assert (store.durable_index, store.last_index) == (49, 50)
    flush(store)
    assert store.durable_index == 50


def test_flush_syncs_each_dirty_data_file_once(log, fill, flush):
    store = log.open()
    log.files.counts.clear()
    fill(store, 3)
    flush(store)
    assert log.files.counts["sync"] == 1
    flush(store)
    assert log.files.counts["sync"] == 1


def test_data_file_and_its_index_are_synced_before_the_next_file_is_begun(log, fill, flush):
    """A recovery that begins with the next file relies on them."""
    store = log.open()
    log.files.counts.clear()
    fill(store, 27)  # 148 bytes each: the first file is full
    assert log.files.counts["sync"] == 0

    fill(store, 1)
    assert log.files.counts["sync"] == 1 + 2  # the data file, and the two index files of 16 units

    flush(store)
    assert log.files.counts["sync"] == 1 + 2 + 1


def test_failed_sync_is_raised_and_proves_nothing(log, fill):
    store = log.open()
    fill(store, 3)
    log.files.is_broken = True
    ticket = store.begin_flush()

    with pytest.raises(StorageFailed, match="sync failed"):
        ticket.sync()

    assert not ticket.is_synced
    assert store.durable_index == -1
    with pytest.raises(StorageFailed):
        store.close()
    log.files.is_broken = False
    assert log.open().last_index == 2  # the lock of the directory was released


def test_recovered_entries_are_durable(log, fill):
    fill(log.open(), 5)

    assert log.reopen().durable_index == 4


def test_truncation_lowers_the_durable_index(log, fill, flush):
    store = log.open()
    fill(store, 10)
    flush(store)
    fill(store, 5)
    ticket = store.begin_flush()

    store.truncate(8)
    assert store.durable_index == 7
    fill(store, 10, term=2)
    ticket.sync()
    store.end_flush(ticket)

    assert (store.durable_index, store.last_index) == (7, 17)


def test_checkpoint_says_what_is_durable_and_committed(log, fill, flush):
    store = log.open()
    fill(store, 10)
    flush(store)
    fill(store, 10)

    assert store.begin_checkpoint(15).save()
    assert b"committedIndex=9\nendIndex=9\n" in log.checkpoint_path().read_bytes()
    store.close()
    log.store = None

    assert b"committedIndex=15\nendIndex=19\n" in log.checkpoint_path().read_bytes()
    assert log.open().recovered_checkpoint.committed_index == 15


# -------------------------------------------------------------------------------------------------------- truncating


@pytest.mark.parametrize("first_index", [0, 1, 26, 27, 28, 54, 69])
def test_truncated_log_equals_one_that_never_had_the_entries(make_log, first_index, fill, names):
    """27 entries of 148 bytes fill a file but for the blank, so the truncations are in, before and after a roll."""
    cut, never = make_log("n0").open(), make_log("n1").open()
    fill(cut, 70)
    fill(never, first_index)

    cut.truncate(first_index)

    def content(store):
        return {base: store._data.read(base, FILE) for base in names(store._data.directory)} or {0: bytes(FILE)}

    assert content(cut) == content(never)
    assert cut.log_state() == never.log_state()
    assert cut.end_position == never.end_position
    assert cut.last_term == never.last_term
    for store in (cut, never):
        fill(store, 40, size=90, term=2)
    assert content(cut) == content(never)
    assert [cut.get(index) for index in range(first_index + 40)] == [
        never.get(index) for index in range(first_index + 40)
    ]


def test_truncation_after_the_end_changes_nothing(log, fill):
    store = log.open()
    fill(store, 5)

    store.truncate(5)

    assert store.last_index == 4


def test_truncated_entries_do_not_reappear_after_shorter_new_ones(log, fill, flush):
    """A fault of DLedger: fixed sizes, a truncation, fewer new entries, a crash."""
    store = log.open()
    fill(store, 20)
    flush(store)
    store.truncate(5)
    fill(store, 3, term=2)

    store = log.reopen()

    assert (store.last_index, store.last_term, store.recovery_notes) == (7, 2, ())


def test_truncation_first_withdraws_the_checkpoint(log, fill, flush):
    store = log.open()
    fill(store, 20)
    flush(store)
    store.begin_checkpoint(3).save()

    store.truncate(12)

    # The lower bound of truncations is kept.
    assert CheckpointFile(OsFiles(), str(log.checkpoint_path().parent)).load() == Checkpoint(11, 3, 3)
    assert log.reopen().last_index == 11


def test_truncation_removes_a_checkpoint_without_committed_entries(log, fill, flush):
    store = log.open()
    fill(store, 20)
    flush(store)
    store.begin_checkpoint(-1).save()

    store.truncate(12)

    assert not log.checkpoint_path().exists()
    assert log.reopen().last_index == 11

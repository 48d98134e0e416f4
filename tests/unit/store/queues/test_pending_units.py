"""Units that are in no file yet: read like others, written by a ticket, kept on a full disk and after truncations."""

import threading
from itertools import pairwise

import pytest

from store.errors import DiskFull, OutOfDescriptors
from store.fs.linux.files import OsFiles
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from store.queues.pending_units import PENDING_BYTES_MAX
from store.queues.unit_writer import GROUP_TAILS_MAX
from tests.support.dispatch_batches import batch_of
from tests.support.faulty_disk import FaultyDisk, FaultyFile
from tests.support.forms import both_forms
from tests.support.waiting import PATIENCE_S

__all__ = ["both_forms"]

KEY = QueueKey("orders", 0)
FILE_SIZE = 1040  # 52 units


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def queues(tmp_path, disk):
    opened = ConsumeQueues(disk, str(tmp_path), FILE_SIZE)
    assert opened.load() == []
    yield opened
    opened.close()


def messages(begin, end, *, key=KEY, base=0):
    return [(*key, offset, base + offset * 100, 100, offset) for offset in range(begin, end)]


def units(begin, end):
    return [(offset * 100, 100, offset) for offset in range(begin, end)]


def files_of(root):
    """Return all files below a directory, with their contents."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def built(root, batches):
    """Return the files of queues built from scratch."""
    other = ConsumeQueues(OsFiles(), str(root), FILE_SIZE)
    for batch in batches:
        other.append(batch_of(batch))
    other.flush()
    other.close()
    return files_of(root)


def test_dispatch_touches_no_disk_and_the_flush_creates_directories_files_and_bytes(tmp_path, queues, disk):
    queues.append(batch_of([*messages(0, 60), *messages(60, 70, key=QueueKey("bills", 3))]))
    assert files_of(tmp_path) == {}

    ticket = queues.begin_flush()
    assert files_of(tmp_path) == {}
    assert queues.begin_flush() is None
    ticket.sync()
    queues.end_flush(ticket)

    assert queues.flushed.offset == 7000
    assert disk.counts["create"] == 3
    assert files_of(tmp_path) == built(
        tmp_path / "again", [[*messages(0, 60), *messages(60, 70, key=QueueKey("bills", 3))]]
    )


def test_flush_runs_in_steps_of_bounded_size_and_counts_after_the_last(tmp_path, queues, disk):
    keys = [QueueKey("orders", number) for number in range(5 * GROUP_TAILS_MAX)]
    for number, key in enumerate(keys):
        queues.append(batch_of(messages(0, 1, key=key, base=number * 100)))
    ticket = queues.begin_flush()
    left = [ticket.left_count]
    while ticket.step():
        left.append(ticket.left_count)
        assert disk.counts["create"] == len(keys) - ticket.left_count
        assert not ticket.is_synced
        assert queues.flushed.offset == 0
        # A flush that begins meanwhile would write the same queues.
        assert queues.begin_flush() is None
        assert queues.get(keys[-1]).unit_tuples(0, 1) == [((len(keys) - 1) * 100, 100, 0)]
    queues.end_flush(ticket)

    assert queues.flushed.offset == len(keys) * 100
    assert len(left) == 5
    assert max(before - after for before, after in pairwise(left)) <= GROUP_TAILS_MAX
    assert len(files_of(tmp_path)) == len(keys)


class CountingDisk(FaultyDisk):
    """Counts the files of each group that is written at a time; above `together_max` no descriptor is left."""

    def __init__(self, together_max=GROUP_TAILS_MAX):
        super().__init__()
        self.together_max = together_max
        self.written = []

    def write_existing(self, writes):
        if len(writes) > self.together_max:
            raise OutOfDescriptors(writes[0].path, "open", self.together_max)
        opened = super().write_existing(writes)
        self.written.append(sum(file is not None for file in opened))
        return opened


@pytest.mark.parametrize("together_max", [GROUP_TAILS_MAX, 4])
def test_small_tails_of_existing_files_are_written_together(tmp_path, both_forms, together_max):
    """Without descriptors for all of a group, one after the other."""
    del both_forms
    disk = CountingDisk(together_max)
    queues = ConsumeQueues(disk, str(tmp_path), FILE_SIZE, open_files_max=48)
    queues.load()
    keys = [QueueKey("orders", number) for number in range(40)]
    log = []
    for turn in range(3):
        # In the last turn some tails reach into their second file, and one queue is new.
        sizes = [15 if turn < 2 or number % 3 else 30 for number in range(40)]
        batch = []
        for number, key in enumerate([*keys, QueueKey("bills", 1)][: 40 + turn // 2]):
            base = 1_000_000 * turn + 10_000 * number
            begin = 15 * turn if number < 40 else 0
            rows = range(sizes[number] if number < 40 else 1)
            batch += [(*key, begin + row, base + row * 100, 100, row) for row in rows]
        log.append(batch)
        queues.append(batch_of(batch))
        queues.flush()
    queues.close()

    assert files_of(tmp_path) == built(tmp_path / "again", log)
    # All of the second flush, and two thirds of the third; a few are still open from the flush before.
    assert (sum(disk.written) > 50) == (together_max == GROUP_TAILS_MAX)


def test_tail_that_its_owner_takes_is_not_written_into_an_existing_file(tmp_path, both_forms):
    del both_forms
    queues = ConsumeQueues(FaultyDisk(), str(tmp_path), FILE_SIZE, open_files_max=4)
    queues.load()
    keys = [QueueKey("orders", number) for number in range(4)]
    first = [(*key, 0, 100 * key.queue_id, 100, 0) for key in keys]
    second = [(*key, offset, 1000 * offset + 100 * key.queue_id, 100, 0) for key in keys for offset in (1, 2)]
    queues.append(batch_of(first))
    queues.flush()
    queues.append(batch_of(second))
    ticket = queues.begin_flush()
    later = [(*keys[0], 2, 9000, 100, 7)]  # offset 2 was given out again
    assert len(queues.append(batch_of(later))) == 1
    ticket.sync()
    queues.end_flush(ticket)
    queues.flush()
    queues.close()

    assert files_of(tmp_path) == built(tmp_path / "again", [first, second, later])


class WatchedLock(FaultyDisk):
    """Notes for each sync of a file or directory whether the lock is held that the owner of the queues needs."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.held = []

    def open(self, path, *, is_cache_trusted=False):
        return WatchedFile(self, super().open(path, is_cache_trusted=is_cache_trusted))

    def create(self, path, size, *, is_sparse=False):
        return WatchedFile(self, super().create(path, size, is_sparse=is_sparse))

    def sync_directory(self, path):
        self.held.append(self.lock.locked())
        super().sync_directory(path)


class WatchedFile(FaultyFile):
    def sync(self):
        self._disk.held.append(self._disk.lock.locked())
        super().sync()


def test_owner_of_queues_does_not_wait_for_the_sync_of_a_full_file(tmp_path):
    """The next file of a queue is created after it: 400 ms of the event loop were measured with slow syncs."""
    disk = WatchedLock()
    queues = ConsumeQueues(disk, str(tmp_path), FILE_SIZE, open_files_max=4)
    queues.load()
    disk.lock = queues._pending.lock
    queues.append(batch_of(messages(0, 50)))
    queues.flush()
    queues.append(batch_of(messages(50, 180)))
    ticket = queues.begin_flush()
    disk.held.clear()
    ticket.sync()
    queues.end_flush(ticket)
    queues.close()

    assert len(disk.held) > 6  # three full files with their directory, and the last
    assert not any(disk.held)
    assert files_of(tmp_path) == built(tmp_path / "again", [messages(0, 180)])


@pytest.mark.parametrize("is_written", [False, True])
def test_units_are_read_over_files_and_tails(tmp_path, queues, is_written):
    queues.append(batch_of(messages(0, 60)))
    queues.flush()
    queues.append(batch_of(messages(60, 110)))
    ticket = queues.begin_flush()
    queues.append(batch_of(messages(110, 130)))
    if is_written:
        ticket.sync()
        queues.end_flush(ticket)
    queue = queues.get(KEY)

    for begin, count in [(0, 130), (0, 200), (50, 12), (58, 60), (60, 50), (59, 1), (105, 10), (129, 5), (130, 1)]:
        expected = units(begin, min(begin + count, 130))
        assert queue.unit_tuples(begin, count) == expected
        assert queue.units(begin, count).physical_offsets.tolist() == [unit[0] for unit in expected]
        assert len(queue.unit_bytes(begin, count)) == 20 * len(expected)
    assert queue.first_offset_from(11_950) == 120
    if not is_written:
        ticket.sync()
        queues.end_flush(ticket)


def test_queue_that_is_cut_while_its_units_are_written_agrees_with_the_log(tmp_path, queues):
    queues.append(batch_of(messages(0, 20)))
    ticket = queues.begin_flush()
    queues.append(batch_of(messages(20, 25)))
    later = [(*KEY, 10, 5000, 100, 7)]  # offset 10 was given out again

    assert len(queues.append(batch_of(later))) == 1
    ticket.sync()
    queues.end_flush(ticket)

    assert queues.flushed.offset == 0  # the truncation is not synced yet
    queues.flush()
    assert queues.flushed.offset == 5100
    assert queues.get(KEY).unit_tuples(0, 50) == [*units(0, 10), (5000, 100, 7)]
    assert files_of(tmp_path) == built(tmp_path / "again", [messages(0, 25), later])


def test_full_disk_loses_nothing_and_the_next_flush_continues(tmp_path, queues, disk):
    queues.append(batch_of(messages(0, 60)))
    disk.files_left = 1
    ticket = queues.begin_flush()
    ticket.sync()
    queues.append(batch_of(messages(60, 65)))

    with pytest.raises(DiskFull):
        queues.end_flush(ticket)

    assert queues.flushed.offset == 0
    assert queues.get(KEY).unit_tuples(0, 100) == units(0, 65)
    with pytest.raises(DiskFull):
        queues.flush()
    disk.is_full = False
    queues.flush()
    assert queues.flushed.offset == 6500
    assert queues.get(KEY).unit_tuples(0, 100) == units(0, 65)
    assert files_of(tmp_path) == built(tmp_path / "again", [messages(0, 65)])


class DiskWithoutBlocks(FaultyDisk):
    """Has space for names, but not for data while `has_blocks` is false; records the directories that are synced."""

    def __init__(self):
        super().__init__()
        self.has_blocks = True
        self.synced = set()

    def create(self, path, size, *, is_sparse=False):
        return FileWithoutBlocks(self, super().create(path, size, is_sparse=is_sparse))

    def sync_all(self, files, directories):
        self.synced.update(directories)
        super().sync_all(files, directories)


class FileWithoutBlocks(FaultyFile):
    def allocate(self, position, size):
        if not self._disk.has_blocks:
            raise DiskFull(self.path, size)
        super().allocate(position, size)


@pytest.mark.parametrize("key", [KEY, QueueKey("orders", 7), QueueKey("bills", 0)], ids=["file", "queue", "topic"])
def test_names_created_before_the_disk_was_full_are_synced_by_the_next_flush(tmp_path, key):
    disk = DiskWithoutBlocks()
    queues = ConsumeQueues(disk, str(tmp_path), FILE_SIZE)
    queues.load()
    queues.append(batch_of(messages(0, 52)))
    queues.flush()
    begin = 52 if key == KEY else 0
    queues.append(batch_of(messages(begin, begin + 1, key=key, base=5200)))
    disk.has_blocks = False
    with pytest.raises(DiskFull):
        queues.flush()

    disk.has_blocks = True
    disk.synced.clear()
    queues.flush()
    queues.close()

    root = f"{tmp_path}/consumequeue"
    expected = {f"{root}/{key.topic}/{key.queue_id}"}
    if key != KEY:
        expected.add(f"{root}/{key.topic}")
    if key.topic != KEY.topic:
        expected.add(root)
    assert disk.synced >= expected


def test_after_a_full_disk_units_are_added_to_those_that_did_not_fit(tmp_path, queues, disk):
    """The error references the failed write, and with it a view of the units, for as long as it is referenced."""
    queues.append(batch_of(messages(0, 20)))
    disk.is_full = True
    ticket = queues.begin_flush()
    ticket.sync()
    with pytest.raises(DiskFull) as kept:
        queues.end_flush(ticket)

    queues.append(batch_of(messages(20, 25)))

    assert (queues.pending_bytes, queues.get(KEY).unit_tuples(0, 100)) == (500, units(0, 25))
    disk.is_full = False
    queues.flush()
    assert files_of(tmp_path) == built(tmp_path / "again", [messages(0, 25)])
    assert kept.value is ticket.no_space


def test_queues_are_full_when_pending_units_exceed_their_memory(queues, monkeypatch):
    assert PENDING_BYTES_MAX >= 1 << 20
    monkeypatch.setattr("store.queues.consume_queues.PENDING_BYTES_MAX", 1000)
    queues.append(batch_of(messages(0, 49)))
    assert (queues.is_full, queues.pending_bytes) == (False, 980)
    queues.append(batch_of(messages(49, 50)))
    assert queues.is_full

    queues.append(batch_of(messages(50, 51)))  # without a flush of the caller it happens here

    assert (queues.is_full, queues.pending_bytes, queues.flushed.offset) == (False, 20, 5000)


def test_queues_are_read_appended_to_and_cut_while_another_thread_writes(tmp_path, queues, disk):
    keys = [QueueKey(f"t{number % 5}", number) for number in range(200)]
    log, end = [], 0
    for turn in range(6):
        batch = []
        for key in keys:
            batch.append((*key, turn, end, 100, 0))
            end += 100
        log.append(batch)
        queues.append(batch_of(batch))
        if turn != 3:  # a truncation syncs
            disk.is_going.clear()
        ticket = queues.begin_flush()
        writing = threading.Thread(target=ticket.sync)
        writing.start()
        if turn == 3:
            again = [(*key, 3, end + number * 100, 100, 1) for number, key in enumerate(keys[::7])]
            end += 100 * len(again)
            log.append(again)
            assert len(queues.append(batch_of(again))) == len(again)
        for key in keys:
            assert len(queues.get(key).unit_tuples(0, 100)) == turn + 1
        disk.is_going.set()
        writing.join(PATIENCE_S)
        queues.end_flush(ticket)
    queues.flush()

    assert queues.flushed.offset == end
    assert files_of(tmp_path) == built(tmp_path / "again", log)

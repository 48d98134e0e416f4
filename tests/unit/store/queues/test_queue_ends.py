"""Queues whose ends are known although all their messages are deleted."""

import pytest

from store.errors import DiskFull
from store.fs.linux.files import OsFiles
from store.model.message import QueueKey
from store.model.queue_ends import QueueEnds
from store.queues.consume_queues import ConsumeQueues
from store.queues.out_of_order_units import GAP_UNITS_MAX
from tests.support.dispatch_batches import batch_of
from tests.support.faulty_disk import FaultyDisk

KEY = QueueKey("orders", 0)
UNITS_A_FILE = 50
SIZE = 100
LOG_BEGIN = 100_000


@pytest.fixture
def open_queues(tmp_path):
    """Return a function that reopens the queues of one directory; all writes are made durable."""
    opened = []

    def open_again():
        while opened:
            opened[-1].flush()
            opened.pop().close()
        queues = ConsumeQueues(OsFiles(), str(tmp_path), UNITS_A_FILE * 20)
        opened.append(queues)
        assert queues.load() == []
        return queues

    yield open_again
    while opened:
        opened.pop().close()


def messages(begin, end, base):
    return batch_of([(*KEY, offset, base + (offset - begin) * SIZE, SIZE) for offset in range(begin, end)])


def extend(queues, ends, log_begin):
    """Set the known ends of queues, all at once."""
    for _ in queues.extend_in_steps(ends, log_begin):
        continue


@pytest.mark.parametrize("end", [1, UNITS_A_FILE - 1, UNITS_A_FILE, 10 * UNITS_A_FILE, 10 * UNITS_A_FILE + 7])
@pytest.mark.parametrize("has_expired", [False, True])
def test_queue_that_is_extended_follows_the_log_and_gives_its_next_message_the_next_offset(
    open_queues, end, has_expired
):
    queues = open_queues()
    if has_expired:
        queues.append(messages(0, 1, 0))
    extend(queues, {KEY: end}, LOG_BEGIN)
    queues.expire(LOG_BEGIN + 50)
    for _ in range(2):
        queue = queues.get(KEY)
        expected = (1, 1, 100) if (has_expired, end) == (True, 1) else (end, end, 0)
        assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == expected
        queues = open_queues()
        extend(queues, {KEY: end}, LOG_BEGIN)
        queues.expire(LOG_BEGIN + 60)
    queues.append(messages(end, end + 2, LOG_BEGIN + 100))
    for _ in range(2):
        queue = queues.get(KEY)
        assert (queue.min_offset, queue.max_offset) == (end, end + 2)
        assert queue.unit_tuples(end, 10) == [(LOG_BEGIN + 100, SIZE, 0), (LOG_BEGIN + 200, SIZE, 0)]
        queues = open_queues()
        queues.expire(LOG_BEGIN + 60)


def allocated_bytes(path):
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def test_queues_of_expired_messages_take_no_disk_until_their_next_message(open_queues, tmp_path):
    queues = open_queues()
    ends = {QueueKey("orders", number): 7 * UNITS_A_FILE - 1 for number in range(20)}
    extend(queues, ends, LOG_BEGIN)
    queues.flush()
    assert allocated_bytes(tmp_path) == 0
    assert queues.next_offsets() == ends
    digest = queues.digest()
    queues = open_queues()
    assert digest == queues.digest(), "as the files have them that are loaded again"


def test_first_message_of_an_expired_queue_gets_the_blanks_that_rocketmq_needs(open_queues, tmp_path):
    queues, end = open_queues(), 3 * UNITS_A_FILE - 5
    extend(queues, {KEY: end}, LOG_BEGIN)
    queues.append(messages(end, end + 20, LOG_BEGIN))
    queue = queues.get(KEY)
    assert queues.pending_bytes == 20 * 20, "blanks take no memory"
    for _ in range(2):
        first = queue.begin_offset
        assert (first, queue.min_offset, queue.max_offset) == (2 * UNITS_A_FILE, end, end + 20)
        assert queue.units(first, end - first).is_blank.all()
        assert queue.unit_tuples(first, 1) == [(0, 0x7FFFFFFF, 0)]
        assert queue.unit_tuples(end - 1, 2) == [(0, 0x7FFFFFFF, 0), (LOG_BEGIN, SIZE, 0)]
        queues = open_queues()
        queues.expire(LOG_BEGIN)
        queue = queues.get(KEY)
    names = sorted(file.name for file in tmp_path.rglob("0*") if file.is_file())
    assert [int(name) for name in names] == [2 * UNITS_A_FILE * 20, 3 * UNITS_A_FILE * 20]


@pytest.mark.parametrize(("offset", "is_taken"), [(-3, True), (4, True), (GAP_UNITS_MAX + 1, False)])
def test_first_message_of_an_expired_queue_is_checked_by_its_offset(open_queues, offset, is_taken):
    queues, end = open_queues(), 10 * UNITS_A_FILE + 5
    extend(queues, {KEY: end}, LOG_BEGIN)
    out_of_order = queues.append(messages(end + offset, end + offset + 2, LOG_BEGIN))
    assert len(out_of_order) == (0 if offset == 4 else 1)
    queue = queues.get(KEY)
    assert (queue.min_offset, queue.max_offset) == ((end + offset, end + offset + 2) if is_taken else (end, end))


def test_queue_with_messages_is_filled_up_with_blanks(open_queues):
    queues = open_queues()
    queues.append(messages(0, 3, LOG_BEGIN))
    extend(queues, {KEY: UNITS_A_FILE}, LOG_BEGIN)
    queue = queues.get(KEY)
    assert (queue.min_offset, queue.max_offset) == (0, UNITS_A_FILE)
    assert queue.units(3, 100).is_blank.all()


def test_queue_that_is_as_long_or_longer_is_unchanged(open_queues):
    queues = open_queues()
    queues.append(messages(0, 3, 0))
    extend(queues, {KEY: 3, QueueKey("orders", 1): 0, QueueKey("../no", 1): 5}, LOG_BEGIN)
    assert queues.next_offsets() == {KEY: 3}
    assert queues.get(KEY).max_physical_offset == 300


def test_merging_two_end_tables_keeps_the_greater_ends():
    one = QueueEnds(100, {KEY: 5, QueueKey("a", 0): 1})
    other = QueueEnds(70, {KEY: 3, QueueKey("b", 0): 2})
    joined = QueueEnds(100, {KEY: 5, QueueKey("a", 0): 1, QueueKey("b", 0): 2})
    assert one.joined(other) == other.joined(one) == joined


@pytest.fixture
def full_disk(tmp_path):
    """Return queues on a disk without space for any file."""
    disk = FaultyDisk()
    queues = ConsumeQueues(disk, str(tmp_path), UNITS_A_FILE * 20)
    queues.load()
    queues.append(messages(0, 3, LOG_BEGIN))
    disk.is_full = True
    yield queues
    queues.close()


def test_blanks_of_one_queue_are_bounded_however_often_a_full_disk_refuses_them(full_disk, monkeypatch):
    monkeypatch.setattr("store.queues.consume_queue._BLANKS_PENDING_BYTES_MAX", 1000)
    monkeypatch.setattr("store.queues.consume_queue._CHUNK_COUNT", 100)
    for _ in range(10):
        with pytest.raises(DiskFull):
            extend(full_disk, {KEY: 10_000}, LOG_BEGIN)
        assert full_disk.pending_bytes <= 1000 + 100 * 20


def test_queues_are_extended_one_a_step_to_let_the_caller_flush(open_queues, monkeypatch):
    monkeypatch.setattr("store.queues.consume_queues.PENDING_BYTES_MAX", 3 * UNITS_A_FILE * 20)
    queues = open_queues()
    ends = {QueueKey("orders", number): 2 * UNITS_A_FILE - 1 for number in range(20)}
    for number, key in enumerate(ends):
        queues.append(batch_of([(*key, 0, LOG_BEGIN + number * SIZE, SIZE)]))
    queues.flush()
    flushed_count = 0
    for _ in queues.extend_in_steps(ends, LOG_BEGIN):
        assert queues.pending_bytes <= 4 * UNITS_A_FILE * 20
        if queues.is_full:
            queues.flush()
            flushed_count += 1
    assert flushed_count >= 5
    assert queues.next_offsets() == ends

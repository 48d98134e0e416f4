"""Consume queues: the effect of batches, refused ones, and the state after truncations."""

import pytest

from store.fs.linux.files import OsFiles
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from store.queues.offset_by_time import Boundary, offset_by_time
from store.queues.unit import BLANK_SIZE, UNIT
from tests.support.dispatch_batches import batch_of

KEY = QueueKey("orders", 0)
SIZE = 100
FILE_SIZE = 1024  # 1040 in whole units: 52 of them


@pytest.fixture
def open_queues(tmp_path):
    """Return a function that reopens the queues of one directory."""
    opened = []

    def open_again(file_size=FILE_SIZE, **options):
        while opened:
            opened[-1].flush()
            opened.pop().close()
        queues = ConsumeQueues(OsFiles(), str(tmp_path), file_size, **options)
        opened.append(queues)
        assert queues.load() == []
        return queues

    yield open_again
    while opened:
        opened.pop().close()


def messages(begin, end, *, key=KEY, base=0):
    """Return messages of one queue that are consecutive in the log from `base` on."""
    return [(*key, offset, base + (offset - begin) * SIZE, SIZE, offset) for offset in range(begin, end)]


def physical_offsets(queue):
    return [unit[0] for unit in queue.unit_tuples(queue.min_offset, 1 << 20)]


def test_file_size_is_rounded_up_to_whole_units_and_files_are_named_by_their_first_byte(tmp_path, open_queues):
    queues = open_queues()
    queues.append(batch_of(messages(0, 53)))
    queues.flush()

    files = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())
    assert [(file.name, file.stat().st_size) for file in files] == [
        ("00000000000000000000", 1040),
        ("00000000000000001040", 1040),
    ]


def test_units_are_read_over_the_borders_of_files_and_after_reopening(open_queues):
    open_queues().append(batch_of(messages(0, 120)))

    queue = open_queues().get(KEY)

    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 120, 12_000)
    assert queue.unit_tuples(50, 4) == [(5000 + n * SIZE, SIZE, 50 + n) for n in range(4)]
    units = queue.units(50, 4)
    assert units.physical_offsets.tolist() == [5000, 5100, 5200, 5300]
    assert units.tags_codes.tolist() == [50, 51, 52, 53]
    assert queue.unit_tuples(118, 100) == [(11_800, SIZE, 118), (11_900, SIZE, 119)]
    assert queue.unit_tuples(120, 1) == queue.unit_tuples(-1, 1) == []


def test_repeated_batch_changes_nothing(open_queues):
    queues = open_queues()
    queues.append(batch_of(messages(0, 60)))

    assert queues.append(batch_of(messages(0, 60))) == []
    assert queues.append(batch_of(messages(0, 70))) == []

    assert physical_offsets(queues.get(KEY)) == [n * SIZE for n in range(70)]


def test_queue_that_begins_within_a_file_has_blanks_before_and_its_first_message_as_minimum(open_queues):
    open_queues().append(batch_of(messages(60, 65)))

    queue = open_queues().get(KEY)
    assert (queue.min_offset, queue.max_offset) == (60, 65)
    assert queue.unit_tuples(52, 8) == [(0, BLANK_SIZE, 0)] * 8

    queue.expire(0)

    assert (queue.min_offset, queue.max_offset) == (60, 65)


def test_minimum_follows_the_logs_begin_and_files_without_messages_go(tmp_path, open_queues):
    queues = open_queues()
    queues.append(batch_of(messages(0, 120)))
    queues.flush()
    queue = queues.get(KEY)

    queues.expire(2000)
    assert queue.min_offset == 20
    queues.expire(10_399)
    assert (queue.min_offset, queue.begin_offset) == (104, 104)
    queues.expire(1 << 40)

    assert (queue.min_offset, queue.max_offset) == (120, 120)
    assert [file.name for file in (tmp_path / "consumequeue/orders/0").iterdir()] == [f"{2080:020d}"]
    assert open_queues().get(KEY).max_offset == 120


def test_truncation_by_physical_offset_leaves_no_stale_byte(tmp_path, open_queues):
    queues = open_queues()
    queues.append(batch_of(messages(0, 120)))

    queues.truncate(3000)
    again = open_queues()

    assert (again.get(KEY).max_offset, again.max_physical_offset) == (30, 3000)
    [file] = (tmp_path / "consumequeue/orders/0").iterdir()
    assert file.read_bytes()[30 * 20 :] == bytes(1040 - 30 * 20)


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(bytes(20), id="zeros"),
        pytest.param(UNIT.pack(40, SIZE, 7), id="the end of a unit"),
        pytest.param(UNIT.pack(500, 0, 0), id="the head of a unit"),
        pytest.param(UNIT.pack(-5, SIZE, 0), id="no offset"),
    ],
)
def test_impossible_unit_ends_the_queue_although_units_follow_it(tmp_path, open_queues, torn):
    queues = open_queues()
    queues.append(batch_of(messages(0, 20)))
    queues.get(KEY).overwrite(5, torn)

    queues.truncate(1 << 40)

    assert queues.get(KEY).max_offset == open_queues().get(KEY).max_offset == 5
    [file] = (tmp_path / "consumequeue/orders/0").iterdir()
    assert file.read_bytes()[5 * 20 :] == bytes(1040 - 5 * 20)


def test_last_unit_is_cut_when_the_log_has_no_such_message(open_queues):
    queues = open_queues()
    queues.append(batch_of(messages(0, 20)))
    asked = []

    queues.truncate(1500, lambda *unit: asked.append(unit))

    assert asked == [(KEY, 14, 1400, SIZE)]
    assert queues.get(KEY).max_offset == 14


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(0, 0, 0), (10, 0, 0), (15, 1, 0), (20, 1, 3), (25, 4, 3), (30, 4, 4), (31, 5, 4)],
)
def test_time_search_finds_the_borders_of_equal_times(open_queues, timestamp, lower, upper):
    times = [10, 20, 20, 20, 30]
    queues = open_queues()
    queues.append(batch_of(messages(0, 5)))

    def found(boundary):
        return offset_by_time(queues.get(KEY), timestamp, boundary, lambda at, *_: times[at], 0)

    assert (found(Boundary.LOWER), found(Boundary.UPPER)) == (lower, upper)

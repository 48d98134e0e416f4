"""Messages whose queue offset is not the next one: the log decides, wherever dispatching began."""

import pytest

from store.fs.linux.files import OsFiles
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from store.queues.out_of_order_units import GAP_UNITS_MAX
from store.queues.unit import BLANK, BLANK_SIZE, UNIT
from tests.support.dispatch_batches import batch_of

KEY = QueueKey("orders", 0)
SIZE = 10


@pytest.fixture
def queues(tmp_path):
    opened = ConsumeQueues(OsFiles(), str(tmp_path), 2000)
    opened.load()
    yield opened
    opened.close()


def batch(*queue_offsets, begin=0, key=KEY):
    """Make a batch of messages, ten bytes each, with these queue offsets."""
    return batch_of([(*key, offset, begin + number * SIZE, SIZE) for number, offset in enumerate(queue_offsets)])


def places(queues):
    queue = queues.get(KEY)
    units = queue.unit_tuples(queue.begin_offset, 1 << 20)
    return [None if size == BLANK_SIZE else offset // SIZE for offset, size, _ in units]


def test_gap_becomes_blank(queues):
    assert queues.append(batch(0, 1, 4, 5)) == []

    assert places(queues) == [0, 1, None, None, 2, 3]


def test_single_queue_offset_out_of_order_is_left_out_and_reported(queues):
    for wrong in (1, 9, GAP_UNITS_MAX * 9, -5, 1 << 62):
        queues.remove_all()
        [reported] = queues.append(batch(0, 1, 2, wrong, 4, 5))

        assert (reported.queue_offset, reported.physical_offset, reported.expected) == (wrong, 30, "queue offset 3")
        assert "left out" in reported.action
        assert places(queues) == [0, 1, 2, None, 4, 5]


def test_queue_offset_far_above_the_end_allocates_nothing_for_the_gap(queues):
    queues.append(batch(0, 1))

    [reported] = queues.append(batch(GAP_UNITS_MAX + 3, begin=20))

    assert str(GAP_UNITS_MAX) in reported.action
    assert places(queues) == [0, 1]


def test_queue_offsets_assigned_twice_belong_to_the_later_messages(queues):
    log = batch(0, 1, 2, 3, 4, 2, 3)

    [reported] = queues.append(log)

    assert (reported.queue_offset, reported.physical_offset) == (2, 50)
    assert places(queues) == [0, 1, 5, 6]
    assert queues.append(log) == []  # repeating it changes nothing
    assert places(queues) == [0, 1, 5, 6]
    for begin in range(1, 7):
        queues.append(batch(*[0, 1, 2, 3, 4, 2, 3][begin:], begin=begin * SIZE))
        assert places(queues) == [0, 1, 5, 6]


def test_queue_that_started_again_at_zero_begins_there(queues):
    queues.append(batch(500, 501))

    queues.append(batch(0, 1, begin=20))

    assert places(queues) == [2, 3]
    assert (queues.get(KEY).min_offset, queues.get(KEY).max_offset) == (0, 2)


@pytest.mark.parametrize("unit", [BLANK, bytes(20), UNIT.pack(20, 9, 0), UNIT.pack(10, 10, 0), UNIT.pack(55, 10, 0)])
def test_unit_that_contradicts_the_log_is_corrected(queues, unit):
    queues.append(batch(0, 1, 2, 3, 4, 5))
    queues.get(KEY).overwrite(2, unit)

    [reported] = queues.append(batch(0, 1, 2, 3, 4, 5))

    assert (reported.queue_offset, reported.physical_offset) == (2, 20)
    assert places(queues) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("topic", ["..", "../../etc", "a/b", "", "a" * 256, "ä", "a\0b", "."])
def test_invalid_topic_never_becomes_part_of_a_path(queues, tmp_path, topic):
    [reported] = queues.append(batch(0, key=QueueKey(topic, 0)))

    assert "left out" in reported.action
    assert list(tmp_path.rglob("*")) == []


def test_invalid_queue_number_creates_no_directory(queues, tmp_path):
    assert len(queues.append(batch(0, key=QueueKey("a", -1)))) == 1
    assert list(tmp_path.rglob("*")) == []


def test_unknown_directories_are_reported_and_unchanged(tmp_path):
    for name in ("a b/0", "orders/x", "orders/01", "orders/99999999999"):
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    (tmp_path / "consumequeue/notes").touch()
    (tmp_path / "consumequeue/orders/7").touch()
    queues = ConsumeQueues(OsFiles(), str(tmp_path), 2000)

    notes = queues.load()

    assert [note.partition(": ")[0].removeprefix(f"{tmp_path}/consumequeue/") for note in notes] == [
        "a b",
        "notes",
        "orders/01",
        "orders/7",
        "orders/99999999999",
        "orders/x",
    ]
    assert list(queues) == []


def test_few_open_files_serve_many_queues(tmp_path):
    queues = ConsumeQueues(OsFiles(), str(tmp_path), 2000, open_files_max=4)
    queues.load()
    keys = [QueueKey("orders", number) for number in range(50)]
    for turn in range(3):
        queues.append(batch_of([(*key, turn, (turn * 50 + key.queue_id) * SIZE, SIZE) for key in keys]))
        assert len(queues._pool._open) <= 4
    queues.flush()
    queues.close()

    again = ConsumeQueues(OsFiles(), str(tmp_path), 2000, open_files_max=4)
    again.load()

    for key in keys:
        expected = [((turn * 50 + key.queue_id) * SIZE, SIZE, 0) for turn in range(3)]
        assert again.get(key).unit_tuples(0, 9) == expected
    assert len(again._pool._open) <= 4
    again.close()

"""One changed bit of a unit, which no checksum covers, hides no message that the log still has."""

import shutil
from pathlib import Path

import pytest

from store.model.message import Message, QueueKey
from store.queues.offset_by_time import NEIGHBOURS_MAX, Boundary
from store.queues.unit import UNIT
from tests.support.message_stores import Clock, open_small

LOG_FILE = 65536
# Of a unit of 20 bytes: the byte of the physical offset that has the bit of 65,536.
OFFSET_BYTE = 5


def expired(root, clock, changed=None):
    """Change a unit of a copy of the store, delete the first file of its log: (first offset, where the files begin)."""
    copy = root.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    store = open_small(copy, clock=clock)
    if changed is not None:
        file, unit = divmod(changed, 50)
        with (copy / "consumequeue" / "T" / "0" / f"{1000 * file:020d}").open("r+b") as stream:
            stream.seek(unit * 20 + OFFSET_BYTE)
            stream.write(b"\0")
    store.log.delete_before(LOG_FILE)
    store.messages.expire()
    queue = store.messages.derived.queues.get(QueueKey("T", 0))
    found = queue.min_offset, queue.begin_offset
    store.close()
    return found


def test_expiry_of_a_queue_is_not_misled(tmp_path):
    root, clock = tmp_path / "store", Clock()
    store = open_small(root, clock=clock)
    for number in range(600):
        clock.pass_s(0.01)
        store.messages.put(Message("T", b"%05d" % number * 20))
    store.dispatch()
    store.close()
    first, begin = expired(root, clock)
    assert begin < first < begin + 49

    # The last unit of the first kept file decides whether that file is deleted; a binary search reads the others.
    for changed in (begin + 49, *range(first + 1, first + 30, 3), (begin + 600) // 2):
        assert expired(root, clock, changed) == (first, begin), changed


@pytest.fixture
def timed(tmp_path):
    """A store with a message of each of two topics a second."""
    clock = Clock()
    store = open_small(tmp_path / "store", clock=clock)
    for number in range(20):
        clock.pass_s(1)
        store.messages.put_many([Message("T", b"%d" % number), Message("Other", b"%d" % number)])
    store.dispatch()
    yield store
    store.close()


@pytest.mark.parametrize("unit_of", ["newest", "oldest", "nowhere"])
def test_time_search_is_not_misled_by_the_message_of_another_topic(timed, unit_of):
    """A damaged unit has the time of the message after it: no result is after the right one."""
    queues, messages = timed.messages.derived.queues, timed.messages
    queue, other = queues.get(QueueKey("T", 0)), queues.get(QueueKey("Other", 0))
    wrong = {
        "newest": other.unit_bytes(19, 1),
        "oldest": other.unit_bytes(0, 1),
        "nowhere": UNIT.pack(1 << 40, 100, 0),
    }[unit_of]
    times = [messages.get("T", 0, at, 1).messages[0].store_timestamp for at in range(20)]
    for damaged in range(20):
        right = queue.unit_bytes(damaged, 1)
        queue.overwrite(damaged, wrong)
        for at, time in enumerate(times):
            lower, upper = (messages.offset_by_time("T", 0, time, each) for each in Boundary)
            assert lower == (damaged if at == damaged + 1 else at), (damaged, at)
            assert upper == (max(0, at - 1) if at == damaged else at), (damaged, at)
        assert messages.offset_by_time("T", 0, times[-1] + 1) == (19 if damaged == 19 else 20)
        assert messages.earliest_message_time("T", 0) == times[1 if damaged == 0 else 0]
        queue.overwrite(damaged, right)


@pytest.mark.parametrize("moved_ms", [-100_000, 100_000])
def test_time_search_is_not_misled_by_the_time_of_one_record(timed, moved_ms):
    """No checksum covers the time of a record in a plain log: its neighbours decide, and never for a later message."""
    messages = timed.messages
    found = [messages.get("T", 0, at, 1).messages[0] for at in range(20)]
    times = [message.store_timestamp for message in found]
    path = Path(timed.log.files()[0].path)
    for damaged in range(1, 20):
        with path.open("r+b") as stream:
            for moved, is_checked in ((moved_ms, True), (0, False)):
                stream.seek(found[damaged].physical_offset + 56)
                stream.write((times[damaged] + moved).to_bytes(8, "big"))
                stream.flush()
                for at in range(20) if is_checked else ():
                    lower, upper = (messages.offset_by_time("T", 0, times[at], each) for each in Boundary)
                    assert at - 2 <= lower <= at, (damaged, at)
                    assert at - 3 <= upper <= at, (damaged, at)
                    if not 0 <= at - damaged <= 2 and damaged - at != 1:
                        assert (lower, upper) == (at, at), (damaged, at)


def test_time_search_looks_at_a_bounded_number_of_damaged_units(timed):
    queue = timed.messages.derived.queues.get(QueueKey("T", 0))
    for damaged in range(1, 19):
        queue.overwrite(damaged, UNIT.pack(1 << 40, 100, 0))
    last = timed.messages.get("T", 0, 19, 1).messages[0].store_timestamp

    # The search cannot know on which side of the damage the time is: the reader gets more, not less.
    assert timed.messages.offset_by_time("T", 0, last) == 1


def test_time_search_begins_where_the_log_begins_before_the_queue_follows(tmp_path):
    clock = Clock()
    store = open_small(tmp_path / "store", clock=clock)
    for number in range(600):
        clock.pass_s(1)
        store.messages.put(Message("T", b"%05d" % number * 20))
    store.dispatch()
    last = store.messages.get("T", 0, 599, 1).messages[0].store_timestamp
    store.log.delete_before(LOG_FILE)

    assert store.messages.min_offset("T", 0) == 0
    assert store.messages.offset_by_time("T", 0, last) == 599
    first = store.messages.offset_by_time("T", 0, 0)
    store.messages.expire()
    assert first == store.messages.min_offset("T", 0) > NEIGHBOURS_MAX
    store.close()

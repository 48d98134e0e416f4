"""One changed bit of the key index, which no checksum covers, hides no message that the log still has."""

import shutil

import pytest

from store.errors import CorruptData
from store.fs.linux.files import OsFiles
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from store.model.message import Message
from tests.support.dispatch_batches import batch_of
from tests.support.message_stores import SMALL, Clock, open_small

LAYOUT = IndexLayout(10, 5)  # four keys a file
NOON = 1_700_000_000_000
COUNT = 10
INTERVAL_MS = 3_700
# Low bits, high bits and the sign bit of fields of the header: both physical offsets, slots in use, next item number.
HEADER = [
    *(byte * 8 + bit for end in (24, 32) for byte, bit in ((end - 1, 1), (end - 1, 5), (end - 2, 0), (end - 8, 7))),
    *(35 * 8 + bit for bit in (0, 1)),
    *(39 * 8 + bit for bit in range(8)),
]


def change_bit(path, bit):
    """Change one bit of a file, counted from its first byte, lowest bits first."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def bits_of_item(number):
    """Return bits of the item's physical offset.

    Without the lowest ones: the changed offset would stay between those of its neighbours, which no check detects.
    """
    begin = 40 + 4 * LAYOUT.slots + 20 * number
    return [(begin + byte) * 8 + bit for byte, bit in ((11, 5), (10, 0), (8, 6), (4, 7))]


def write(root, interval_ms):
    """Index ten messages at offsets 0, 10 and so on: four of them in each of two files, two in the last one."""
    index = KeyIndex(OsFiles(), str(root), LAYOUT)
    index.load()
    rows = [("t", 0, None, at * 10, 10, 0, NOON + at * interval_ms, [at]) for at in range(COUNT)]
    index.append(batch_of(rows))
    index.flush()
    index.close()
    return root


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(tmp_path_factory.mktemp("index"), 1)


@pytest.fixture(scope="module")
def slowly_written(tmp_path_factory):
    return write(tmp_path_factory.mktemp("slow"), INTERVAL_MS)


def changed(written, root, place, bit):
    """Open a copy in which a bit of the file in that place is another one; None: it is refused, and rebuilt."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(written, root)
    change_bit(sorted((root / "index").iterdir())[place], bit)
    index = KeyIndex(OsFiles(), str(root), LAYOUT)
    try:
        index.load()
    except CorruptData:
        return None
    return index


@pytest.mark.parametrize(("place", "bits"), [(0, [*HEADER, *bits_of_item(4)]), (1, [*HEADER, *bits_of_item(1)])])
def test_expiry_deletes_no_file_of_messages_that_the_log_has(written, tmp_path, place, bits):
    for bit in bits:
        index = changed(written, tmp_path, place, bit)
        if index is None:
            continue
        index.expire(30)
        assert len(index.files) == 3, bit
        # When the log begins after the first message of the next file, this one is deleted, at the latest.
        index.expire(41)
        assert len(index.files) == 2 or place == 1, bit
        index.close()


@pytest.mark.parametrize("place", [1, 2])
def test_truncation_after_a_crash_returns_the_offset_from_which_items_may_be_missing(written, tmp_path, place):
    """Items lost below the truncation are dispatched again; `verify` checks items of older files."""
    for bit in [*HEADER, *(bit for number in (1, 2) for bit in bits_of_item(number) if place == 2)]:
        index = changed(written, tmp_path, place, bit)
        if index is None:
            continue
        certain = index.truncate(85, lambda offset: NOON + offset // 10)
        again = [number for number in range(COUNT) if number * 10 >= certain]
        index.append(batch_of([("t", 0, None, number * 10, 10, 0, NOON + number, [number]) for number in again]))
        found = [index.query(number, 0, 1 << 50, 9).physical_offsets for number in range(COUNT)]
        assert found == [[number * 10] for number in range(COUNT)], (bit, certain)
        index.close()


def times_of_items(first, last):
    """Return bits of the seconds of these items; after a low one changed, the times of the items may still ascend."""
    begins = (40 + 4 * LAYOUT.slots + 20 * number + 12 for number in range(first, last + 1))
    return [(begin + byte) * 8 + bit for begin in begins for byte, bit in ((0, 7), (0, 6), (1, 3), (3, 6))]


@pytest.mark.parametrize("is_log_there", [True, False])
@pytest.mark.parametrize(("place", "count"), [(0, 4), (2, 2)])
def test_changed_time_hides_no_message_from_a_query_of_its_time(slowly_written, tmp_path, place, count, is_log_there):
    def store_timestamp_of(offset):
        return NOON + offset // 10 * INTERVAL_MS if is_log_there else 0

    # Bits of both times of the header: below a second, above a second, and the sign bit.
    header = [(end - 1 - bit // 8) * 8 + bit % 8 for end in (8, 16) for bit in (0, 9, 10, 13, 20, 40, 63)]
    for bit in [*header, *times_of_items(1, count)]:
        index = changed(slowly_written, tmp_path, place, bit)
        index.prove_times(store_timestamp_of)
        for number in range(COUNT):
            time = NOON + number * INTERVAL_MS
            assert index.query(number, time, time, 9).physical_offsets == [number * 10], (bit, number)
        index.close()


@pytest.mark.parametrize("number", [2, 3])
def test_changed_seconds_of_an_item_hide_no_other_item(slowly_written, tmp_path, number):
    """All messages have one key, so the damaged item is in the middle of its chain."""
    root, index = tmp_path / "written", KeyIndex(OsFiles(), str(tmp_path / "written"), LAYOUT)
    index.load()
    index.append(batch_of([("t", 0, None, at * 10, 10, 0, NOON + at * INTERVAL_MS, [7]) for at in range(4)]))
    index.flush()
    index.close()
    for bit in range(32):
        index = changed(root, tmp_path / "changed", 0, (40 + 4 * LAYOUT.slots + 20 * number + 12) * 8 + bit)
        for at in {*range(4)} - {number - 1}:
            time = NOON + at * INTERVAL_MS
            assert at * 10 in index.query(7, time, time, 9).physical_offsets, (bit, at)
        index.close()


def test_damaged_times_of_a_header_are_corrected_once_from_the_log(slowly_written, tmp_path):
    index = changed(slowly_written, tmp_path, 1, 6 * 8 + 4)
    asked = []

    def store_timestamp_of(offset):
        asked.append(offset)
        return NOON + offset // 10 * INTERVAL_MS

    (note,) = index.prove_times(store_timestamp_of)

    assert "corrected from the log" in note
    assert asked == [40, 70]
    index.close()
    for file in (tmp_path / "index").iterdir():
        assert file.read_bytes() == (slowly_written / "index" / file.name).read_bytes()
    index.load()
    assert index.prove_times(store_timestamp_of) == []
    assert len(asked) == 2
    index.close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("deleted", [0, 3])
def test_items_after_a_damaged_time_count_from_the_right_one(tmp_path, is_clean, deleted):
    """With `deleted`, the log no longer has the first messages, from which the time would be corrected."""
    last_item = 40 + 4 * SMALL.store.max_hash_slot_num + 20 * 8
    for bit in (
        5 * 8 + 3,
        5 * 8 + 7,
        13 * 8 + 3,
        (last_item + 15) * 8 + 5,
    ):  # begin time, end time, time of the last item
        root, clock = tmp_path / str(bit), Clock()
        store = open_small(root, clock=clock)
        times = [put_with_key(store, clock, number) for number in range(8)]
        store.log.delete_before(SMALL.log.mapped_file_size if deleted else 0)
        store.close()
        (path,) = (root / "index").iterdir()
        change_bit(path, bit)
        if not is_clean:
            (root / "abort").touch()

        for _ in range(2):
            store = open_small(root, clock=clock)
            times.append(put_with_key(store, clock, len(times)))
            for number, time in list(enumerate(times))[deleted:]:
                found = store.messages.query_by_key("T", f"key{number}", 9, time, time).messages
                assert len(found) == 1, (bit, number)
            store.close()


def put_with_key(store, clock, number):
    """Put a message, of which three fit into a file, ten seconds after the one before; return its store timestamp."""
    clock.pass_s(10)
    store.messages.put(Message("T", bytes(20_000), 0, {"KEYS": f"key{number}"}))
    store.dispatch()
    return store.messages.get("T", 0, number, 1).messages[0].store_timestamp


def test_start_after_a_crash_indexes_the_messages_of_a_damaged_file_again(tmp_path):
    root, clock = tmp_path / "store", Clock()
    store = open_small(root, clock=clock)
    for number in range(30):
        clock.pass_s(1)
        store.messages.put(Message("T", b"body", 0, {"KEYS": f"key{number}"}))
    store.dispatch()
    store.close()
    (root / "abort").touch()
    (path,) = (root / "index").iterdir()
    change_bit(path, 39 * 8 + 4)  # the number of items: 15 instead of 31

    store = open_small(root, clock=clock)

    assert any("index: a file was damaged" in note for note in store.notes)
    for number in range(30):
        assert len(store.messages.query_by_key("T", f"key{number}", 9, 0, 1 << 50).messages) == 1, number
    store.close()

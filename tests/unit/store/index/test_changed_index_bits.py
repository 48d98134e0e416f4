"""One changed bit of the key index, which no checksum covers, hides no message that the log still has."""

import shutil

import pytest

from store.errors import CorruptData
from store.fs.linux.files import OsFiles
from store.index.file import IndexLayout
from store.index.key_index import KeyIndex
from store.model.message import Message
from tests.support.dispatch_batches import batch_of
from tests.support.message_stores import Clock, open_small

LAYOUT = IndexLayout(10, 5)  # four keys a file
NOON = 1_700_000_000_000
COUNT = 10
# Of the two physical offsets, the slots in use, and the number of the next item: low and high bits, and the sign.
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
    """Of its physical offset; the lowest ones would keep it between the items before and after: no check sees that."""
    begin = 40 + 4 * LAYOUT.slots + 20 * number
    return [(begin + byte) * 8 + bit for byte, bit in ((11, 5), (10, 0), (8, 6), (4, 7))]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Ten messages at offsets 0, 10 and so on, four of them in each of two files, two in the last one."""
    root = tmp_path_factory.mktemp("index")
    index = KeyIndex(OsFiles(), str(root), LAYOUT)
    index.load()
    index.append(batch_of([("t", 0, None, number * 10, 10, 0, NOON + number, [number]) for number in range(COUNT)]))
    index.flush()
    index.close()
    return root


def changed(written, root, place, bit):
    """Open a copy in which a bit of the file in that place is another one; None: it is refused, and built again."""
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
        # At the latest when the log begins after the first message of the next file, this one goes.
        index.expire(41)
        assert len(index.files) == 2 or place == 1, bit
        index.close()


@pytest.mark.parametrize("place", [1, 2])
def test_cut_after_a_crash_says_from_where_on_items_may_be_missing(written, tmp_path, place):
    """What is not kept below the place of the cut is dispatched again; older files' items are `verify`'s to check."""
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
    change_bit(path, 39 * 8 + 4)  # of the number of items, 31 to 15

    store = open_small(root, clock=clock)

    assert any("index: a file was damaged" in note for note in store.notes)
    for number in range(30):
        assert len(store.messages.query_by_key("T", f"key{number}", 9, 0, 1 << 50).messages) == 1, number
    store.close()

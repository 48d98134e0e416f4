"""The key index: RocketMQ's bytes, queries over files, and chains changed by damage."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptData, WrongFileSize
from store.fs.linux.files import OsFiles
from store.index import file as index_file
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from tests.support.dispatch_batches import batch_of, java_hash, key_hash

LAYOUT = IndexLayout(10, 5)  # four keys a file
NOON = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
ALL_TIME = (0, 1 << 50)


@pytest.fixture
def open_index(tmp_path):
    opened = []

    def open_again(layout=LAYOUT):
        while opened:
            opened.pop().close()
        opened.append(KeyIndex(OsFiles(), str(tmp_path), layout))
        assert opened[0].load() == []
        return opened[0]

    yield open_again
    while opened:
        opened.pop().close()


def batch(*messages):
    """Make a batch of messages (physical offset, store time, key hashes)."""
    return batch_of([("t", 0, None, offset, 10, 0, time, hashes) for offset, time, hashes in messages])


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "index").iterdir())


def test_hash_is_javas_without_the_sign():
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert key_hash("t", "k") == abs(java_hash("t#k"))


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 9_000), st.lists(st.one_of(st.integers(0, 50), st.just((1 << 31) - 1)), max_size=3)
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=5,
    ),
    st.sampled_from([0, NOON]),
)
def test_few_items_are_appended_one_by_one_as_all_at_once(turns, begin):
    """Files, headers and slots are the same, over the ends of files, and when the clock goes back."""
    written = []
    for few_max in (0, index_file.FEW_ITEMS_MAX):
        with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as root:
            patched.setattr(index_file, "FEW_ITEMS_MAX", few_max)
            index, offset = KeyIndex(OsFiles(), root, IndexLayout(10, 8)), 100
            index.load()
            for turn in turns:
                messages = [(offset + 10 * number, begin + time, hashes) for number, (time, hashes) in enumerate(turn)]
                offset += 10 * len(turn)
                index.append(batch(*messages))
            index.flush()
            index.close()
            paths = sorted(Path(root, "index").glob("*"))
            written.append([(path.name, path.read_bytes()) for path in paths])

    assert written[0] == written[1]


def test_first_item_of_a_new_file_counts_from_the_end_of_the_file_before(tmp_path, open_index):
    """IndexFile and IndexService of RocketMQ: header and first item of a file that follows another one."""
    index = open_index()
    index.append(batch((100, NOON, [3, 13]), (200, NOON + 5500, [3, 4, 23])))
    index.flush()

    first, second = ((tmp_path / "index" / name).read_bytes() for name in names(tmp_path))
    assert struct.unpack(">qqqqii", first[:40]) == (NOON, NOON + 5500, 100, 200, 2, 5)
    assert struct.unpack(">10i", first[40:80]) == (0, 0, 0, 3, 4, 0, 0, 0, 0, 0)
    items = [(3, 100, 0, 0), (13, 100, 0, 1), (3, 200, 5, 2), (4, 200, 5, 0)]
    assert list(struct.iter_unpack(">iqii", first[100:])) == items
    assert struct.unpack(">qqqqii", second[:40]) == (NOON + 5500, NOON + 5500, 200, 200, 1, 2)
    index.append(batch((300, NOON + 9000, [7])))
    index.append(batch((400, NOON + 9000, [7, 7])))
    index.append(batch((500, NOON + 99_000, [7])))
    index.flush()
    third = (tmp_path / "index" / names(tmp_path)[2]).read_bytes()
    assert struct.unpack(">iqii", third[100:120]) == (7, 500, 90, 0)
    assert struct.unpack(">q", third[:8]) == (NOON + 99_000,)


def test_capacity_is_one_item_less_than_the_file_has(tmp_path, open_index):
    """IndexFileTest: 399 of 400 keys fit."""
    index = open_index(IndexLayout(100, 400))
    index.append(batch(*((number, NOON, [number]) for number in range(399))))
    assert len(names(tmp_path)) == 1

    index.append(batch((399, NOON, [399])))

    assert len(names(tmp_path)) == 2


def test_files_are_named_by_time_and_never_below_the_one_before(tmp_path, open_index):
    index = open_index()
    index.append(batch(*((number, NOON, [number]) for number in range(9))))
    index.append(batch(*((number, NOON + 61_000, [number]) for number in range(9, 14))))

    assert names(tmp_path) == ["20231114221320000", "20231114221320001", "20231114221320002", "20231114221421000"]


@pytest.mark.parametrize("step", [1, 2, 3, 50])
def test_keys_are_found_newest_first_over_all_files_and_after_reopening(open_index, step):
    index = open_index()
    messages = [(number * 10, NOON + number * 2000, [number % 3, 13]) for number in range(20)]
    for begin in range(0, 20, step):
        index.append(batch(*messages[begin : begin + step]))
    index.append(batch(*messages[7:]))  # once more
    index.flush()

    for is_reopened in (False, True):
        found = open_index() if is_reopened else index
        assert found.query(13, *ALL_TIME, 99).physical_offsets == [number * 10 for number in reversed(range(20))]
        assert found.query(1, *ALL_TIME, 3).physical_offsets == [190, 160, 130]
        assert found.query(3, *ALL_TIME, 3).physical_offsets == []
        times = NOON + 8000, NOON + 14_000
        assert found.query(13, *times, 99).physical_offsets == [70, 60, 50, 40]


@pytest.mark.parametrize("keys_there", range(8))
def test_message_with_incomplete_keys_gets_the_rest(open_index, keys_there):
    index = open_index()
    index.append(batch((5, NOON, [9]), (10, NOON, [1, 1, 2, 2, 3, 1, 1][:keys_there])))
    index.flush()

    index = open_index()
    index.append(batch((5, NOON, [9]), (10, NOON, [1, 1, 2, 2, 3, 1, 1])))

    assert index.query(1, *ALL_TIME, 99).physical_offsets == [10] * 4
    assert index.query(3, *ALL_TIME, 99).physical_offsets == [10]


@pytest.mark.parametrize("number", [3, 2, 4, 1 << 30, -1])
def test_cyclic_or_wrong_chain_is_ended_and_reported(tmp_path, open_index, number):
    index = open_index(IndexLayout(10, 50))
    index.append(batch((10, NOON, [3]), (20, NOON, [3]), (30, NOON, [3])))
    index.flush()
    [path] = (tmp_path / "index").iterdir()
    with path.open("r+b") as file:
        file.seek(40 + 40 + 20 * 2 + 16)
        file.write(struct.pack(">i", number))

    hits = open_index(IndexLayout(10, 50)).query(3, *ALL_TIME, 99)

    assert hits.physical_offsets == [30, 20]
    [fault] = hits.faults
    assert (fault.path, fault.position, fault.found) == (str(path), 136, str(number))


def test_header_that_announces_too_much_is_corruption(tmp_path, open_index):
    open_index().append(batch((10, NOON, [3])))
    [path] = (tmp_path / "index").iterdir()
    with path.open("r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", 6))

    with pytest.raises(CorruptData, match="byte 36: expected at most item 5, found 6"):
        open_index()


def test_index_of_another_layout_is_refused_and_foreign_names_are_left_alone(tmp_path, open_index):
    open_index().append(batch((10, NOON, [3])))
    (tmp_path / "index/notes").touch()

    [note] = KeyIndex(OsFiles(), str(tmp_path), LAYOUT).load()
    assert "notes" in note
    with pytest.raises(WrongFileSize):
        KeyIndex(OsFiles(), str(tmp_path), IndexLayout(10, 6)).load()


def test_files_follow_the_logs_begin_and_the_last_one_stays(tmp_path, open_index):
    index = open_index()
    index.append(batch(*((number * 10, NOON + number, [number]) for number in range(10))))

    index.expire(30)
    assert len(names(tmp_path)) == 3
    index.expire(31)
    assert len(names(tmp_path)) == 2
    index.expire(1 << 40)
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("kept", [1, 3, 6, 7])
def test_truncated_index_equals_one_that_was_never_longer(tmp_path, open_index, kept):
    log = [(number * 10, NOON + number * 700, [number, 3]) for number in range(8)]
    index = open_index(IndexLayout(10, 11))
    index.append(batch(*log))
    index.flush()
    index.truncate(kept * 10, lambda offset: NOON + offset * 70)
    found = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    index.remove_all()

    index.append(batch(*log[:kept]))
    index.flush()

    assert found == {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}


def test_slots_older_than_their_items_are_rebuilt_after_a_crash(tmp_path, open_index):
    index = open_index(IndexLayout(10, 50))
    index.append(batch((10, NOON, [3, 4]), (20, NOON, [3])))
    index.flush()
    [path] = (tmp_path / "index").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes(40) + content[80:])

    index = open_index(IndexLayout(10, 50))
    index.truncate(1 << 40, lambda _: 0)

    assert path.read_bytes() == content
    assert index.query(3, *ALL_TIME, 9).physical_offsets == [20, 10]

"""The rows of an index: a dictionary of the latest message by key is the reference."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.compaction import rows as rows_module
from store.compaction.index_file import NO_PLACE, QueueIndex, write_index
from store.compaction.rows import ROW, TOMBSTONE, Merge, key_digest, no_rows, own_digest
from store.errors import CorruptData
from store.fs.linux.files import OsFiles

MESSAGES = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.booleans(), st.integers(0, 3)),  # key, tombstone, copies
    max_size=40,
)


def row(offset, place, key, flags=0, time_ms=0):
    return (offset, place, time_ms, key_digest(key), 100, flags)


def merged(old, new, **limits):
    merge = Merge(old, np.array(new, ROW), **{"log_begin": 0, "tombstones_before_ms": 0, **limits})
    result = np.concatenate([no_rows(), *merge.chunks()])
    assert len(result) == merge.count
    return result


@given(MESSAGES, st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 9))
def test_index_is_the_dictionary_of_the_latest_messages_whatever_the_order_and_the_batches(
    messages, random, chunk_rows, batch
):
    rows = []
    latest = {}
    for offset, (key, is_tombstone, copies) in enumerate(messages):
        # Copies of the message may come much later in the log, and be read before or after others.
        places = [offset + at * 1_000 for at in range(copies + 1)]
        rows += [row(offset, each, key, TOMBSTONE if is_tombstone else 0, offset) for each in places]
        latest[key] = (offset, places[-1], is_tombstone)
    random.shuffle(rows)
    found = no_rows()
    before, rows_module._CHUNK_ROWS = rows_module._CHUNK_ROWS, chunk_rows
    try:
        for begin in range(0, len(rows), batch):
            found = merged(found, rows[begin : begin + batch])
        expected = sorted((offset, place) for offset, place, _ in latest.values())
        assert list(zip(found["offset"].tolist(), found["place"].tolist(), strict=True)) == expected
        # Nothing changes when all is read once more.
        again = merged(found, rows)
        assert again.tobytes() == found.tobytes()
        # Old tombstones, and records that the log has deleted, are dropped.
        half = len(messages) // 2
        kept = merged(found, [], tombstones_before_ms=half, log_begin=half // 2)
    finally:
        rows_module._CHUNK_ROWS = before
    assert kept["offset"].tolist() == sorted(
        offset
        for offset, place, is_tombstone in latest.values()
        if place >= half // 2 and not (is_tombstone and offset < half)
    )


def test_messages_without_keys_are_all_kept():
    rows = [(offset, offset, 0, own_digest(offset), 100, 0) for offset in range(5)]
    assert merged(no_rows(), rows)["offset"].tolist() == [0, 1, 2, 3, 4]


def test_keys_that_differ_in_blanks_at_their_end_are_different():
    assert len(merged(no_rows(), [row(0, 0, "a"), row(1, 1, "a "), row(2, 2, "A")])) == 3


def test_memory_of_a_merge_is_bounded_by_the_new_rows_and_one_byte_for_each_old_one(tmp_path):
    count, new_count = 400_000, 1_000
    old = np.zeros(count, ROW)
    old["offset"] = old["place"] = np.arange(count)
    old["key"] = np.random.default_rng(1).integers(1, 255, (count, 16), np.uint8).view("S16").ravel()
    path = str(tmp_path / "old")
    write_index(OsFiles(), path, [old], count)
    mapped = QueueIndex.open(OsFiles(), path)
    del old
    new = np.array([row(count + at, count + at, str(at)) for at in range(new_count)], ROW)
    tracemalloc.start()
    merge = Merge(mapped.rows, new, log_begin=0, tombstones_before_ms=0)
    write_index(OsFiles(), str(tmp_path / "new"), merge.chunks(), count + new_count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The rest are some copies of a chunk of 16,384 rows.
    assert peak < count + 10 * new_count * ROW.itemsize + 8 * 16_384 * ROW.itemsize
    assert QueueIndex.open(OsFiles(), str(tmp_path / "new")).end_offset == count + new_count


def test_file_has_its_rows_and_bounds(tmp_path):
    path = str(tmp_path / "index")
    rows = np.array([row(3, 40, "a"), row(7, 20, "b", TOMBSTONE, 9), row(9, 90, "c", TOMBSTONE, 5)], ROW)
    write_index(OsFiles(), path, [rows[:1], no_rows(), rows[1:]], 12)
    index = QueueIndex.open(OsFiles(), path)
    assert index.rows.tobytes() == rows.tobytes()
    assert (index.end_offset, index.min_place, index.oldest_tombstone_ms) == (12, 20, 5)
    assert [index.first_at(offset) for offset in (0, 3, 4, 7, 9, 10)] == [0, 0, 1, 1, 2, 3]
    write_index(OsFiles(), str(tmp_path / "empty"), [], 5)
    empty = QueueIndex.open(OsFiles(), str(tmp_path / "empty"))
    assert (len(empty.rows), empty.end_offset, empty.min_place, empty.first_at(0)) == (0, 5, NO_PLACE, 0)


def test_each_changed_byte_of_a_file_is_found(tmp_path):
    path = tmp_path / "index"
    write_index(OsFiles(), str(path), [np.array([row(3, 40, "a"), row(7, 20, "b")], ROW)], 12)
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptData):
            QueueIndex.open(OsFiles(), str(path))
    for size in (0, 47, 48, 96, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(CorruptData):
            QueueIndex.open(OsFiles(), str(path))

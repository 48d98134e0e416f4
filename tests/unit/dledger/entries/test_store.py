"""The log on disk: appends, places, reads."""

from pathlib import Path

import pytest

from dledger.entries.format.entry import ENTRY_NOOP, INDEX_UNIT
from dledger.entries.store import EntryNotFound, EntryTooLarge
from dledger.types import LogState, Span, TermRun

FILE = 4096


def test_new_log_is_empty(log):
    store = log.open()

    assert (store.begin_index, store.last_index, store.last_term) == (0, -1, -1)
    assert (store.begin_position, store.end_position, store.durable_index) == (0, 0, -1)
    assert store.log_state() == LogState()
    assert store.recovery_notes == ()


def test_batch_and_single_appends_give_the_same_bytes(make_log, names):
    bodies = [b"%d" % number * (number * 7 % 90) for number in range(300)]
    whole, single = make_log("n0").open(), make_log("n1").open()

    positions = whole.append(bodies, 0, 5)
    for number, body in enumerate(bodies):
        assert single.append([body], number, 5) == [positions[number]]

    for base in names(Path(whole._data.directory)):
        assert whole._data.read(base, FILE) == single._data.read(base, FILE)
    assert whole.log_state() == single.log_state() == LogState(0, -1, 299, (TermRun(0, 5),))


def test_entry_that_leaves_eight_bytes_fits_and_one_byte_more_begins_a_new_file(make_log):
    stays, rolls = make_log("n0").open(), make_log("n1").open()
    space = FILE - 8 - (48 + 100)
    for store in (stays, rolls):
        store.append([bytes(100)], 0, 1)

    assert stays.append([bytes(space - 48), b"next"], 1, 1) == [148, FILE]
    assert rolls.append([bytes(space - 48 + 1), b"next"], 1, 1) == [FILE, FILE + space + 1]

    assert stays._data.read(FILE - 8, 8) == bytes.fromhex("ffffffff00000008")
    assert rolls._data.read(148, FILE - 148) == bytes.fromhex("ffffffff") + (FILE - 148).to_bytes(4, "big") + bytes(
        FILE - 156
    )


def test_largest_body_fits_and_one_byte_more_is_refused_unwritten(log):
    store = log.open()
    assert store.max_body_bytes == FILE - 56

    assert store.append([bytes(FILE - 56)] * 2, 0, 1) == [0, FILE]
    for refused in (lambda: store.append([b"", bytes(FILE - 55)], 2, 1), lambda: store.reserve([FILE - 55])):
        with pytest.raises(EntryTooLarge, match="4041 bytes; an entry of this log holds at most 4040"):
            refused()
    assert store.last_index == 1


def test_entries_come_back_by_index_and_by_position(log):
    store = log.open()
    positions = store.append([b"a" * 1000, b"b" * 2000, b"c" * 1500], 0, 3)
    store.append([b""], 3, 4, magic=ENTRY_NOOP)

    for index, body in enumerate([b"a" * 1000, b"b" * 2000, b"c" * 1500]):
        entry = store.get(index)
        assert (entry.index, entry.term, entry.position, entry.body) == (index, 3, positions[index], body)
        assert store.index_at_position(positions[index]) == index
        assert store.position_of(index) == positions[index]
        assert store.end_position_of(index) == positions[index] + 48 + len(body)
    assert (store.get(3).magic, store.get(3).body, store.term_at(3), store.last_term) == (ENTRY_NOOP, b"", 4, 4)
    for position in (1, 1047, FILE + 1, 10**9, -1):
        with pytest.raises(EntryNotFound, match=f"at position {position}"):
            store.index_at_position(position)


def test_a_range_of_positions_gives_the_entries_that_begin_in_it(log):
    store = log.open()
    assert store.positions_within(0, FILE).tolist() == []
    begins = store.append([bytes(size) for size in (1000, 900, 1800, 300, 700, 40)], 0, 3)
    assert begins[3] == FILE

    for begin, end in [(0, 10**6), (0, 1), (1, FILE), (1, FILE + 1), (begins[2], begins[2]), (begins[2] + 1, FILE)]:
        expected = [position for position in begins if begin <= position < end]
        assert store.positions_within(begin, end).tolist() == expected, (begin, end)


@pytest.mark.parametrize("index", [-1, 10, 10**12])
def test_entry_outside_of_the_log_is_not_found(log, index, fill):
    store = log.open()
    fill(store, 10)

    for read in (store.get, store.term_at, store.position_of, store.end_position_of):
        with pytest.raises(EntryNotFound, match=r"the log holds \[0, 9\]"):
            read(index)


def test_term_runs_are_found_by_bisecting(log, fill):
    store = log.open()
    counts = {1: 5, 2: 1, 5: 40, 6: 1, 9: 17}
    for term, count in counts.items():
        fill(store, count, term=term)

    runs = store.log_state().term_runs

    assert runs == (TermRun(0, 1), TermRun(5, 2), TermRun(6, 5), TermRun(46, 6), TermRun(47, 9))


def test_span_ends_at_term_file_and_size(log, fill):
    store = log.open()
    fill(store, 10, size=52)  # 100 bytes each
    fill(store, 60, size=52, term=2)

    assert store.fit(0, 69, 1 << 20).last_index == 9
    assert store.fit(0, 5, 1 << 20).last_index == 5
    assert store.fit(0, 69, 399).last_index == 2
    assert store.fit(0, 69, 400).last_index == 3
    assert store.fit(0, 69, 1).last_index == 0
    assert store.fit(10, 10**9, 1 << 20).last_index == 39  # the last in the first file
    assert store.fit(40, 10**9, 1 << 20).last_index == 69
    assert store.span_of(10, 39) == Span(10, 39, 2, 1000, 3000)
    assert store.read_span(store.span_of(10, 39)) == store._data.read(1000, 3000)
    assert [entry.index for entry in store.read_entries(10, 39)] == list(range(10, 40))


def test_units_continue_in_the_next_index_file(log, names):
    store = log.open()

    store.append([b"x"] * 40, 0, 1)

    assert names(Path(log.directory) / "index") == [0, 512, 1024]
    assert [store.term_at(index) for index in range(40)] == [1] * 40
    unit = INDEX_UNIT.unpack_from(log.index_path(512).read_bytes(), 32)
    assert unit == (1, 17 * 49, 49, 17, 1)


def test_stamp_reaches_the_file(log):
    store = log.open()

    positions = store.append([bytes(40), bytes(3980), bytes(40)], 0, 1, stamp_at=28)

    assert positions == [0, FILE, 2 * FILE]
    assert [int.from_bytes(store.get(index).body[28:36], "big") for index in range(3)] == [48, FILE + 48, 2 * FILE + 48]

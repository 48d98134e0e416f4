"""The log on disk: appends, places, reads, cuts, what is durable."""

import os
import shutil
from pathlib import Path

import pytest

from dledger.entry import ENTRY_NOOP, HEADER, INDEX_UNIT
from dledger.entry_store import EntryNotFound, EntryStore, EntryStoreConfig, EntryTooLarge
from dledger.types import LogState, Span, TermRun
from store.errors import CorruptData, DirectoryLocked, DiskFull, StorageFailed

FILE = 4096


def fill(store, count, size=100, term=1):
    """Append `count` entries one by one, with bodies that tell them apart."""
    for _ in range(count):
        index = store.last_index + 1
        store.append([b"%07d" % index + bytes(size - 7)], index, term)


def flush(store):
    ticket = store.begin_flush()
    ticket.sync()
    store.end_flush(ticket)


def names(path):
    return sorted(int(entry.name) for entry in Path(path).iterdir())


def test_new_log_is_empty(log):
    store = log.open()

    assert (store.begin_index, store.last_index, store.last_term) == (0, -1, -1)
    assert (store.begin_position, store.end_position, store.durable_index) == (0, 0, -1)
    assert store.log_state() == LogState()
    assert store.recovery_notes == ()


def test_batch_and_single_appends_give_the_same_bytes(make_log):
    bodies = [b"%d" % number * (number * 7 % 90) for number in range(300)]
    whole, single = make_log("n0").open(), make_log("n1").open()

    positions = whole.append(bodies, 0, 5)
    for number, body in enumerate(bodies):
        assert single.append([body], number, 5) == [positions[number]]

    for base in names(Path(whole._data.directory)):
        assert whole._data.read(base, FILE) == single._data.read(base, FILE)
    assert whole.log_state() == single.log_state() == LogState(0, -1, 299, (TermRun(0, 5),))


def test_entry_that_leaves_exactly_eight_bytes_stays_and_one_more_byte_rolls(make_log):
    stays, rolls = make_log("n0").open(), make_log("n1").open()
    room = FILE - 8 - (48 + 100)
    for store in (stays, rolls):
        store.append([bytes(100)], 0, 1)

    assert stays.append([bytes(room - 48), b"next"], 1, 1) == [148, FILE]
    assert rolls.append([bytes(room - 48 + 1), b"next"], 1, 1) == [FILE, FILE + room + 1]

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


@pytest.mark.parametrize("index", [-1, 10, 10**12])
def test_entry_outside_of_the_log_is_not_found(log, index):
    store = log.open()
    fill(store, 10)

    for read in (store.get, store.term_at, store.position_of, store.end_position_of):
        with pytest.raises(EntryNotFound, match=r"the log holds \[0, 9\]"):
            read(index)


def test_term_runs_are_found_by_bisecting(log):
    store = log.open()
    counts = {1: 5, 2: 1, 5: 40, 6: 1, 9: 17}
    for term, count in counts.items():
        fill(store, count, term=term)

    runs = store.log_state().term_runs

    assert runs == (TermRun(0, 1), TermRun(5, 2), TermRun(6, 5), TermRun(46, 6), TermRun(47, 9))


def test_span_ends_at_term_file_and_size(log):
    store = log.open()
    fill(store, 10, size=52)  # 100 bytes each
    fill(store, 60, size=52, term=2)

    assert store.fit(0, 69, 1 << 20) == 9
    assert store.fit(0, 5, 1 << 20) == 5
    assert store.fit(0, 69, 399) == 2
    assert store.fit(0, 69, 400) == 3
    assert store.fit(0, 69, 1) == 0
    assert store.fit(10, 10**9, 1 << 20) == 39  # the last in the first file
    assert store.fit(40, 10**9, 1 << 20) == 69
    assert store.span_of(10, 39) == Span(10, 39, 2, 1000, 3000)
    assert store.read_range(10, 39) == store._data.read(1000, 3000)
    assert [entry.index for entry in store.read_entries(10, 39)] == list(range(10, 40))


def test_units_go_on_in_the_next_index_file(log):
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


# ---------------------------------------------------------------------------------------------------------- full disk


def test_full_disk_refuses_a_batch_whole(log):
    store = log.open()
    fill(store, 20)
    log.files.files_left = 1
    before = (store.last_index, store.end_position, log.data_path().read_bytes())

    for refused in (lambda: store.reserve([3000, 3000, 3000]), lambda: store.append([bytes(3000)] * 3, 20, 1)):
        with pytest.raises(DiskFull, match="no room for 4096 bytes"):
            refused()

    assert (store.last_index, store.end_position, log.data_path().read_bytes()) == before
    store.append([bytes(10)], 20, 1)
    assert log.reopen().last_index == 20
    assert log.store.recovery_notes == ()


def test_full_disk_is_found_before_the_index_is_full_too(log):
    store = log.open()
    store.append([b"x"] * 16, 0, 1)
    log.files.files_left = 0

    with pytest.raises(DiskFull, match="index"):
        store.reserve([1])
    assert store.last_index == 15


def test_reserved_room_serves_the_append(log):
    store = log.open()
    store.reserve([3000, 3000, 3000])
    log.files.files_left = 0

    store.append([bytes(3000)] * 3, 0, 1)

    assert store.last_index == 2


# --------------------------------------------------------------------------------------------------------- durability


def test_entries_are_durable_when_their_ticket_is_back(log):
    store = log.open()
    fill(store, 50)
    assert store.durable_index == -1

    ticket = store.begin_flush()
    fill(store, 1)
    ticket.sync()
    assert store.durable_index == -1
    store.end_flush(ticket)

    assert (store.durable_index, store.last_index) == (49, 50)
    flush(store)
    assert store.durable_index == 50


def test_flush_syncs_each_dirty_data_file_once(log):
    store = log.open()
    log.files.counts.clear()
    fill(store, 3)
    flush(store)
    assert log.files.counts["sync"] == 1
    flush(store)
    assert log.files.counts["sync"] == 1


def test_data_file_and_its_index_are_synced_before_the_next_file_is_begun(log):
    """A recovery that begins with the next file trusts them."""
    store = log.open()
    log.files.counts.clear()
    fill(store, 27)  # 148 bytes each: the first file is full
    assert log.files.counts["sync"] == 0

    fill(store, 1)
    assert log.files.counts["sync"] == 1 + 2  # the data file, and the two index files of 16 units

    flush(store)
    assert log.files.counts["sync"] == 1 + 2 + 1


def test_failed_sync_is_raised_and_proves_nothing(log):
    store = log.open()
    fill(store, 3)
    log.files.is_sync_failing = True
    ticket = store.begin_flush()

    with pytest.raises(StorageFailed, match="sync failed"):
        ticket.sync()

    assert not ticket.is_synced
    assert store.durable_index == -1
    with pytest.raises(StorageFailed):
        store.close()
    log.files.is_sync_failing = False
    assert log.open().last_index == 2  # the directory was given back


def test_recovered_entries_are_durable(log):
    fill(log.open(), 5)

    assert log.reopen().durable_index == 4


def test_cut_takes_durability_back(log):
    store = log.open()
    fill(store, 10)
    flush(store)
    fill(store, 5)
    ticket = store.begin_flush()

    store.truncate(8)
    assert store.durable_index == 7
    fill(store, 10, term=2)
    ticket.sync()
    store.end_flush(ticket)

    assert (store.durable_index, store.last_index) == (7, 17)


def test_checkpoint_says_what_is_durable_and_committed(log):
    store = log.open()
    fill(store, 10)
    flush(store)
    fill(store, 10)

    assert store.save_checkpoint(committed_index=15)
    assert log.checkpoint_path().read_bytes() == b"committedIndex=9\nendIndex=9\n"
    store.close()
    log.store = None

    assert log.checkpoint_path().read_bytes() == b"committedIndex=15\nendIndex=19\n"
    assert log.open().recovered_checkpoint.committed_index == 15


# -------------------------------------------------------------------------------------------------------- truncating


@pytest.mark.parametrize("first_index", [0, 1, 26, 27, 28, 54, 69])
def test_cut_log_equals_one_that_never_had_the_entries(make_log, first_index):
    """27 entries of 148 bytes fill a file but for the blank, so the cuts fall in, before and behind a roll."""
    cut, never = make_log("n0").open(), make_log("n1").open()
    fill(cut, 70)
    fill(never, first_index)

    cut.truncate(first_index)

    def content(store):
        return {base: store._data.read(base, FILE) for base in names(store._data.directory)} or {0: bytes(FILE)}

    assert content(cut) == content(never)
    assert cut.log_state() == never.log_state()
    assert cut.end_position == never.end_position
    assert cut.last_term == never.last_term
    for store in (cut, never):
        fill(store, 40, size=90, term=2)
    assert content(cut) == content(never)
    assert [cut.get(index) for index in range(first_index + 40)] == [
        never.get(index) for index in range(first_index + 40)
    ]


def test_cut_behind_the_end_changes_nothing(log):
    store = log.open()
    fill(store, 5)

    store.truncate(5)

    assert store.last_index == 4


def test_cut_entries_do_not_come_back_where_new_ones_line_up(log):
    """The pitfall of DLedger: fixed sizes, a cut, fewer new entries, a crash."""
    store = log.open()
    fill(store, 20)
    flush(store)
    store.truncate(5)
    fill(store, 3, term=2)

    store = log.reopen()

    assert (store.last_index, store.last_term, store.recovery_notes) == (7, 2, ())


def test_cut_withdraws_the_checkpoint_before_it_cuts(log):
    store = log.open()
    fill(store, 20)
    flush(store)
    store.save_checkpoint(3)

    store.truncate(12)

    assert not log.checkpoint_path().exists()
    assert log.reopen().last_index == 11


# ------------------------------------------------------------------------------------------------ opening, corruption


def test_second_process_cannot_open_the_directory(log):
    log.open()

    with pytest.raises(DirectoryLocked, match=f"locked by process {os.getpid()}"):
        EntryStore.open(log.files, log.directory, log.config)


def test_lock_is_given_back_when_opening_fails(log):
    fill(log.open(), 3)
    log.kill()
    (Path(log.directory) / "data" / "stranger").touch()

    for _ in range(2):
        with pytest.raises(Exception, match="stranger"):
            log.open()
    (Path(log.directory) / "data" / "stranger").unlink()
    assert log.open().last_index == 2


def test_damaged_entry_is_refused_when_it_is_read(log):
    store = log.open()
    fill(store, 10)
    log.patch(log.data_path(), 148 * 4 + 60, b"!")

    for read in (lambda: store.get(4), lambda: store.read_entries(0, 9)):
        with pytest.raises(CorruptData, match=r"corrupt at byte 592: expected body checksum .*\(index 4\), found"):
            read()
    assert store.get(3).index == 3


def test_damaged_header_is_refused_when_it_is_read(log):
    store = log.open()
    fill(store, 10)
    for position, expected in (
        (0, "magic"),
        (7, "size"),
        (15, "index 4"),
        (31, "position 592"),
        (38, "chain checksum"),
    ):
        saved = log.data_path().read_bytes()
        log.patch(log.data_path(), 592 + position, bytes([saved[592 + position] ^ 0x40]))
        with pytest.raises(CorruptData, match=f"expected .*{expected}"):
            store.get(4)
        log.patch(log.data_path(), 0, saved)
    assert store.get(4).index == 4


def test_damaged_index_unit_is_refused_and_healed_by_opening(log):
    store = log.open()
    fill(store, 10)
    log.patch(log.index_path(), 32 * 4 + 16, b"\xff")

    with pytest.raises(CorruptData, match="the index unit of entry 4"):
        store.get(4)

    assert log.reopen().get(4).index == 4
    assert "rewritten" in log.store.recovery_notes[0]


def test_sizes_that_cannot_be_are_refused():
    for sizes in ((56, 32), (4096, 0), (4096, 33)):
        with pytest.raises(ValueError, match="must be"):
            EntryStoreConfig(*sizes)


def test_default_sizes_are_those_of_the_java_program():
    config = EntryStoreConfig()

    assert (config.data_file_size_bytes, config.index_file_size_bytes) == (1073741824, 167772160)
    assert config.max_body_bytes == 4_194_248


def test_copy_of_a_closed_directory_is_the_same_log(log, make_log):
    fill(log.open(), 100)
    log.store.close()
    log.store = None
    copy = make_log("copy")
    shutil.copytree(log.directory, copy.directory)

    assert copy.open().recovery_notes == ()
    assert [copy.store.get(index).body[:7] for index in range(100)] == [b"%07d" % index for index in range(100)]


def read_like_java(log):
    """Walk the files by the rules of DLedger's recovery (0.3, the strictest), which knows nothing of our checksums."""
    entries, number, offset = [], 0, 0
    bases = names(Path(log.directory) / "data")
    index = b"".join(log.index_path(base).read_bytes() for base in names(Path(log.directory) / "index"))
    while number < len(bases):
        content = log.data_path(bases[number]).read_bytes()
        magic, size = HEADER.unpack_from(content + bytes(48), offset)[:2]
        if magic == -1:
            assert offset + size == FILE
            number, offset = number + 1, 0
            continue
        if size == 0:
            break
        magic, size, at, term, position, channel, _, _, body_size = HEADER.unpack_from(content, offset)
        assert (magic, channel, size) == (1, 0, 48 + body_size)
        assert position == bases[number] + offset
        assert at == len(entries)
        assert not entries or term >= entries[-1][1]
        assert INDEX_UNIT.unpack_from(index, at * 32) == (1, position, size, at, term)
        entries.append((at, term, content[offset + 48 : offset + size]))
        offset += size
    return entries


def test_what_we_write_passes_the_rules_of_java_recovery(log):
    store = log.open()
    fill(store, 100, term=0)
    store.truncate(77)
    fill(store, 50, size=333, term=2)
    log.kill()

    entries = read_like_java(log)

    assert [index for index, _, _ in entries] == list(range(127))
    assert [term for _, term, _ in entries] == [0] * 77 + [2] * 50

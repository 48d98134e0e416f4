"""The start of the log: deletion of old files, resets, and crashes in both."""

from contextlib import suppress
from pathlib import Path

import pytest

from dledger.entries.log_head import LogHead, LogHeadFile, LogHeadUnreadable
from dledger.entries.store import CorruptPush, EntryNotFound, EntryStore, EntryStoreConfig
from dledger.testing.faults import SimulatedCrash
from dledger.types import UNKNOWN_TERM, LogState, TermRun
from store.errors import CorruptData, DiskFull
from store.fs.linux.files import OsFiles

FILE = 4096
# With bodies of 952 bytes an entry takes 1000: four of them fill a file.
BODY = 952
MACHINE_CONFIG = EntryStoreConfig(data_file_size_bytes=2048, index_file_size_bytes=32 * 8)


@pytest.fixture
def long_log(log, fill):
    """Return a log with 22 entries in six files, two entries in the last; the term grows with each file."""
    store = log.open()
    for term in range(5):
        fill(store, 4, BODY, term)
    fill(store, 2, BODY, 5)
    return log


def stay_and_reopen(log):
    yield log.store
    yield log.reopen()


def image(store):
    return [store.get(index).body for index in range(store.begin_index, store.last_index + 1)]


# ------------------------------------------------------------------------------------------------------- deleting


@pytest.mark.parametrize(
    ("index", "begin_index"),
    [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8), (19, 16), (20, 20), (21, 20), (22, 20), (1000, 20)],
)
def test_whole_files_below_the_index_are_deleted(long_log, names, index, begin_index):
    store = long_log.store

    store.delete_before(index)

    position = begin_index // 4 * FILE
    for opened in stay_and_reopen(long_log):
        assert (opened.begin_index, opened.begin_position, opened.last_index) == (begin_index, position, 21)
        assert opened.log_state() == LogState(
            begin_index,
            begin_index // 4 - 1,
            21,
            tuple(TermRun(first, first // 4) for first in range(begin_index, 22, 4)),
        )
        assert names(f"{long_log.directory}/data") == list(range(position, 6 * FILE, FILE))
        assert names(f"{long_log.directory}/index") == ([512] if begin_index >= 16 else [0, 512])
        assert [opened.get(i).index for i in range(begin_index, 22)] == list(range(begin_index, 22))
        with pytest.raises(EntryNotFound):
            opened.get(begin_index - 1)
        assert opened.recovery_notes == ()


def test_deleting_again_and_appending_continue(long_log, fill, flush):
    store = long_log.store
    for index in (9, 17, 9, 17):
        store.delete_before(index)
    fill(store, 30, BODY, 6)
    flush(store)
    store.truncate(25)
    store.delete_before(1000)

    assert (store.begin_index, store.last_index, store.begin_prev_term) == (24, 24, 6)
    assert long_log.reopen().log_state() == LogState(24, 6, 24, (TermRun(24, 6),))


def test_first_header_is_verified_after_the_entry_before_it_was_deleted(long_log):
    long_log.store.delete_before(9)
    begin_index, begin_position = long_log.store.begin_index, long_log.store.begin_position
    assert begin_index
    long_log.kill()
    with long_log.data_path(begin_position).open("r+b") as file:
        # Magic 1, of a client's entry, becomes 3, of a membership.
        file.seek(3)
        file.write(b"\3")

    with pytest.raises(CorruptData, match="chain checksum"):
        long_log.open()


def test_damage_in_deleted_files_does_not_affect_kept_ones(long_log):
    store = long_log.store
    last_deleted = store.position_of(7)
    with long_log.data_path(last_deleted - last_deleted % FILE).open("r+b") as file:
        file.seek(last_deleted % FILE + 36)
        file.write(b"\1\2\3\4")

    store.delete_before(9)

    assert (store.begin_index, store.get(8).index) == (8, 8)
    assert long_log.reopen().get(8).index == 8


def test_empty_log_has_nothing_to_delete(log):
    store = log.open()

    store.delete_before(5)

    assert store.log_state() == LogState()
    assert not (Path(log.directory) / "loghead").exists()


def test_bytes_that_a_reader_holds_of_a_deleted_file_stay_readable(long_log):
    store = long_log.store
    held = store._data.mapped_files[0].view()[48 : 48 + BODY]
    content = bytes(held)

    store.delete_before(22)

    assert bytes(held) == content
    assert not long_log.data_path(0).exists()


def test_pushes_continue_where_the_older_entries_are_deleted(long_log, make_log):
    source, target = long_log.store, make_log("n1").open()
    source.delete_before(9)
    target.reset(source.begin_index, source.begin_position, source.begin_prev_term)

    while target.last_index < source.last_index:
        first_index = target.last_index + 1
        span = source.fit(first_index, source.last_index, 1 << 20)
        prev_term = source.begin_prev_term if first_index == source.begin_index else source.term_at(first_index - 1)
        assert target.check_push(span, source.read_span(span), prev_term) == ()
        target.append_encoded(span, source.read_span(span), first_index)

    assert image(target) == image(source)
    assert target.log_state() == source.log_state()
    assert [target.position_of(index) for index in range(8, 22)] == [
        source.position_of(index) for index in range(8, 22)
    ]


def test_head_of_a_file_that_another_program_deleted_is_found_without_a_term(long_log):
    long_log.store.delete_before(5)
    long_log.kill()
    long_log.data_path(FILE).unlink()

    store = long_log.open()

    assert (store.begin_index, store.begin_prev_term, store.last_index) == (8, UNKNOWN_TERM, 21)
    assert "another program deleted" in store.recovery_notes[0]


def test_log_that_lost_the_file_it_begins_in_does_not_start(long_log, names):
    long_log.store.delete_before(22)
    long_log.kill()
    long_log.data_path(5 * FILE).unlink()

    with pytest.raises(CorruptData, match="the file that holds position 20480, where the log begins"):
        long_log.open()


def test_file_without_an_entry_at_the_beginning_is_not_deleted(log):
    """The first entry did not fit into it, so no entry of the log would be deleted with it."""
    store = log.open()
    store.reset(3, FILE - 8, 0)
    store.append([b"x" * 100] * 3, 3, 9)
    assert store.position_of(3) == FILE

    store.delete_before(5)

    for opened in stay_and_reopen(log):
        assert (opened.begin_index, opened.begin_position) == (3, FILE - 8)
        assert [opened.get(index).body for index in (3, 4, 5)] == [b"x" * 100] * 3


# ------------------------------------------------------------------------------------------------------ resetting


@pytest.mark.parametrize(
    ("begin_index", "begin_position", "prev_term"),
    [
        (0, 0, -1),
        (7, 0, 2),
        (1000, 40 * FILE, 9),
        (1000, 40 * FILE + 48, 9),
        (22, 5 * FILE + 2000, 5),
        (3, FILE - 8, 0),
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_reset_log_is_empty_at_its_new_beginning(log, fill, begin_index, begin_position, prev_term, is_new):
    store = log.open()
    if not is_new:
        fill(store, 22, BODY)

    store.reset(begin_index, begin_position, prev_term)

    for opened in stay_and_reopen(log):
        assert opened.log_state() == LogState(begin_index, prev_term, begin_index - 1, ())
        assert (opened.begin_position, opened.end_position) == (begin_position, begin_position)
        assert (opened.durable_index, opened.last_term) == (begin_index - 1, -1)
        assert opened.recovery_notes == ()
    opened.append([b"x" * 100, b"y"], begin_index, 9)
    position = begin_position if begin_position % FILE < FILE - 200 else begin_position + 8
    assert opened.position_of(begin_index) == position
    opened = log.reopen()
    assert opened.log_state() == LogState(begin_index, prev_term, begin_index + 1, (TermRun(begin_index, 9),))
    assert [opened.get(begin_index + number).body for number in range(2)] == [b"x" * 100, b"y"]
    opened.truncate(begin_index)
    assert log.reopen().log_state() == LogState(begin_index, prev_term, begin_index - 1, ())


def test_blank_fills_the_file_up_to_the_beginning(log):
    store = log.open()

    store.reset(50, FILE + 1000, 1)

    assert log.data_path(FILE).read_bytes() == bytes.fromhex("ffffffff000003e8") + bytes(FILE - 8)


def test_first_entry_after_an_unknown_past_has_no_chain_and_followers_accept_it(make_log, fill):
    whole, late = make_log("n0").open(), make_log("n1").open()
    fill(whole, 5, 100)
    late.reset(5, whole.end_position, 1)

    late.append([b"a", b"b"], 5, 2)
    span = late.span_of(5, 6)
    whole.check_push(span, late.read_span(span), 1)
    whole.append_encoded(span, late.read_span(span), 5)

    assert [whole.get(index).chain_crc == 0 for index in (4, 5, 6)] == [False, True, False]
    assert image(whole)[5:] == image(late) == [b"a", b"b"]


def test_first_entry_of_a_reset_log_is_verified_by_the_checksum_of_the_reset(long_log, make_log):
    source, late = long_log.store, make_log("n1")
    source.delete_before(9)
    target = late.open()
    target.reset(source.begin_index, source.begin_position, source.begin_prev_term, source.begin_chain_crc)
    span = source.fit(source.begin_index, source.last_index, 1 << 20)
    header_changed = bytearray(source.read_span(span))
    header_changed[3] = 3
    with pytest.raises(CorruptPush, match="chain checksum"):
        target.check_push(span, bytes(header_changed), source.begin_prev_term)
    target.append_encoded(span, source.read_span(span), span.first_index)
    late.kill()
    with late.data_path(source.begin_position).open("r+b") as file:
        file.seek(3)
        file.write(b"\3")

    with pytest.raises(CorruptData, match="chain checksum"):
        late.open()


@pytest.mark.parametrize("index", [8, 12, 20])
@pytest.mark.parametrize("bit", range(12, 24))
def test_changed_bit_of_a_position_in_the_index_deletes_no_file_that_is_needed(long_log, index, bit):
    """The first entry of a file seems to begin in another file, or in none; entry 20 is the last one."""
    store = long_log.store
    store.truncate(21)
    assert store.position_of(index) == index // 4 * FILE
    store.position_of(0)  # the last unit read is cached
    files = sorted((long_log.data_path(0).parent.parent / "index").iterdir())
    # A unit of 32 bytes begins with four of the magic and eight of the position.
    number, offset = divmod(index * 32 + 11 - bit // 8, files[0].stat().st_size)
    with files[number].open("r+b") as file:
        file.seek(offset)
        changed = file.read(1)[0] ^ 1 << bit % 8
        file.seek(offset)
        file.write(bytes([changed]))

    with suppress(CorruptData, EntryNotFound):
        store.delete_before(index)

    assert store.begin_index <= index
    assert all(long_log.data_path(number // 4 * FILE).exists() for number in range(index, 21))


def test_first_entry_after_an_unknown_past_is_stamped_like_any_other(log):
    store = log.open()
    store.reset(5, FILE, 1)

    positions = store.append([b"abcdefgh" + bytes(8), b"ijklmnop" + bytes(8)], 5, 2, stamp_at=8)

    bodies = [store.get(index).body for index in (5, 6)]
    stamps = [(position + 48).to_bytes(8, "big") for position in positions]
    assert bodies == [b"abcdefgh" + stamps[0], b"ijklmnop" + stamps[1]]
    assert log.reopen().last_index == 6


def test_flush_that_began_before_a_reset_makes_nothing_durable_after_it(log, fill):
    store = log.open()
    fill(store, 10)
    ticket = store.begin_flush()
    store.reset(3, 0, 1)
    fill(store, 4, 100, 2)
    ticket.sync()

    store.end_flush(ticket)

    assert store.durable_index == 2


def test_checkpoint_guarantees_nothing_of_a_log_that_was_dropped(log, fill, flush):
    store = log.open()
    fill(store, 10)
    flush(store)
    store.begin_checkpoint(9).save()

    store.reset(3, 0, 1)

    assert not log.checkpoint_path().exists()
    store.begin_checkpoint(store.durable_index).save()
    assert log.reopen().recovered_checkpoint.end_index == 2


def test_reset_without_free_space_changes_nothing(log):
    store = log.open()
    log.files.files_left = 0

    with pytest.raises(DiskFull):
        store.reset(10, FILE, 3)

    assert log.reopen().log_state() == LogState()


def test_damaged_blank_before_the_beginning_is_corruption(log):
    log.open().reset(50, FILE + 1000, 1)
    log.kill()
    log.patch(log.data_path(FILE), 0, bytes(8))

    with pytest.raises(CorruptData, match="blanks up to byte 1000"):
        log.open()


# -------------------------------------------------------------------------------------------------------- crashes


def crash_in(machine, operation, number, *, is_power_cut):
    """Open, stop the process in the `number`-th file operation of `operation`; False: there are fewer."""
    files = machine.process()
    store = EntryStore.open(files, "/n0", MACHINE_CONFIG)
    files.crash_point.arm(number)
    try:
        operation(store)
    except SimulatedCrash:
        if is_power_cut:
            machine.disk.cut_power()
        return True
    files.crash_point.disarm()
    store.close()
    return False


def crashes_in(make_machine, operation, *, is_power_cut):
    """Yield, for each file operation of `operation`, the log that is found after a crash in it, and its entries."""
    for number in range(1, 100):
        machine = make_machine()
        machine.write_log([400] * 20)
        store = machine.open()
        expected = image(store)
        store.close()
        if not crash_in(machine, operation, number, is_power_cut=is_power_cut):
            assert number > 5
            return
        store = machine.open()
        yield store, expected
        found = store.log_state()
        store.close()
        assert machine.open().log_state() == found


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_deletion_that_crashes_anywhere_is_complete_or_absent(machine, is_power_cut):
    begins = set()

    for store, expected in crashes_in(type(machine), lambda store: store.delete_before(13), is_power_cut=is_power_cut):
        begins.add(store.begin_index)
        assert store.begin_prev_term == (-1 if store.begin_index == 0 else 3)
        assert image(store) == expected[store.begin_index :]

    assert begins == {0, 12}


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("target", [(30, 10 * 2048 + 500, 4), (6, 2048 + 448, 1)])
def test_reset_that_crashes_anywhere_is_complete_or_absent(machine, target, is_power_cut):
    ends = set()

    for store, expected in crashes_in(type(machine), lambda store: store.reset(*target), is_power_cut=is_power_cut):
        ends.add(store.last_index)
        if store.last_index == 19:
            assert image(store) == expected
        else:
            assert store.log_state() == LogState(target[0], target[2], target[0] - 1, ())
            assert store.end_position == target[1]

    assert ends == {19, target[0] - 1}


# ------------------------------------------------------------------------------------------------------- the file


def test_every_flipped_bit_of_the_file_is_detected(tmp_path):
    file = LogHeadFile.open(OsFiles(), str(tmp_path))
    path = tmp_path / "loghead"
    for head in (LogHead(12, 4096, 3), LogHead(12, 4096, 3, prev_chain_crc=77), LogHead(0, 0, -1, is_reset=True)):
        file.save(head)
        assert file.load() == head
        good = path.read_bytes()
        for position in range(len(good)):
            for bit in range(8):
                path.write_bytes(good[:position] + bytes([good[position] ^ 1 << bit]) + good[position + 1 :])
                with pytest.raises(LogHeadUnreadable, match="loghead: expected lines beginIndex"):
                    file.load()

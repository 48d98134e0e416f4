"""Three cases of opening a replicated log; a plain log becomes one without a change to its messages."""

import itertools

import pytest

from commitlog.conversion.base_log import BaseLog
from commitlog.conversion.divide import CASES, OpeningCase, case_of, was_written_by_java
from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from commitlog.record.record import BLANK_MAGIC, END_SIZE_MIN, HEAD, decode
from commitlog.record.scan import walk
from dledger.entries.store import EntryStore
from store.errors import CorruptData
from store.fs.linux.files import OsFiles
from tests.unit.commitlog.conftest import FILE_SIZE, SIZES, message

CONFIG = CommitLogConfig(mapped_file_size=FILE_SIZE)


def write_plain(root, clock, *sizes, truncate=None):
    """Write a plain log with one message of each size; return (physical offset, size, body size) of each."""
    log = PlainCommitLog.open(OsFiles(), f"{root}/commitlog", CONFIG, LastExit(), clock)
    places = []
    for number, size in enumerate(sizes):
        clock.now += 1
        pending = log.append([message(b"p" * size)], [number])
        ticket = log.begin_flush()
        ticket.sync()
        log.end_flush(ticket)
        places.append((*pending.outcome.places[0][:2], size))
    if truncate is not None:
        log.truncate(truncate)
    log.close()
    return places


def image(root):
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def test_exactly_one_row_of_the_table_fits():
    for has_entries, has_records in itertools.product((True, False), repeat=2):
        assert case_of(has_entries=has_entries, has_records=has_records) in OpeningCase
    assert {row.case for row in CASES} == set(OpeningCase)


def test_nothing_begins_at_0(open_log, tmp_path):
    opened = open_log()

    assert (opened.divided.case, opened.divided.divide, opened.base) == (OpeningCase.NOTHING, 0, None)
    assert (opened.log.begin_offset, opened.log.end_offset) == (0, 0)
    opened.node.lead(1)
    assert opened.store.position_of(0) == 0


def test_empty_files_of_a_plain_log_are_nothing(open_log, tmp_path, clock):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE_SIZE))

    opened = open_log()

    assert (opened.divided.case, opened.divided.divide, opened.base) == (OpeningCase.NOTHING, 0, None)


def test_plain_log_is_padded_and_continued(open_log, tmp_path, clock):
    places = write_plain(tmp_path, clock, *[700] * 7)
    before = image(tmp_path)
    end = places[-1][0] + places[-1][1]
    divide = end + -end % FILE_SIZE

    opened = open_log()

    assert (opened.divided.case, opened.divided.divide) == (OpeningCase.BASE_LOG, divide)
    assert opened.log.divided_commitlog_offset == divide
    name = f"{divide - FILE_SIZE:020d}"
    position = end % FILE_SIZE
    blank = (FILE_SIZE - position).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    expected = before[name][:position] + blank + before[name][position + 8 :]
    # As RocketMQ does it: exactly eight bytes; nothing else changes.
    assert image(tmp_path) == {**{k: v for k, v in before.items() if int(k) < divide}, name: expected}
    assert (opened.log.begin_offset, opened.log.end_offset) == (0, divide)
    opened.node.lead(1)
    opened.node.commit()
    assert opened.store.position_of(0) == divide
    pending = opened.log.append([message(b"new")], [7])
    opened.node.commit()
    assert opened.scanned() == [
        *(("T", 0, number, place, size) for number, (place, size, _) in enumerate(places)),
        ("T", 0, 7, *pending.outcome.places[0][:2]),
    ]
    for place, size, body_size in places:
        assert opened.log.read(place, size).body == b"p" * body_size
        assert opened.log.find(place).size == size
        assert opened.log.peek(place, size).store_timestamp == opened.log.find(place).store_timestamp


def test_next_start_finds_entries_and_the_same_divide(open_log, tmp_path, clock):
    write_plain(tmp_path, clock, 100, 200)
    first = open_log()
    first.node.lead(1)
    first.log.append([message()], [2])
    first.node.commit()
    expected, before = first.scanned(), image(tmp_path)
    first.node.flush()
    first.close()

    again = open_log()

    assert (again.divided.case, again.divided.divide) == (OpeningCase.ENTRIES, first.divided.divide)
    assert again.scanned() == expected
    assert image(tmp_path) == before


def test_divide_without_entries_yet_is_kept(open_log, tmp_path, clock):
    write_plain(tmp_path, clock, 100)
    first = open_log()
    first.close()

    again = open_log()

    assert (again.divided.case, again.divided.divide) == (OpeningCase.ENTRIES, FILE_SIZE)
    again.node.lead(1)
    assert again.store.position_of(0) == FILE_SIZE


@pytest.mark.parametrize("is_next_made", [True, False])
def test_plain_log_that_ends_with_a_blank_ends_there(open_log, tmp_path, clock, is_next_made):
    """A crash after the blank, before the batch that did not fit; and files that were allocated in advance."""
    places = write_plain(tmp_path, clock, 3000, 2000)
    second = tmp_path / "commitlog" / f"{FILE_SIZE:020d}"
    if is_next_made:
        second.write_bytes(bytes(FILE_SIZE))
    else:
        second.unlink()

    opened = open_log()

    assert opened.divided.divide == FILE_SIZE
    assert list(image(tmp_path)) == [f"{0:020d}"]
    assert [row[3] for row in opened.scanned()] == [places[0][0]]


def test_torn_tail_of_the_plain_log_is_cut_before_it_is_divided(open_log, tmp_path, clock):
    places = write_plain(tmp_path, clock, 300, 300)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[places[1][0] + 50 : places[1][0] + places[1][1]] = bytes(places[1][1] - 50)
    path.write_bytes(content)

    opened = open_log()

    assert [row[3] for row in opened.scanned()] == [places[0][0]]
    assert any("torn tail" in note for note in opened.divided.notes)


def test_corrupt_plain_log_is_not_divided(open_log, tmp_path, clock):
    places = write_plain(tmp_path, clock, 300, 300, 300)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[places[0][0] + 100] ^= 1
    path.write_bytes(content)

    with pytest.raises(CorruptData):
        open_log()
    assert path.read_bytes() == content
    assert not (tmp_path / "dledger-n0").exists()


def test_base_log_that_does_not_meet_the_entries_is_refused(open_log, tmp_path, clock):
    write_plain(tmp_path, clock, *[1500] * 5)
    open_log().close()
    last = max((tmp_path / "commitlog").iterdir())
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(CorruptData, match="expected files up to"):
        open_log()
    last.write_bytes(content)
    last.with_name(f"{int(last.name) + FILE_SIZE:020d}").write_bytes(content)
    with pytest.raises(CorruptData, match="expected files up to"):
        open_log()


def test_base_log_expires_first_and_then_entries_may(open_log, tmp_path, clock):
    places = write_plain(tmp_path, clock, *[1500] * 5)
    opened = open_log()
    opened.node.lead(1)
    for number in range(30):
        opened.log.append([message(b"m" * 500)], [5 + number])
    opened.node.commit()
    log, divide = opened.log, opened.divided.divide
    rows = opened.scanned()

    assert log.old_files(10) == [
        (f"{tmp_path}/commitlog/{begin:020d}", begin + FILE_SIZE) for begin in range(0, divide, FILE_SIZE)
    ]
    assert log.newest_path().startswith(f"{tmp_path}/dledger-n0/data/")
    assert log.retention_floor(log.end_offset) == 0
    log.delete_before(FILE_SIZE)
    assert log.begin_offset == FILE_SIZE
    assert log.retention_floor(log.end_offset) == 0
    assert opened.scanned() == [row for row in rows if row[3] >= FILE_SIZE]
    assert log.read(*places[0][:2]) is None
    log.delete_before(divide)
    assert (log.begin_offset, log.has_base_log, log.old_files(10)) == (divide, False, [])
    assert log.retention_floor(log.end_offset) == opened.store.last_index + 1
    assert opened.scanned() == [row for row in rows if row[3] >= divide]
    assert log.read(*places[-1][:2]) is None
    assert log.find(places[-1][0]) is None
    opened.node.flush()
    opened.close()
    again = open_log()
    assert (again.divided.divide, again.base) == (divide, None)
    assert again.scanned() == [row for row in rows if row[3] >= divide]


def test_times_are_converted_to_offsets_on_both_sides_of_the_divide(open_log, tmp_path, clock):
    places = write_plain(tmp_path, clock, *[1500] * 5)
    times = list(range(clock.now - 4, clock.now + 1))
    opened = open_log()
    assert (opened.log.last_store_timestamp, opened.log.flushed_store_timestamp) == (clock.now, clock.now)
    opened.node.lead(1)
    clock.now += 10
    opened.log.append([message()], [5])
    opened.node.commit()

    assert [opened.log.offset_at_timestamp(time) for time in times] == [place for place, *_ in places]
    new = opened.scanned()[-1][3] - 48
    assert opened.log.offset_at_timestamp(times[-1] + 1) == new
    assert opened.log.offset_at_timestamp(clock.now + 1) == opened.log.end_offset


def is_full(view):
    """Return whether a file of the plain log ends with a blank after its last record."""
    starts = walk(view, 0, len(view) - END_SIZE_MIN, count_max=len(view)).starts
    position = starts[-1] + decode(view, starts[-1]).size if starts else 0
    rest = len(view) - position
    return rest >= HEAD.size and HEAD.unpack_from(view, position) == (rest, BLANK_MAGIC)


def test_last_file_that_is_not_full_is_distinguished_from_one_that_is(open_log, tmp_path, clock):
    write_plain(tmp_path, clock, 100)
    path = tmp_path / "commitlog" / f"{0:020d}"
    assert not is_full(memoryview(path.read_bytes()))
    open_log()
    assert is_full(memoryview(path.read_bytes()))


def test_directory_of_another_program_is_known_until_a_node_ran_in_it(open_log, tmp_path):
    files, directory = OsFiles(), f"{tmp_path}/dledger-n0"
    assert not was_written_by_java(files, directory)
    store = EntryStore.open(files, directory, SIZES)
    store.append([b"x"], 0, 1)
    store.abandon()
    assert was_written_by_java(files, directory)
    (tmp_path / "dledger-n0" / "membership").write_bytes(b"")
    assert not was_written_by_java(files, directory)


def test_there_is_no_base_log_without_a_directory(tmp_path):
    assert BaseLog.open(OsFiles(), f"{tmp_path}/commitlog", FILE_SIZE, 0) is None


def test_damaged_last_record_of_a_base_log_does_not_stop_the_node(open_log, tmp_path, clock):
    """Its end became zeros after the log was divided: the time of the base log's end is in the record before it."""
    _, last = write_plain(tmp_path, clock, 100, 300)
    open_log().close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[last[0] + 200 : last[0] + last[1]] = bytes(last[1] - 200)
    path.write_bytes(content)

    opened = open_log()

    assert opened.base.last_store_timestamp == clock.now - 1

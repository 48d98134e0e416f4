"""Old files of the log are deleted by RocketMQ's rules, then parts of queues and index; undispatched ones are kept."""

import os
import threading
from pathlib import Path

import pytest

from store.fs.forwarding import ForwardingFiles
from store.fs.linux.files import OsFiles
from store.fs.sealed_json import seal
from store.maintenance.archive_mark import ArchiveFloor, ArchiveMark, UnreadableMark, decode_mark, encode_mark
from store.model.commit_log import PutStatus
from store.model.config import MessageStoreConfig
from tests.support.message_stores import SMALL, Clock, numbered, open_small, queued, with_store
from tests.support.waiting import wait_until

HOUR = 3600
ALL_FULL = 16  # files that the stores below have


class Disk(ForwardingFiles):
    """The real files, on a disk as full as a test says."""

    def __init__(self):
        super().__init__(OsFiles())
        self.used_ratio = 0.5

    def disk_used_ratio(self, _):
        return self.used_ratio


class Case:
    """A store of 16 full files of the log, all of them written just now."""

    def __init__(self, root, **changes):
        self.root = Path(root)
        self.clock = Clock(hour=12)
        self.disk = Disk()
        self.config = with_store(SMALL, **changes)
        self.open()
        self.put(1600)
        self.store.flush()
        for path in self.log_files():
            os.utime(path, (self.clock.wall_s, self.clock.wall_s))

    def open(self):
        self.store = open_small(self.root, self.config, files=self.disk, clock=self.clock)

    def put(self, count):
        for _ in range(count // 50):
            self.store.messages.put_many([numbered(at, queues=2, body_size=500) for at in range(50)])

    def log_files(self):
        return sorted((self.root / "commitlog").iterdir())

    def run(self):
        before = len(self.log_files())
        self.store.lifecycle.retention.run()
        return before - len(self.log_files())


@pytest.fixture
def case(tmp_path):
    made = []

    def make(**changes):
        made.append(Case(tmp_path / "store", **changes))
        return made[-1]

    yield make
    for one in made:
        one.store.lifecycle.abandon()


def test_old_files_are_deleted_at_the_hour_ten_at_once(case):
    one = case()
    count = len(one.log_files())
    assert count == ALL_FULL
    one.clock.pass_s(71.9 * HOUR)
    one.clock.hour = 4
    assert one.run() == 0

    one.clock.pass_s(0.2 * HOUR)
    one.clock.hour = 5
    assert one.run() == 0
    one.clock.hour = 4
    assert one.run() == 10
    assert one.run() == ALL_FULL - 1 - 10
    assert one.run() == 0, "the file that holds the log's end stays"


def test_old_files_are_deleted_at_any_hour_when_the_disk_fills(case):
    one = case()
    one.clock.pass_s(73 * HOUR)
    one.disk.used_ratio = 0.75
    assert one.run() == 0
    one.disk.used_ratio = 0.751
    assert one.run() == 10


def test_young_files_are_deleted_by_force_until_the_disk_has_space(case):
    """RocketMQ deletes ten at once; here the disk is checked after each."""
    one = case()
    one.disk.used_ratio = 0.851
    remove = one.disk._files.remove

    def removing(path):
        remove(path)
        if "commitlog" in path:
            one.disk.used_ratio -= 0.0004

    one.disk.remove = removing
    assert one.run() == 3
    assert one.run() == 0


def test_force_takes_ten_files_at_most_in_a_round(case):
    one = case(delete_file_batch_max=4)
    one.disk.used_ratio = 0.89

    assert one.run() == 4


def test_young_files_are_kept_if_force_is_switched_off(case):
    one = case(clean_file_forcibly_enable=False)
    one.disk.used_ratio = 0.99

    assert one.run() == 0


def test_puts_are_refused_while_the_disk_is_full(case):
    one = case(clean_file_forcibly_enable=False)
    one.disk.used_ratio = 0.901
    one.run()

    outcome = one.store.messages.put(numbered(1)).outcome
    assert outcome.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "90 % full" in outcome.detail
    assert one.store.lifecycle.retention.is_disk_full
    one.disk.used_ratio = 0.90
    one.run()
    assert one.store.messages.put(numbered(1)).outcome.status is PutStatus.PUT_OK


def test_queues_and_index_follow_the_log(case):
    one = case()
    queue_files = len(list((one.root / "consumequeue").rglob("0*")))
    index_files = len(list((one.root / "index").iterdir()))
    before = queued(one.store)
    one.disk.used_ratio = 0.89
    assert one.run() == 10

    begin = one.store.log.begin_offset
    after = queued(one.store)
    for key, rows in after.items():
        assert rows[0].physical_offset >= begin
        assert rows[0].queue_offset == one.store.messages.min_offset(*key) > 0
        assert [row.queue_offset for row in before[key]][-len(rows) :] == [row.queue_offset for row in rows]
    assert len(list((one.root / "consumequeue").rglob("0*"))) < queue_files
    assert len(list((one.root / "index").iterdir())) < index_files
    one.store.close()
    one.open()
    assert {key: [row.queue_offset for row in rows] for key, rows in queued(one.store).items()} == {
        key: [row.queue_offset for row in rows] for key, rows in after.items()
    }


def test_what_is_not_dispatched_durably_is_never_deleted(case):
    """However full the disk is: a queue must not lose its next offset."""
    one = case()
    flushed = one.store.messages.derived.durable_offset
    one.put(400)
    one.disk.used_ratio = 0.89
    while one.run():
        pass
    assert one.store.log.begin_offset == flushed - flushed % 65536
    one.store.dispatch()
    assert one.run() == 0, "dispatched, but not flushed"

    one.store.flush()

    assert one.run() > 0
    assert one.store.log.begin_offset > flushed


def test_fully_expired_queue_keeps_its_next_offset(case):
    one = case()
    one.store.messages.put_many([numbered(at, topic="Rare", queues=1) for at in range(3)])
    one.put(400)
    one.store.flush()
    one.disk.used_ratio = 0.89
    while one.run():
        pass
    assert one.store.messages.min_offset("Rare", 0) == one.store.messages.max_offset("Rare", 0) == 3
    one.store.lifecycle.abandon()
    one.open()

    assert one.store.messages.put(numbered(0, topic="Rare", queues=1)).outcome.places[0].queue_offset == 3


def test_clock_that_jumps_deletes_nothing(case):
    one = case()
    one.clock.hour = 4
    assert one.run() == 0
    one.clock.wall_s += 10 * 365 * 24 * HOUR
    assert one.run() == 0
    assert not one.store.lifecycle.retention.is_clock_trusted
    one.clock.pass_s(72 * HOUR)
    assert one.run() == 10


@pytest.mark.parametrize("is_torn", [False, True])
def test_clock_set_ahead_while_the_store_was_closed_deletes_nothing(case, is_torn):
    """By less than the reserved time: the newest file still seems young. Opening may write to that file."""
    one = case()
    one.clock.pass_s(20 * HOUR)
    one.put(100)
    for path in one.log_files()[-2:]:
        os.utime(path, (one.clock.wall_s, one.clock.wall_s))
    one.store.close()
    one.clock.wall_s += 60 * HOUR
    one.clock.hour = 4
    if is_torn:
        newest = one.log_files()[-1]
        os.utime(newest, (one.clock.wall_s, one.clock.wall_s))
    one.open()

    assert one.run() == 0, "all but the newest two were written 80 hours ago by the clock, or 20"
    one.clock.pass_s(51 * HOUR)
    assert one.run() == 0
    one.clock.pass_s(2 * HOUR)
    assert one.run() == 10


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((75, 85, 90), (0.75, 0.85, 0.90)),
        ((1, 1, 1), (0.10, 0.30, 0.35)),
        ((100, 100, 100), (0.95, 0.85, 0.90)),
    ],
)
def test_ratios_are_within_rocketmqs_bounds(given, expected):
    names = ("disk_max_used_space_ratio", "disk_space_clean_forcibly_ratio", "disk_space_warning_level_ratio")
    rules = MessageStoreConfig(**dict(zip(names, given, strict=True))).retention_rules

    assert (rules.expire_ratio, rules.force_ratio, rules.full_ratio) == expected


def test_unarchived_files_are_kept_at_any_age_and_on_a_full_disk(case, tmp_path, caplog):
    """Neither age nor force, also when the mark is missing, damaged, or that of another log."""
    mark = tmp_path / "mark.json"
    one = case(archive_mark=str(mark), archive_log="broker-a")
    ends = [int(path.name) for path in one.log_files()][1:]
    one.clock.pass_s(100 * HOUR)
    one.disk.used_ratio = 0.89

    def allowed(content):
        mark.write_bytes(content)
        return one.run()

    assert one.run() == 0
    assert "does not exist" in one.store.lifecycle.retention.archive.fault
    good = encode_mark(ArchiveMark("broker-a", 0, ends[2]))
    assert allowed(good[:-3]) == 0
    assert allowed(good.replace(b'"end":', b'"end":9')) == 0
    assert allowed(encode_mark(ArchiveMark("broker-b", 0, ends[2]))) == 0
    assert allowed(encode_mark(ArchiveMark("broker-a", 1, ends[2]))) == 0
    assert len(one.log_files()) == ALL_FULL
    assert allowed(good) == 3
    assert one.store.lifecycle.retention.archive.fault == ""
    assert allowed(encode_mark(ArchiveMark("broker-a", 0, ends[4] - 1))) == 1
    assert allowed(encode_mark(ArchiveMark("broker-a", 0, ends[-1] + 1))) == 10
    assert sum("archive_mark" in line for line in caplog.messages) >= 5


def test_mark_that_cannot_be_read_keeps_everything_and_stops_no_store(case, tmp_path):
    mark = tmp_path / "mark.json"
    mark.mkdir()
    one = case(archive_mark=str(mark), archive_log="broker-a")
    one.clock.pass_s(100 * HOUR)
    one.disk.used_ratio = 0.89
    assert one.run() == 0
    assert "cannot be read" in one.store.lifecycle.retention.archive.fault
    mark.rmdir()
    end = int(one.log_files()[1].name)
    mark.write_bytes(encode_mark(ArchiveMark("broker-a", 0, end)))
    assert one.run() == 1


SOUND_MARK = {"format": 1, "log": "broker-a", "begin": 0, "end": 5}


@pytest.mark.parametrize(
    "changes",
    [{"end": None}, {"end": "5"}, {"end": -1}, {"begin": 6}, {"log": 5}, {"begin": 0.5}, {"format": 2}],
    ids=str,
)
def test_sealed_mark_with_other_fields_is_unreadable(changes):
    assert decode_mark(seal(SOUND_MARK)) == ArchiveMark("broker-a", 0, 5)
    fields = {name: value for name, value in (SOUND_MARK | changes).items() if value is not None}

    with pytest.raises(UnreadableMark, match="expected"):
        decode_mark(seal(fields))


class HangingServer:
    """Files on a server that answers when the test permits it."""

    def __init__(self):
        self.is_answering = threading.Event()
        self.checks_count = 0

    def read_bytes(self, path):
        self.checks_count += 1
        assert self.is_answering.wait(60)
        return Path(path).read_bytes()


def test_mark_on_a_hanging_server_delays_nothing_and_its_last_value_applies(tmp_path):
    server, mark = HangingServer(), tmp_path / "mark.json"
    floor = ArchiveFloor(server, str(mark), "broker-a")

    def say(end):
        mark.write_bytes(encode_mark(ArchiveMark("broker-a", 0, end)))

    def answers(end):
        wait_until(lambda: floor.lowered(1_000, 7) == end, f"the mark says {end}")

    say(100)
    floor.check_in_thread()
    floor.check_in_thread()
    assert floor.lowered(1_000, 7) == 7
    assert "does not answer" in floor.fault
    server.is_answering.set()
    answers(100)

    server.is_answering.clear()
    say(200)
    wait_until(lambda: floor.check_in_thread() or server.checks_count == 2, "it is asked again")
    for _ in range(3):
        floor.check_in_thread()
    assert server.checks_count == 2
    assert floor.lowered(1_000, 7) == 100
    assert "does not answer" in floor.fault
    server.is_answering.set()
    answers(200)
    wait_until(
        lambda: floor.check_in_thread() or (floor.lowered(1_000, 7) == 200 and not floor.fault),
        "the floor follows the server again",
    )
    # Its reads must end before the test's directory is removed.
    wait_until(lambda: not floor._checking.is_alive(), "the last check has ended")

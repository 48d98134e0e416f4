"""Opening a store: which part of queues and index is kept, for every combination of the evidence."""

import shutil
from itertools import product

import pytest

from commitlog.plain.reader import PlainLogReader
from store.dispatch.recovery import CASES, CLOCK_MARGIN_MS, Evidence, TruncationRule, certain_end, rule_for
from store.errors import DirectoryLocked
from store.model.message import Message
from tests.support.message_stores import (
    Clock,
    change_checkpoint,
    derived_files,
    numbered,
    open_small,
    queued,
    rebuilt_files,
)
from tests.support.store_damage import COUNT, be_killed, forget, last_of, lower_checkpoint, overwrite

BEGIN, OWN_END, TIMESTAMP = TruncationRule


class Log:
    """The part of a log that the rules use: offsets are 100 times the seconds since its start."""

    begin_offset, end_offset = 1000, 9000

    def offset_at_timestamp(self, timestamp):
        assert timestamp >= 0
        return min(timestamp // 1000 * 100, self.end_offset)


@pytest.mark.parametrize(
    ("has_files", "is_clean", "timestamp", "rule"),
    [
        (False, False, 0, BEGIN),
        (False, False, 50_000, BEGIN),
        (False, True, 0, BEGIN),
        (False, True, 50_000, BEGIN),
        (True, False, 0, BEGIN),
        (True, False, 50_000, TIMESTAMP),
        (True, True, 0, OWN_END),
        (True, True, 50_000, OWN_END),
    ],
)
def test_rule_of_every_combination(has_files, is_clean, timestamp, rule):
    assert rule_for(Evidence(has_files, is_clean, timestamp, 4000)) is rule


def test_exactly_one_row_fits_any_evidence():
    for has_files, is_clean, timestamp in product((False, True), (False, True), (0, 1)):
        evidence = Evidence(has_files, is_clean, timestamp, 0)
        assert [case.fits(evidence) for case in CASES].count(True) == 1


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        pytest.param(Evidence(True, True, 0, 4000), 4000, id="its own end"),
        pytest.param(Evidence(True, True, 0, 20_000), 9000, id="never beyond the log's end"),
        pytest.param(Evidence(True, True, 0, 500), 1000, id="never before its start"),
        pytest.param(Evidence(True, False, 50_000, 8000), 4700, id="the time, less the margin"),
        pytest.param(Evidence(True, False, 50_000, 4000), 4700, id="messages without units or keys are not looked for"),
        pytest.param(Evidence(True, False, 2000, 8000), 1000, id="a time before the log's start"),
        pytest.param(Evidence(True, False, 900_000, 8000), 9000, id="a time after its end: the log lost more"),
        pytest.param(Evidence(True, False, 0, 8000), 1000, id="nothing known"),
        pytest.param(Evidence(False, True, 50_000, 0), 1000, id="no files"),
    ],
)
def test_certain_end(evidence, expected):
    assert CLOCK_MARGIN_MS == 3000
    assert certain_end(evidence, Log()) == expected


# ------------------------------------------------------------------------------------------- stores in every condition


def damage_tail_of_queues(root):
    """Unsynced data may have any content."""
    for path in (root / "consumequeue").rglob("0*1000"):
        overwrite(path, 300, bytes(300) + b"\x17" * 100)
    lower_checkpoint(root, 400, 0)


CONDITIONS = {
    "closed": lambda root: None,
    "killed": be_killed,
    "killed, no checkpoint": forget,
    "closed, no checkpoint": lambda root: (root / "checkpoint").unlink(),
    "no queues": lambda root: shutil.rmtree(root / "consumequeue"),
    "no index": lambda root: shutil.rmtree(root / "index"),
    "no queues, no index": lambda root: (shutil.rmtree(root / "consumequeue"), shutil.rmtree(root / "index")),
    "killed, no queues": lambda root: (shutil.rmtree(root / "consumequeue"), be_killed(root)),
    "killed, no index": lambda root: (shutil.rmtree(root / "index"), be_killed(root)),
    "no last index file": lambda root: last_of(root, "index").unlink(),
    "a file missing within a queue": lambda root: (root / "consumequeue/TopicTest/1/00000000000000000000").rename(
        root / "moved"
    ),
    "queues older than the index": lambda root: lower_checkpoint(root, 300, 10),
    "index older than the queues": lambda root: lower_checkpoint(root, 10, 300),
    "index as Java leaves it": lambda root: lower_checkpoint(root, 0, None),
    "queues guarantee nothing": lambda root: lower_checkpoint(root, None, 0),
    "tails of queues damaged": damage_tail_of_queues,
    "header of an index file damaged": lambda root: overwrite(last_of(root, "index"), 36, b"\x7f\xff\xff\xff"),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_queues_and_index_equal_those_that_are_built_from_scratch(root, tmp_path, condition):
    expected = rebuilt_files(root, tmp_path / "again")
    assert derived_files(root) == expected
    CONDITIONS[condition](root)

    store = open_small(root)

    found = queued(store)
    assert sum(map(len, found.values())) == sum(1 for number in range(COUNT) if number % 30 > 2)
    assert all([record.queue_offset for record in rows] == list(range(len(rows))) for rows in found.values())
    for number in (0, 1, 150, COUNT - 1):
        (hit,) = store.messages.query_by_key("TopicTest", f"k{number}").messages
        assert hit.properties["UNIQ_KEY"] == f"U{number}"
    store.close()
    assert derived_files(root) == expected


def put_without_keys(store, clock, count):
    for _ in range(count):
        clock.pass_s(1)
        store.messages.put(Message("T", bytes(500)))
    store.dispatch()


def read_at_the_next_start(root, monkeypatch, *, is_clean, keys):
    """Return the number of records that the start of a store reads to complete queues and index."""
    clock, read = Clock(), []
    store = open_small(root, clock=clock)
    for number in range(400):
        clock.pass_s(1)
        properties = {"KEYS": "a"} if keys == "all" or (keys == "first" and not number) else {}
        store.messages.put(Message("T", bytes(500), properties=properties))
        if number == 390:
            store.dispatch()
            store.flush()
    store.dispatch()
    if is_clean:
        store.close()
    else:
        store.lifecycle.flush_log()
        store.lifecycle.abandon()

    def scan(log, *arguments, **settings):
        batch = original(log, *arguments, **settings)
        read.append(0 if batch is None else len(batch))
        return batch

    original = PlainLogReader.scan
    with monkeypatch.context() as patch:
        patch.setattr(PlainLogReader, "scan", scan)
        store = open_small(root, clock=clock)
    assert len(queued(store)["T", 0]) == 400
    store.close()
    return sum(read)


@pytest.mark.parametrize("keys", ["none", "first"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_start_reads_no_more_of_a_log_without_keys_than_of_one_with_keys(tmp_path, monkeypatch, is_clean, keys):
    """If no message had a key, no file of the index states the end of the indexed part of the log."""
    expected = read_at_the_next_start(tmp_path / "all", monkeypatch, is_clean=is_clean, keys="all")
    assert expected < 200

    assert read_at_the_next_start(tmp_path / keys, monkeypatch, is_clean=is_clean, keys=keys) <= expected


@pytest.mark.parametrize("has_keys_before", [True, False])
def test_lost_index_of_a_killed_store_is_built_again_whatever_had_no_key(tmp_path, has_keys_before):
    clock = Clock()
    store = open_small(tmp_path, clock=clock)
    if has_keys_before:
        store.messages.put(numbered(0))
    put_without_keys(store, clock, 50)
    store.flush()
    store.messages.put(numbered(1))
    store.dispatch()
    store.messages.derived.flush()  # and no checkpoint after it
    store.lifecycle.abandon()
    shutil.rmtree(tmp_path / "index")

    store = open_small(tmp_path, clock=clock)

    for number in (0, 1) if has_keys_before else (1,):
        assert len(store.messages.query_by_key("TopicTest", f"k{number}").messages) == 1
    store.close()


def test_queues_that_point_past_the_log_are_cut(root, tmp_path):
    """A copy made while the store was written: the log ends before queues and index do."""
    log = last_of(root, "commitlog")
    store = open_small(root)
    message = store.messages.get("TopicTest", 1, 50, 1).messages[0]
    place = message.physical_offset
    store.close()
    if place < 65536:
        log.unlink()
        log = root / "commitlog" / ("0" * 20)
    overwrite(log, place % 65536, bytes(65536 - place % 65536))
    change_checkpoint(root, physic_msg_timestamp=message.store_timestamp - 1, log_end=place)
    be_killed(root)

    store = open_small(root)

    assert store.log.end_offset == place
    assert store.messages.max_offset("TopicTest", 1) == 50
    assert store.messages.put(numbered(1)).outcome.places[0].queue_offset == 50
    store.close()
    assert derived_files(root) == rebuilt_files(root, tmp_path / "again")


def test_queue_that_silently_lost_its_end_is_rebuilt_when_a_gap_is_found(root, tmp_path):
    """The last file of one queue is missing, which the checkpoint does not show: the next message would leave a gap."""
    expected = rebuilt_files(root, tmp_path / "again")
    files = sorted((root / "consumequeue/TopicTest/2").iterdir())
    assert len(files) == 2
    files[-1].unlink()
    overwrite(files[0], 40 * 20, bytes(200))
    lower_checkpoint(root, 100, 100)

    store = open_small(root)

    assert any("TopicTest/2: units were missing" in note for note in store.notes)
    store.close()
    assert derived_files(root) == expected


def test_store_that_a_process_has_open_is_not_opened_by_another(tmp_path):
    store = open_small(tmp_path)

    with pytest.raises(DirectoryLocked, match="locked by process"):
        open_small(tmp_path)

    store.close()
    open_small(tmp_path).close()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_progress_is_reported(root):
    shutil.rmtree(root / "consumequeue")
    reported = []

    open_small(root, on_progress=lambda done, total: reported.append((done, total))).close()

    assert reported == sorted(reported)
    assert reported[-1][0] == reported[-1][1] > 40_000


def test_opening_a_cleanly_closed_store_changes_nothing(root):
    before = derived_files(root, ["consumequeue", "index", "commitlog"])

    store = open_small(root)
    assert store.notes == ()
    assert store.messages.derived.dispatcher.offset == store.log.end_offset
    store.close()

    assert derived_files(root, ["consumequeue", "index", "commitlog"]) == before

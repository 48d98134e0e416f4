"""A lake contains each batch once, wherever its driver is killed, and whichever driver commits it."""

import multiprocessing
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.columns.record_builder import build_records
from pipeline.common.errors import BadOption
from pipeline.lake import lake as lake_module
from pipeline.lake.columns import UnfitSchema
from pipeline.lake.files import UnfitRows, checksum_of, records_crc_of
from pipeline.lake.lake import BatchId, BusyLake, DamagedLake, Lake, LogRange
from pipeline.lake.maintenance import clean_log
from store.fs.linux.files import OsFiles
from tests.support.lake_rows import (
    NAMES,
    Killed,
    bodies,
    delta_table,
    lake_at,
    overtaken,
    records_of,
    rows_of,
    table_bodies,
    written,
)

BATCH = BatchId("query", 3)
pytestmark = pytest.mark.skipif(not find_spec("deltalake"), reason="needs deltalake")


def test_rows_are_stored_by_topic_and_date_in_the_order_of_queues(tmp_path):
    """Ten hours, two of them before midnight; topics and days come mixed and backwards."""
    batch = rows_of(records_of(1_000, step_ms=36_000))
    lake = lake_at(tmp_path)

    assert lake.commit(BATCH, written(tmp_path, batch.take(pa.array(range(999, -1, -1)))))

    files = Lake.open(str(tmp_path)).files()
    assert {(file.topic, file.date) for file in files} == {
        (topic, date) for topic in ("orders", "%RETRY%g") for date in ("2026-11-21", "2026-11-22")
    }
    for file in files:
        rows = lake.read(file)
        assert rows.schema.names == list(NAMES)
        places = list(zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True))
        assert places == sorted(places)
        assert set(rows["topic"].to_pylist()) == {file.topic}
        assert {f"{time:%Y-%m-%d}" for time in rows["storeTimestamp"].to_pylist()} == {file.date}
    assert {file.path.split("/")[0] for file in files} == {"topic=orders", "topic=%25RETRY%25g"}
    assert sum(file.rows for file in files) == 1_000


def test_the_log_describes_files_as_the_task_that_wrote_them_did(tmp_path):
    records = records_of(100, begin=5_000)
    lake = lake_at(tmp_path, has_logs=True)
    files = written(tmp_path, rows_of(records, begin=5_000), log="n/0")

    lake.extend(LogRange("n/0", 5_000, 9_000), files)

    assert Lake.open(str(tmp_path)).files() == sorted(files, key=lambda file: (file.topic, file.date, file.path))
    for file in files:
        rows = lake.read(file)
        offsets = rows["physicalOffset"].to_pylist()
        assert file.physical == (min(offsets), max(offsets))
        assert file.size_bytes == (tmp_path / file.path).stat().st_size
        assert file.rows == len(rows)
        assert file.log == "n/0"
        (again,) = rows.combine_chunks().to_batches()
        built = build_records(again)
        assert checksum_of(built) == records_crc_of(lake.root, file)
        assert set(built.to_pylist()) <= set(records)


def test_adjacent_ranges_of_a_log_are_joined_and_one_after_a_gap_begins_a_new_one(tmp_path):
    lake = lake_at(tmp_path, has_logs=True)

    added = [lake.extend(LogRange("n0", *span), []) for span in [(100, 200), (200, 260), (150, 300), (0, 100)]]
    assert added == [True, True, False, False]
    assert lake.covered("n0") == ("n0", 100, 260)
    assert lake.extend(LogRange("n0", 300, 400), [])
    assert lake.extend(LogRange("n1", 260, 300), [])

    assert Lake.open(str(tmp_path)).covered("n0") == ("n0", 300, 400)
    assert lake.covered("n1") == ("n1", 260, 300)
    assert lake.covered("n2") is None


class CrashingFiles(OsFiles):
    """Ends before the nth change of a file, or sync."""

    def __init__(self, changes):
        self.left = changes


def _crashing(name):
    def change(self, *arguments, **named):
        if not self.left:
            raise Killed
        self.left -= 1
        return getattr(OsFiles, name)(self, *arguments, **named)

    return change


for _name in ("create_from", "make_directory", "open", "sync_directory"):
    setattr(CrashingFiles, _name, _crashing(_name))


def test_batch_is_stored_once_wherever_the_driver_is_killed(tmp_path):
    """Then the query begins again: tasks write the rows again, and the same batch is committed."""
    batch = rows_of(records_of(40))
    changes, has_ended = 0, False
    while not has_ended:
        root = tmp_path / str(changes)
        try:
            lake_at(root, files=CrashingFiles(changes)).commit(BATCH, written(root, batch))
            has_ended = True
        except Killed:
            pass

        lake = lake_at(root)
        lake.commit(BATCH, written(root, batch))

        assert bodies(lake) == list(range(40)), changes
        assert table_bodies(root) == list(range(40)), changes
        changes += 1
    assert changes > 3


@pytest.mark.parametrize("has_committed", [False, True])
def test_batch_is_stored_once_if_the_driver_is_killed_before_or_after_the_commit(tmp_path, monkeypatch, has_committed):
    batch = rows_of(records_of(40))
    lake = lake_at(tmp_path)
    lake.commit(BatchId("query", 2), written(tmp_path, rows_of(records_of(10, first=100))))
    table = type(delta_table(tmp_path))
    real = table.create_write_transaction

    def killed(self, *arguments, **named):
        if has_committed:
            real(self, *arguments, **named)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(table, "create_write_transaction", killed)
        with pytest.raises(Killed):
            lake.commit(BATCH, written(tmp_path, batch))
    assert lake_at(tmp_path).commit(BATCH, written(tmp_path, batch)) is not has_committed

    assert table_bodies(tmp_path) == [*range(40), *range(100, 110)]


def test_another_driver_that_commits_the_same_batch_meanwhile_makes_this_one_leave_it_out(tmp_path, monkeypatch):
    batch = rows_of(records_of(40))
    lake, other = lake_at(tmp_path), lake_at(tmp_path)

    with overtaken(monkeypatch, lambda: other.commit(BATCH, written(tmp_path, batch))):
        assert not lake.commit(BATCH, written(tmp_path, batch))

    assert table_bodies(tmp_path) == bodies(lake) == list(range(40))


def test_commits_of_other_queries_are_kept_and_the_batch_is_added_after_them(tmp_path, monkeypatch):
    lake, other = lake_at(tmp_path), lake_at(tmp_path)

    with overtaken(monkeypatch, lambda: other.commit(BatchId("other", 0), written(tmp_path, rows_of(records_of(10))))):
        assert lake.commit(BATCH, written(tmp_path, rows_of(records_of(10, first=10))))

    assert bodies(lake) == list(range(20))


def _commit_batches(root, count):
    lake = Lake.open(root)
    for number in range(count):
        lake.commit(BatchId("query", number), written(root, rows_of(records_of(2, first=2 * number)), name="x"))


@pytest.mark.slow
def test_two_processes_that_commit_the_same_batches_store_each_once(tmp_path):
    lake = lake_at(tmp_path)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_commit_batches, args=(str(tmp_path), 40)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    lake.refresh()
    assert [process.exitcode for process in processes] == [0, 0]
    assert bodies(lake) == list(range(80))
    assert lake.last_number("query") == 39


def test_each_query_has_its_own_numbers_and_they_survive_checkpoints_and_a_shorter_log(tmp_path):
    lake = lake_at(tmp_path)
    for number in range(105):
        lake.commit(BatchId("query", number), [])
    lake.commit(BatchId("a query/with any name", 7), written(tmp_path, rows_of(records_of(4))))

    assert (tmp_path / "_delta_log/_last_checkpoint").exists()
    clean_log(lake)

    again = Lake.open(str(tmp_path))
    assert (again.last_number("query"), again.last_number("a query/with any name")) == (104, 7)
    assert again.last_number("another") == -1
    assert not again.commit(BatchId("query", 99), written(tmp_path, rows_of(records_of(4))))
    assert bodies(again) == list(range(4))


def test_a_commit_that_finds_no_turn_ends_and_has_certainly_not_been_made(tmp_path, monkeypatch):
    from deltalake.exceptions import CommitFailedError

    lake = lake_at(tmp_path)

    def refused(*_, **__):
        raise CommitFailedError("a concurrent transaction")

    monkeypatch.setattr(lake_module, "_PAUSE_MAX_S", 0)
    with monkeypatch.context() as patch:
        patch.setattr(type(delta_table(tmp_path)), "create_write_transaction", refused)
        with pytest.raises(BusyLake, match="Nothing was committed"):
            lake.commit(BATCH, written(tmp_path, rows_of(records_of(4))))

    assert lake.last_number("query") == -1
    assert bodies(lake) == []


@pytest.mark.parametrize("has_committed", [False, True])
def test_an_error_after_the_commit_leaves_it_and_one_before_it_is_reported(tmp_path, monkeypatch, has_committed):
    """The library writes a checkpoint after some commits, and fails if that cannot be written."""
    from deltalake.exceptions import DeltaError

    lake = lake_at(tmp_path)
    table = type(delta_table(tmp_path))
    real = table.create_write_transaction

    def failing(self, *arguments, **named):
        if has_committed:
            real(self, *arguments, **named)
        raise DeltaError("no space")

    monkeypatch.setattr(table, "create_write_transaction", failing)
    if has_committed:
        assert lake.commit(BATCH, written(tmp_path, rows_of(records_of(4))))
    else:
        with pytest.raises(DamagedLake, match="no space"):
            lake.commit(BATCH, written(tmp_path, rows_of(records_of(4))))

    assert bodies(lake) == (list(range(4)) if has_committed else [])


class RecordedFiles(OsFiles):
    """Records what is made durable."""

    def __init__(self):
        self.synced = []

    def open(self, path):
        self.synced.append(path.rpartition("/")[2])
        return super().open(path)

    def sync_directory(self, path):
        self.synced.append(path.rpartition("/")[2])
        super().sync_directory(path)


def test_entries_of_the_log_are_durable_when_a_commit_returns(tmp_path):
    files = RecordedFiles()
    lake = lake_at(tmp_path, files=files)
    for number in range(3):
        files.synced.clear()
        lake.commit(BatchId("query", number), [])

        assert files.synced == [f"{number + 1:020d}.json", "_delta_log"]


def test_large_batches_are_rolled_into_several_files(tmp_path):
    batch = rows_of(records_of(400))
    lake = lake_at(tmp_path)

    files = written(tmp_path, *[batch.slice(begin, 100) for begin in range(0, 400, 100)], roll_size_bytes=1)
    lake.commit(BATCH, files)

    assert len(files) == 8
    assert bodies(lake) == list(range(400))


def test_empty_batches_are_committed_too(tmp_path):
    lake = lake_at(tmp_path)

    assert lake.commit(BATCH, written(tmp_path, rows_of(records_of(1)).slice(0, 0)))

    assert lake.last_number("query") == 3
    assert lake.files() == []


@pytest.mark.parametrize("change", ["damaged", "gone"])
def test_a_damaged_log_is_reported(tmp_path, change):
    lake_at(tmp_path).commit(BATCH, written(tmp_path, rows_of(records_of(4))))
    for path in (tmp_path / "_delta_log").glob("*.json"):
        path.write_text("{" * 40) if change == "damaged" else path.unlink()

    with pytest.raises(DamagedLake, match="_delta_log"):
        Lake.open(str(tmp_path)).files()


def test_other_columns_types_names_or_a_foreign_directory_are_refused(tmp_path):
    schema = rows_of(records_of(1)).schema
    lake_at(tmp_path / "lake")

    with pytest.raises(UnfitSchema, match="extra"):
        lake_at(tmp_path / "lake", schema.append(pa.field("extra", pa.string())))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(BadOption, match="no lake"):
        lake_at(tmp_path / "full")
    with pytest.raises(DamagedLake, match="none"):
        Lake.open(str(tmp_path / "full"))


class OvertakenFiles(OsFiles):
    """Pauses before it lists a directory for the first time, while another driver makes the lake."""

    def __init__(self, other):
        self.others = [other]

    def list_directory(self, path):
        while self.others:
            self.others.pop()()
        return super().list_directory(path)


def test_a_lake_created_concurrently_by_another_driver_is_accepted(tmp_path):
    def other():
        lake_at(tmp_path).commit(BATCH, written(tmp_path, rows_of(records_of(4))))

    lake = lake_at(tmp_path, files=OvertakenFiles(other))

    assert bodies(lake) == list(range(4))


def test_rows_without_offsets_are_refused(tmp_path):
    batch = rows_of(records_of(2))

    with pytest.raises(UnfitRows, match="queueOffset"):
        written(tmp_path, batch.select(["topic", "queueId", "storeTimestamp", "body"]))
    nulls = batch.set_column(0, "topic", pa.array(["orders", None]))
    with pytest.raises(UnfitRows, match="topic"):
        written(tmp_path, nulls)


def test_frame_with_some_columns_is_kept_without_a_checksum_of_records(tmp_path):
    batch = rows_of(records_of(4)).select(["topic", "queueId", "queueOffset", "storeTimestamp", "body"])
    lake = lake_at(tmp_path, batch.schema)

    lake.commit(BATCH, written(tmp_path, batch))

    assert [records_crc_of(lake.root, file) for file in lake.files()] == [None] * 2
    assert bodies(lake) == list(range(4))


def test_names_of_files_of_repeated_tasks_differ(tmp_path):
    batch = rows_of(records_of(40))
    paths = [file.path for _ in range(5) for file in written(tmp_path, batch)]

    assert len(set(paths)) == len(paths)
    assert sum(pq.read_metadata(tmp_path / path).num_rows for path in paths) == 5 * 40

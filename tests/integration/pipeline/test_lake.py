"""A lake contains each batch once, wherever its driver is killed."""

import errno
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.columns.record_builder import build_records
from pipeline.common.errors import BadOption, NotWritable
from pipeline.lake.columns import UnfitSchema
from pipeline.lake.files import STAGING, FileWriter, UnfitRows, checksum_of
from pipeline.lake.lake import Lake
from pipeline.lake.manifest import BatchId, DamagedLake, LogRange
from store.fs.linux.files import OsFiles
from tests.support.lake_rows import NAMES, records_of, rows_of

BATCH = BatchId("query", 3)


def stage(root, *batches, name="query-3-0", **options):
    writer = FileWriter(str(root), name, **options)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def lake_at(root, schema=None, files=None):
    return Lake.create(str(root), "parquet", schema or rows_of(records_of(1)).schema, files)


def read(root, file):
    return Lake.open(str(root)).read(file)


def bodies(lake):
    return sorted(int(body) for file in lake.files() for body in read(lake.root, file)["body"].to_pylist())


def plain_bodies(root):
    """Read like a program that does not know manifests."""
    return sorted(int(body) for body in pq.read_table(root, columns=["body"])["body"].to_pylist())


def test_rows_are_stored_by_topic_and_date_in_the_order_of_queues(tmp_path):
    """Ten hours, two of them before midnight; topics and days come mixed and backwards."""
    records = records_of(1_000, step_ms=36_000)
    batch = rows_of(records)
    lake = lake_at(tmp_path)

    lake.commit(BATCH, stage(tmp_path, batch.take(pa.array(range(999, -1, -1)))))

    files = lake.files()
    assert {(file.topic, file.date) for file in files} == {
        (topic, date) for topic in ("orders", "%RETRY%g") for date in ("2026-11-21", "2026-11-22")
    }
    for file in files:
        rows = read(tmp_path, file)
        assert rows.schema.names == list(NAMES)
        places = list(zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True))
        assert places == sorted(places)
        assert set(rows["topic"].to_pylist()) == {file.topic}
        assert {f"{time:%Y-%m-%d}" for time in rows["storeTimestamp"].to_pylist()} == {file.date}
    assert {file.path.split("/")[0] for file in files} == {"topic=orders", "topic=%25RETRY%25g"}
    assert sum(file.rows for file in files) == 1_000


def test_manifest_describes_the_contents_of_files(tmp_path):
    records = records_of(100, begin=5_000)
    lake = lake_at(tmp_path)

    lake.commit(BATCH, stage(tmp_path, rows_of(records, begin=5_000)), covers=LogRange("n0", 5_000, 9_000, 99, 2))

    (manifest,) = Lake.open(str(tmp_path)).manifests()
    assert manifest.rows == 100
    assert manifest.covers == LogRange("n0", 5_000, 9_000, 99, 2)
    for file in manifest.files:
        rows = read(tmp_path, file)
        offsets = rows["physicalOffset"].to_pylist()
        sizes = rows["storeSize"].to_pylist()
        assert file.physical == (min(offsets), max(offsets) + sizes[offsets.index(max(offsets))])
        assert file.size_bytes == (tmp_path / file.path).stat().st_size
        assert sum(span.rows for span in file.queues) == file.rows == len(rows)
        for span in file.queues:
            held = [
                offset
                for queue, offset in zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True)
                if queue == span.queue_id
            ]
            assert held == list(range(span.begin, span.end))
        (again,) = rows.combine_chunks().to_batches()
        built = build_records(again)
        assert checksum_of(built) == file.records_crc32c
        assert set(built.to_pylist()) <= set(records)


def test_covered_ranges_of_a_log_are_joined(tmp_path):
    lake = lake_at(tmp_path)
    for number, (begin, end) in enumerate([(100, 200), (0, 100), (150, 260), (300, 400)]):
        lake.commit(BatchId("a", number), [], covers=LogRange("n0", begin, end, end, number))
    lake.commit(BatchId("b", 0), [], covers=LogRange("n1", 260, 300))

    assert [(each.begin, each.end, each.last_term) for each in lake.covered("n0")] == [(0, 260, 2), (300, 400, 3)]


class Killed(Exception):
    """The process ends here."""


class CrashingFiles(OsFiles):
    """Ends before the nth change of a file."""

    def __init__(self, changes):
        self.left = changes


def _crashing(name):
    def change(self, *arguments, **named):
        if not self.left:
            raise Killed
        self.left -= 1
        return getattr(OsFiles, name)(self, *arguments, **named)

    return change


for _name in ("create_from", "rename", "remove", "make_directory", "sync_directory"):
    setattr(CrashingFiles, _name, _crashing(_name))


def commit_or_die(root, files, changes, batch=BATCH, **arguments):
    crashing = CrashingFiles(changes)
    try:
        lake_at(root, files=crashing).commit(batch, files, **arguments)
    except Killed:
        return False
    return True


def test_batch_is_stored_once_wherever_the_driver_is_killed(tmp_path):
    """Then the query begins again: tasks write the rows again, and the same batch is committed."""
    batch = rows_of(records_of(40))
    changes, has_ended = 0, False
    while not has_ended:
        root = tmp_path / str(changes)
        lake_at(root).commit(BatchId("query", 2), stage(root, rows_of(records_of(10, first=100))))
        has_ended = commit_or_die(root, stage(root, batch), changes)

        lake = lake_at(root)
        assert lake.commit(BATCH, stage(root, batch)).rows == 40

        assert bodies(lake) == [*range(40), *range(100, 110)], changes
        assert plain_bodies(root) == bodies(lake), changes
        assert bodies(lake_at(root)) == bodies(lake), changes
        changes += 1
    assert changes > 8


def test_abort_keeps_committed_files_and_deletes_the_rest(tmp_path):
    """Spark calls abort also when the commit took effect, and raised after it."""
    changes, has_ended = 0, False
    batch = rows_of(records_of(40))
    while not has_ended:
        root = tmp_path / str(changes)
        files = stage(root, batch)
        has_ended = commit_or_die(root, files, changes)
        lake = lake_at(root)
        was_committed = lake.manifest(BATCH) is not None

        lake.abort(BATCH, files)

        assert bodies(lake) == (list(range(40)) if was_committed else []), changes
        assert not any(lake_folder.iterdir() for lake_folder in (Path(lake.root) / STAGING).glob("*"))
        changes += 1


def test_two_concurrent_attempts_leave_the_rows_of_one(tmp_path):
    batch = rows_of(records_of(40))
    lake, other = lake_at(tmp_path), lake_at(tmp_path)
    mine, theirs = stage(tmp_path, batch), stage(tmp_path, batch)

    first = lake.commit(BATCH, mine)
    second = other.commit(BATCH, theirs)

    assert first == second
    assert bodies(lake) == list(range(40))


def test_large_batches_are_rolled_into_several_files(tmp_path):
    batch = rows_of(records_of(400))
    lake = lake_at(tmp_path)

    files = stage(tmp_path, *[batch.slice(begin, 100) for begin in range(0, 400, 100)], roll_size_bytes=1)
    lake.commit(BATCH, files)

    assert len(files) == 8
    assert bodies(lake) == list(range(400))


def test_empty_batches_are_committed_too(tmp_path):
    lake = lake_at(tmp_path)

    lake.commit(BATCH, stage(tmp_path, rows_of(records_of(1)).slice(0, 0)))

    assert lake.manifest(BATCH).rows == 0
    assert lake.files() == []


@pytest.mark.parametrize("change", ["one byte", "cut", "gone"])
def test_damaged_manifest_is_reported(tmp_path, change):
    lake = lake_at(tmp_path)
    lake.commit(BATCH, stage(tmp_path, rows_of(records_of(4))))
    (path,) = (tmp_path / "_manifests").glob("*.json")
    content = bytearray(path.read_bytes())
    if change == "gone":
        (tmp_path / "_lake.json").unlink()
        path = "_lake.json"
    else:
        content[30] ^= 1
        path.write_bytes(content if change == "one byte" else content[:-20])

    with pytest.raises(DamagedLake, match=Path(path).name):
        Lake.open(str(tmp_path)).files()


def test_missing_file_is_reported_before_a_batch_counts_as_published(tmp_path):
    lake = lake_at(tmp_path)
    files = stage(tmp_path, rows_of(records_of(4)))
    (tmp_path / files[0].staged).unlink()

    with pytest.raises(DamagedLake, match=r"part-query-3-0"):
        lake.commit(BATCH, files)


def test_other_columns_kind_or_a_foreign_directory_are_refused(tmp_path):
    schema = rows_of(records_of(1)).schema
    lake_at(tmp_path / "lake")

    with pytest.raises(UnfitSchema, match="extra"):
        lake_at(tmp_path / "lake", schema.append(pa.field("extra", pa.string())))
    with pytest.raises(BadOption, match="delta"):
        Lake.create(str(tmp_path / "lake"), "delta", schema)
    with pytest.raises(BadOption, match="hudi"):
        Lake.create(str(tmp_path / "new"), "hudi", schema)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(BadOption, match="no lake"):
        lake_at(tmp_path / "full")


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
        lake_at(tmp_path).commit(BATCH, stage(tmp_path, rows_of(records_of(4))))

    lake = lake_at(tmp_path, files=OvertakenFiles(other))

    assert bodies(lake) == list(range(4))


def test_a_file_system_without_hard_links_is_reported(tmp_path, monkeypatch):
    def refused(path, _):
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "hardlink_to", refused)

    with pytest.raises(NotWritable, match="hard link"):
        lake_at(tmp_path / "lake")

    assert list((tmp_path / "lake").iterdir()) == []


def test_rows_without_offsets_are_refused(tmp_path):
    batch = rows_of(records_of(2))

    with pytest.raises(UnfitRows, match="queueOffset"):
        stage(tmp_path, batch.select(["topic", "queueId", "storeTimestamp", "body"]))
    nulls = batch.set_column(0, "topic", pa.array(["orders", None]))
    with pytest.raises(UnfitRows, match="topic"):
        stage(tmp_path, nulls)


def test_frame_with_some_columns_is_kept_without_a_checksum_of_records(tmp_path):
    batch = rows_of(records_of(4)).select(["topic", "queueId", "queueOffset", "storeTimestamp", "body"])
    lake = lake_at(tmp_path, batch.schema)

    lake.commit(BATCH, stage(tmp_path, batch))

    assert [file.records_crc32c for file in lake.files()] == [None] * len(lake.files())
    assert bodies(lake) == list(range(4))


def test_manifests_are_json_that_others_can_read(tmp_path):
    lake = lake_at(tmp_path)
    lake.commit(BatchId("a query/with any name", 3), stage(tmp_path, rows_of(records_of(4))))

    (path,) = (tmp_path / "_manifests").glob("*.json")
    found = json.loads(path.read_text())
    assert (found["writeId"], found["batch"], found["rows"]) == ("a query/with any name", 3, 4)
    assert replace(lake.files()[0]) == lake.files()[0]

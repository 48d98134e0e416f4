"""Joining and deleting files loses and duplicates nothing; the check finds each changed byte."""

import random
from dataclasses import replace
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.archive.archived_rows import lake_rows
from pipeline.columns.record_builder import build_records
from pipeline.common.errors import BadOption
from pipeline.lake.files import RECORDS_CRC, UnfitRows
from pipeline.lake.lake import BatchId, DamagedLake, Lake, LogRange
from pipeline.lake.maintenance import clean_log, delete_unreferenced, optimize, vacuum, verify
from tests.support.lake_rows import (
    delta_table,
    grow_old,
    lake_at,
    overtaken,
    parquet_files,
    records_of,
    rows_of,
    table_bodies,
    written,
)

pytestmark = pytest.mark.skipif(not find_spec("deltalake"), reason="needs deltalake")
RECORDS = records_of(1_200, step_ms=50_000)


def filled(root, pieces=12):
    """Return an archive with the records, in as many commits, of two topics and two days."""
    lake = lake_at(root, has_logs=True)
    batch = rows_of(RECORDS)
    step = len(RECORDS) // pieces
    for number in range(pieces):
        part = batch.slice(number * step, step)
        lake.extend(LogRange("n0", number, number + 1), written(root, part, name=f"a-{number}", log="n0"))
    return lake


def records_in(lake):
    return [record for batch in lake_rows(lake) for record in build_records(batch).to_pylist()]


def test_many_files_are_joined_to_one_and_every_record_is_kept(tmp_path):
    lake = filled(tmp_path)
    before = lake.files()
    assert len(before) > 24

    done = optimize(lake)

    files = lake.files()
    assert {(file.topic, file.date, file.log) for file in files} == {
        (topic, day, "n0") for topic in ("orders", "%RETRY%g") for day in ("2026-11-21", "2026-11-22")
    }
    assert (len(files), done.added) == (4, 2)  # of the evening there is one file a topic anyway
    assert done.removed == len(before) - 2
    assert records_in(lake) == RECORDS
    assert records_in(Lake.open(str(tmp_path))) == RECORDS
    assert list(verify(lake)) == []
    assert lake.covered("n0").end == 12
    assert optimize(lake) == (0, 0)


def test_a_target_size_limits_joined_files(tmp_path):
    lake = filled(tmp_path)
    target = 3 * max(file.size_bytes for file in lake.files())

    optimize(lake, target_size_bytes=target)

    assert max(file.size_bytes for file in lake.files()) <= target
    assert 4 < len(lake.files()) < 24
    assert records_in(lake) == RECORDS


def test_a_query_that_commits_while_files_are_joined_is_kept(tmp_path):
    lake, query = filled(tmp_path, 4), lake_at(tmp_path)
    optimize(lake)

    query.commit(BatchId("q", 0), written(tmp_path, rows_of(RECORDS[:10]), log="n0"))

    assert len(table_bodies(tmp_path)) == len(RECORDS) + 10


def test_joining_while_a_query_commits_keeps_both(tmp_path, monkeypatch):
    lake, query = filled(tmp_path), lake_at(tmp_path)

    with overtaken(monkeypatch, lambda: optimize(lake)):
        assert query.commit(BatchId("q", 0), written(tmp_path, rows_of(RECORDS[:10]), log="n0"))

    assert len(table_bodies(tmp_path)) == len(RECORDS) + 10
    assert sum(file.rows for file in query.files()) == len(RECORDS) + 10


def test_a_reader_of_files_that_were_deleted_meanwhile_is_asked_to_repeat_it(tmp_path):
    lake = filled(tmp_path)
    before = lake.files()
    optimize(lake)
    delete_unreferenced(lake, 0)
    replaced = next(file for file in before if file not in lake.files())

    with pytest.raises(UnfitRows, match="Repeat it"):
        lake.read(replaced)


def test_vacuum_deletes_unreferenced_files_and_only_old_ones(tmp_path):
    lake = filled(tmp_path, 2)
    used = parquet_files(tmp_path)
    orphans = {file.path for file in written(tmp_path, rows_of(RECORDS[:50]), name="never-committed", log="n0")}
    mark = tmp_path / "_archived/n0.json"
    mark.parent.mkdir()
    mark.touch()

    assert vacuum(lake) == []
    grow_old(tmp_path)
    assert vacuum(lake, is_dry=True) == sorted(orphans)
    assert parquet_files(tmp_path) == used | orphans
    assert vacuum(lake) == sorted(orphans)

    assert parquet_files(tmp_path) == used
    assert mark.exists()
    assert records_in(lake) == RECORDS


def test_vacuum_keeps_files_that_were_replaced_less_than_its_age_ago(tmp_path):
    lake = filled(tmp_path)
    optimize(lake)
    grow_old(tmp_path)

    assert vacuum(lake, age_h=24) == []
    assert len(delete_unreferenced(lake, 0)) > 20

    assert records_in(lake) == RECORDS


def test_vacuum_keeps_a_young_file_that_a_query_is_about_to_commit(tmp_path):
    lake = filled(tmp_path, 2)
    grow_old(tmp_path)
    files = written(tmp_path, rows_of(RECORDS[:50]), log="n0")

    assert vacuum(lake, age_h=24) == []
    lake.commit(BatchId("q", 0), files)

    assert list(verify(lake)) == []


def test_vacuum_refuses_an_age_in_which_files_may_wait_for_their_commit(tmp_path):
    with pytest.raises(BadOption, match="at least 24 hours"):
        vacuum(filled(tmp_path, 2), age_h=23)


def test_a_checkpoint_replaces_old_entries_of_the_log(tmp_path):
    lake = lake_at(tmp_path)
    for number in range(30):
        lake.commit(BatchId("q", number), written(tmp_path, rows_of(RECORDS).slice(number, 1)))
    rows = table_bodies(tmp_path)

    assert clean_log(lake) >= 31

    assert (tmp_path / "_delta_log/_last_checkpoint").exists()
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if int(path.stem) < 30:
            path.unlink()
    again = Lake.open(str(tmp_path))
    assert table_bodies(tmp_path) == rows
    assert sum(file.rows for file in again.files()) == 30
    assert again.last_number("q") == 29
    assert again.commit(BatchId("q", 30), [])


def test_check_names_each_missing_cut_or_changed_file(tmp_path):
    lake = filled(tmp_path, 1)
    gone, changed, cut, *_ = (file.path for file in lake.files())
    (tmp_path / gone).unlink()
    flip(tmp_path / changed, 100)
    (tmp_path / cut).write_bytes((tmp_path / cut).read_bytes()[:-1])

    first, second, third = verify(lake)
    assert (first.path, first.found) == (gone, "none")
    assert (second.path, changed in str(second)) == (changed, True)
    assert third.path == cut
    assert int(third.found) == int(third.expected.split()[0]) - 1
    assert [each.path for each in verify(lake, is_deep=False)] == [gone, changed, cut]
    with pytest.raises(UnfitRows, match=changed.rpartition("/")[2]):
        lake.read(next(file for file in lake.files() if file.path == changed))
    with pytest.raises(DamagedLake, match="verify"):
        optimize(filled_again(tmp_path, lake))


def filled_again(root, lake):
    """Add more files of the same topics and days, so that there is something to join."""
    lake.extend(LogRange("n0", 100, 101), written(root, rows_of(RECORDS), log="n0"))
    return lake


def flip(path, position, bit=0):
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def test_a_changed_bit_anywhere_in_a_file_is_found_or_changes_no_record(tmp_path):
    """Positions are drawn; footers have no checksum, but records that differ are found."""
    seed = random.randrange(1 << 30)
    print(f"seed={seed}")
    draw = random.Random(seed)
    lake = filled(tmp_path, 1)
    found = 0
    for _ in range(60):
        file = draw.choice(lake.files())
        place = draw.randrange(file.size_bytes), draw.randrange(8)
        flip(tmp_path / file.path, *place)

        if list(verify(lake)):
            found += 1
        else:
            assert records_in(lake) == RECORDS, place
        flip(tmp_path / file.path, *place)
    assert found > 20


@pytest.mark.parametrize("name", ["body", "storeTimestamp", "propertiesRaw"])
def test_check_finds_values_that_differ_from_those_of_the_log_though_pages_are_intact(tmp_path, name, monkeypatch):
    """A file is written again, with another value: its pages have right checksums, its records do not."""
    lake = filled(tmp_path, 2)
    file = lake.files()[0]
    path = tmp_path / file.path
    rows, metadata = pq.ParquetFile(path).read(), pq.read_metadata(path).metadata
    values = rows[name].to_pylist()
    values[1] = values[0]
    at = rows.schema.get_field_index(name)
    changed = rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))
    pq.write_table(changed.replace_schema_metadata({RECORDS_CRC: metadata[RECORDS_CRC]}), path)

    # The log has the size of the old file; only the check of rows is of interest here.
    monkeypatch.setattr(lake, "files", lambda: [replace(file, size_bytes=path.stat().st_size)])
    found = list(verify(lake))

    assert [each.path for each in found] == [file.path]
    assert "records with the checksum" in found[0].expected


def test_check_finds_a_changed_body_in_a_file_that_another_program_wrote(tmp_path):
    lake = filled(tmp_path, 2)
    delta_table(tmp_path).update(updates={"bodyCrc": "bodyCrc + 1"}, predicate="queueOffset = 3")
    lake.refresh()

    found = list(verify(lake))

    assert len(found) == 4  # two queues of two topics
    assert all("queue offset 3" in each.expected for each in found)

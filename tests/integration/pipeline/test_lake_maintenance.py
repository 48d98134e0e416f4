"""Compaction and vacuum lose and duplicate nothing; the check finds each changed byte."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.archive.archived_rows import lake_rows
from pipeline.columns.record_builder import build_records
from pipeline.lake import maintenance
from pipeline.lake.files import UnfitRows
from pipeline.lake.lake import FilesReplaced, Lake
from pipeline.lake.maintenance import compact, vacuum, verify
from pipeline.lake.manifest import BatchId, LogRange
from store.errors import DirectoryLocked
from store.fs.linux.files import OsFiles
from tests.support.lake_rows import records_of, rows_of

RECORDS = records_of(1_200, step_ms=50_000)


def lake_at(root, kind="parquet"):
    return Lake.create(str(root), kind, rows_of(RECORDS[:1]).schema)


def fill(lake, pieces=12):
    """Commit the records in as many batches, of two topics and two days."""
    batch = rows_of(RECORDS)
    step = len(RECORDS) // pieces
    for number in range(pieces):
        writer = lake.writer(f"a-{number}")
        writer.write(batch.slice(number * step, step))
        lake.commit(BatchId("a", number), writer.finish(), covers=LogRange("n0", number, number + 1))


def records_in(lake):
    return [record for batch in lake_rows(lake) for record in build_records(batch).to_pylist()]


def grow_old(root):
    for path in [*Path(root).rglob("*")]:
        os.utime(path, (1, 1))


def test_compaction_makes_one_file_of_many_and_keeps_every_record(tmp_path):
    lake = lake_at(tmp_path)
    fill(lake)
    assert len(lake.files()) > 24

    done = compact(lake)

    files = lake.files()
    assert {(file.topic, file.date) for file in files} == {
        (topic, day) for topic in ("orders", "%RETRY%g") for day in ("2026-11-21", "2026-11-22")
    }
    assert len(files) == 4
    assert len(done) == 2  # of the evening there is one file a topic anyway
    assert records_in(lake) == RECORDS
    assert list(verify(lake)) == []
    assert lake.covered("n0")[0].end == 12
    assert compact(lake) == []
    on_disk = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert on_disk == {file.path for file in files}


def test_large_files_are_left_alone_and_the_target_is_kept(tmp_path):
    lake = lake_at(tmp_path)
    fill(lake)
    target = 3 * max(file.size_bytes for file in lake.files())

    compact(lake, target_size_bytes=target)

    assert max(file.size_bytes for file in lake.files()) <= target
    assert 4 < len(lake.files()) < 24
    assert records_in(lake) == RECORDS


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("place", ["create", "mark_published", "remove"])
def test_interrupted_compaction_is_completed(tmp_path, place, monkeypatch):
    lake = lake_at(tmp_path)
    fill(lake)

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        owner = "pipeline.lake.lake.Lake" if place == "remove" else "pipeline.lake.manifest.Manifests"
        patch.setattr(f"{owner}.{place}", killed)
        with suppress(Killed):
            compact(lake)

    again = lake_at(tmp_path)
    assert records_in(again) == RECORDS
    compact(again)
    assert records_in(again) == RECORDS
    assert len(again.files()) == 4


@pytest.mark.parametrize("place", ["read", "writer", "commit"])
def test_two_concurrent_compactions_duplicate_nothing(tmp_path, place, monkeypatch):
    """The other one has replaced the files before they are read, after that, or after they are written."""
    lake = lake_at(tmp_path)
    fill(lake)
    real = getattr(Lake, place)
    others = [lambda: compact(Lake.open(str(tmp_path)))]

    def outrun(self, *arguments, **named):
        while others:
            others.pop()()
        return real(self, *arguments, **named)

    monkeypatch.setattr(Lake, place, outrun)

    assert compact(lake) == []

    assert records_in(lake) == RECORDS
    assert len(lake.files()) == 4
    assert not list((tmp_path / "_staging").iterdir())


def test_files_that_were_replaced_cannot_be_replaced_again(tmp_path):
    lake = lake_at(tmp_path)
    fill(lake)
    removed = [file.path for file in lake.files()]
    compact(lake)

    with pytest.raises(FilesReplaced, match="begin again"):
        lake.commit(BatchId("mine", 0), [], removed=removed)

    assert records_in(lake) == RECORDS


def test_reader_of_files_compacted_meanwhile_gets_an_error_that_says_to_retry(tmp_path):
    lake = lake_at(tmp_path)
    fill(lake)
    before = lake.files()
    compact(lake)
    replaced = next(file for file in before if file not in lake.files())

    with pytest.raises(UnfitRows, match="compacted meanwhile"):
        lake.read(replaced)


def test_vacuum_deletes_unreferenced_files_and_only_old_ones(tmp_path):
    lake = lake_at(tmp_path)
    fill(lake, 2)
    held = {file.path for file in lake.files()}
    writer = lake.writer("never-committed")
    writer.write(rows_of(RECORDS[:50]))
    orphans = {file.staged for file in writer.finish()}
    stray = next(iter(held)).rpartition("/")[0] + "/part-of-nobody.parquet"
    (tmp_path / stray).touch()
    (tmp_path / "_manifests/.draft-1").touch()

    assert vacuum(lake) == []
    grow_old(tmp_path)
    expected = sorted([*orphans, stray, "_manifests/.draft-1"])
    assert vacuum(lake, is_dry=True) == expected
    assert vacuum(lake) == expected

    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")} == held
    assert not list((tmp_path / "_staging").iterdir())
    assert records_in(lake) == RECORDS


def test_vacuum_publishes_committed_batches_before_it_deletes(tmp_path, monkeypatch):
    lake = lake_at(tmp_path)
    writer = lake.writer("a-0")
    writer.write(rows_of(RECORDS))
    files = writer.finish()

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.lake.lake.Lake._publish", killed)
        with suppress(Killed):
            lake.commit(BatchId("a", 0), files)
    grow_old(tmp_path)

    vacuum(lake_at(tmp_path))

    assert records_in(lake) == RECORDS


@pytest.mark.parametrize("place", ["listing", "listed"])
def test_vacuum_keeps_files_that_a_query_commits_meanwhile(tmp_path, monkeypatch, place):
    """Staging folders are deleted before they are listed, or their files after that."""
    lake = lake_at(tmp_path)
    writer = lake.writer("a-0")
    writer.write(rows_of(RECORDS))
    staged = [writer.finish()]
    module, name = (os, "scandir") if place == "listing" else (maintenance, "_drafts")
    real = getattr(module, name)

    def look(path):
        if staged and (place == "listed" or "_staging/" in str(path)):
            lake_at(tmp_path).commit(BatchId("a", 0), staged.pop())
        return real(path)

    monkeypatch.setattr(module, name, look)

    assert vacuum(lake) == []

    assert not staged
    assert records_in(lake) == RECORDS


def test_vacuum_removes_no_folder_while_a_driver_publishes_into_it(tmp_path, monkeypatch):
    lake = lake_at(tmp_path)
    fill(lake, 2)
    stray = tmp_path / "topic=orders" / "date=2020-01-01" / "part-of-nobody.parquet"
    stray.parent.mkdir()
    stray.touch()
    grow_old(tmp_path)
    real, refused = Path.rmdir, []

    def rmdir(path):
        with pytest.raises(DirectoryLocked):
            OsFiles().lock(f"{tmp_path}/_lock")
        refused.append(path)
        real(path)

    monkeypatch.setattr(Path, "rmdir", rmdir)

    vacuum(lake)

    assert refused == [stray.parent]


def test_check_names_each_missing_or_changed_file(tmp_path):
    lake = lake_at(tmp_path)
    fill(lake, 2)
    gone, changed, *_ = (file.path for file in lake.files())
    (tmp_path / gone).unlink()
    content = bytearray((tmp_path / changed).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / changed).write_bytes(content)

    first, second = verify(lake)
    assert (first.path, first.found) == (gone, "none")
    assert (second.path, changed in str(second)) == (changed, True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_compacted_too(tmp_path, kind):
    from tests.integration.pipeline.test_lake_tables import numbers

    lake = lake_at(tmp_path, kind)
    fill(lake, 4)

    compact(lake)

    assert numbers(tmp_path, kind) == list(range(1_200))
    grow_old(tmp_path)
    assert len(vacuum(lake)) > 4
    assert numbers(tmp_path, kind) == list(range(1_200))

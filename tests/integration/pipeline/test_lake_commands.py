"""`dledger spark lake`: what it prints, how it exits, and what it does to the files."""

import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipeline.lake.lake import BatchId, Lake
from tests.support.lake_rows import bodies, grow_old, lake_at, parquet_files, records_of, rows_of, table_bodies, written
from tests.support.spark_cli import run

pytestmark = pytest.mark.skipif(not find_spec("deltalake"), reason="needs deltalake")
FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def lake(tmp_path):
    """Return a lake of six files in three commits, and the files of an attempt that was not committed."""
    lake = lake_at(tmp_path / "lake")
    for number in range(3):
        lake.commit(BatchId("q", number), written(lake.root, rows_of(records_of(10, first=10 * number))))
    written(lake.root, rows_of(records_of(5)))
    return lake


def succeeded(*words):
    done = run("lake", *words)
    assert done.exit_code == 0, done.output
    return done


def test_small_files_are_joined_once(lake):
    assert "6 files were joined to 2" in succeeded("optimize", lake.root).stdout
    assert "no small files" in succeeded("optimize", lake.root).stdout

    lake.refresh()
    assert bodies(lake) == list(range(30))


def test_vacuum_lists_what_it_would_delete_and_deletes_it_then(lake):
    used = {file.path for file in lake.files()}
    orphans = parquet_files(lake.root) - used
    assert "0 files were deleted" in succeeded("vacuum", lake.root).stderr
    grow_old(lake.root)

    dry = succeeded("vacuum", lake.root, "--dry-run")
    assert set(dry.stdout.split()) == orphans
    assert "2 files would be deleted" in dry.stderr
    assert parquet_files(lake.root) == used | orphans
    done = succeeded("vacuum", lake.root, "--older-than", "24")

    assert set(done.stdout.split()) == orphans
    assert parquet_files(lake.root) == used
    assert Path(lake.root, "_delta_log", "_last_checkpoint").exists()
    assert table_bodies(lake.root) == list(range(30))


def test_vacuum_refuses_an_age_below_a_day(lake):
    done = run("lake", "vacuum", lake.root, "--older-than", "23")

    assert done.exit_code == 2
    assert "at least 24 hours" in done.stderr


def test_verify_counts_files_and_exits_with_1_if_one_is_damaged(lake):
    assert "6 files of 30 rows are intact" in succeeded("verify", lake.root).stdout
    path = lake.files()[0].path
    Path(lake.root, path).unlink()

    for words in ([], ["--quick"]):
        done = run("lake", "verify", lake.root, *words)
        assert done.exit_code == 1
        assert path in done.stdout
        assert "no fault in 6 files, found 1" in done.stderr


def test_an_old_lake_names_the_command_that_converts_it(tmp_path):
    with tarfile.open(FIXTURES / "old-lake-archive.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    root = str(tmp_path / "archive")

    refused = [run("lake", name, root) for name in ("optimize", "vacuum", "verify")]
    refused += [run("restore", root, "127.0.0.1:1"), run("archive", root, root, "--log", "n0")]
    for done in refused:
        assert done.exit_code == 1
        assert f"dledger spark lake convert {root}" in done.stderr

    assert "10 files, 70 rows" in succeeded("convert", root).stdout
    assert len(bodies(Lake.open(root))) == 70
    again = run("lake", "convert", root)
    assert again.exit_code == 1
    assert "needs no conversion" in again.stderr


@pytest.mark.parametrize("command", ["optimize", "vacuum", "verify", "convert"])
def test_a_directory_without_a_lake_is_reported(tmp_path, command):
    done = run("lake", command, str(tmp_path))

    assert done.exit_code == 1
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.output + done.stderr

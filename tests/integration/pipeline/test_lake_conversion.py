"""Lakes of older versions are refused, and converted to Delta tables with every row, number and range."""

import errno
import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.archive.archived_rows import lake_rows
from pipeline.columns.record_builder import build_records
from pipeline.lake.conversion import CONVERTED, NoOldLake, convert
from pipeline.lake.lake import BatchId, DamagedLake, Lake, LogRange, OldLake
from pipeline.lake.maintenance import delete_unreferenced, verify
from store.errors import StorageFailed
from store.fs.linux.files import OsFiles
from store.fs.sealed_json import seal, unseal
from tests.support.lake_rows import (
    Killed,
    bodies,
    delta_table,
    lake_at,
    parquet_files,
    records_of,
    rows_of,
    table_bodies,
    written,
)

pytestmark = pytest.mark.skipif(not find_spec("deltalake"), reason="needs deltalake")
FIXTURES = Path(__file__).parents[2] / "fixtures"
# Of the table.
LEFT = list(range(8, 60))
# Physical offsets at the ends of the archived logs.
END_OF_N0, END_OF_N1 = 7_240, 1_190


def unpacked(folder, name):
    """Unpack a lake of the older version and return its directory."""
    with tarfile.open(FIXTURES / f"old-lake-{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def records_in(lake, log):
    return [record for batch in lake_rows(lake, log=log) for record in build_records(batch).to_pylist()]


def check_archive(root):
    """Check the converted archive: 60 messages of n0, of which 20 were not published yet, and 10 of n1."""
    lake = Lake.open(str(root))
    assert lake.has_logs
    assert records_in(lake, "n0") == records_of(60, step_ms=600_000)
    assert records_in(lake, "n1") == records_of(10)
    assert lake.covered("n0") == ("n0", 0, END_OF_N0)
    assert lake.covered("n1") == ("n1", 0, END_OF_N1)
    assert list(verify(lake)) == []
    assert {file.path.split("/")[2] for file in lake.files()} == {"log=n0", "log=n1"}
    assert len(table_bodies(root)) == 70
    assert parquet_files(root) == {file.path for file in lake.files()}
    # Its files are new, and no other program needs another kind of reader.
    assert lake.extend(LogRange("n0", END_OF_N0, END_OF_N0 + 1), [])


def test_an_old_lake_is_refused_until_it_is_converted(tmp_path):
    root = unpacked(tmp_path, "archive")

    with pytest.raises(OldLake, match="dledger spark lake convert"):
        Lake.open(str(root))
    with pytest.raises(OldLake, match="dledger spark lake convert"):
        lake_at(root)


def test_an_archive_of_manifests_becomes_a_table_with_its_logs_and_ranges(tmp_path):
    root = unpacked(tmp_path, "archive")

    done = convert(str(root))

    assert done.rows == 70
    check_archive(root)
    assert {path.name for path in (root / CONVERTED).iterdir()} == {"_manifests", "_staging", "_lock", "_lake.json"}
    assert {path.name for path in root.iterdir() if path.name.startswith("_")} == {CONVERTED, "_delta_log"}
    with pytest.raises(NoOldLake):
        convert(str(root))


def test_a_table_that_another_program_changed_keeps_the_rows_that_were_left(tmp_path):
    """Two queries wrote 40 rows; a DELETE of Delta removed eight, and wrote two files.

    Then two drivers were killed: one after its batch was in the table, one after its batch was decided.
    """
    root = unpacked(tmp_path, "delta")

    assert convert(str(root)).rows == len(LEFT)

    lake = Lake.open(str(root))
    assert not lake.has_logs
    assert table_bodies(root) == bodies(lake) == LEFT
    assert [lake.last_number(name) for name in ("query", "monday", "tuesday")] == [3, 0, 0]
    assert not lake.commit(BatchId("query", 3), written(root, rows_of(records_of(10, first=40))))
    assert lake.commit(BatchId("query", 4), written(root, rows_of(records_of(10, first=100))))
    assert (root / CONVERTED / "_delta_log").is_dir()
    delete_unreferenced(lake, 0)
    assert table_bodies(root) == [*LEFT, *range(100, 110)]
    assert delta_table(root).version() >= 2


def test_an_iceberg_table_is_converted_by_its_manifests(tmp_path):
    root = unpacked(tmp_path, "archive")
    described = unseal((root / "_lake.json").read_bytes())
    (root / "_lake.json").write_bytes(seal(described | {"kind": "iceberg"}))
    (root / "metadata").mkdir()
    (root / "metadata" / "v1.json").touch()
    (root / "_catalog.db").touch()

    convert(str(root))

    check_archive(root)
    assert not (root / "metadata").exists()
    assert (root / CONVERTED / "_catalog.db").exists()


class CrashingFiles(OsFiles):
    """Ends before the nth change of a file or folder."""

    def __init__(self, changes):
        self.left = changes


def _crashing(name):
    def change(self, *arguments, **named):
        if not self.left:
            raise Killed
        self.left -= 1
        return getattr(OsFiles, name)(self, *arguments, **named)

    return change


for _name in ("rename", "make_directory", "open", "sync_directory"):
    setattr(CrashingFiles, _name, _crashing(_name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["archive", "delta"])
def test_an_interrupted_conversion_is_completed_by_another(tmp_path, name):
    source = unpacked(tmp_path / "source", name)
    changes, has_ended = 0, False
    while not has_ended:
        root = tmp_path / str(changes)
        shutil.copytree(source, root)
        try:
            convert(str(root), CrashingFiles(changes))
            has_ended = True
        except Killed:
            if (root / "_lake.json").exists():
                with pytest.raises(OldLake):
                    Lake.open(str(root))
                convert(str(root))

        if name == "archive":
            check_archive(root)
        else:
            assert table_bodies(root) == LEFT
            assert Lake.open(str(root)).last_number("query") == 3
        shutil.rmtree(root)
        changes += 1
    assert changes > 10


@pytest.mark.parametrize("damage", ["a data file is gone", "a data file is damaged", "a file has other rows"])
def test_a_damaged_lake_is_not_converted(tmp_path, damage):
    root = unpacked(tmp_path, "archive")
    path, other = sorted(root.rglob("topic=orders/**/*.parquet"))[:2]
    if damage == "a data file is gone":
        path.unlink()
    elif damage == "a data file is damaged":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        pq.write_table(pq.ParquetFile(other).read().slice(1), path)

    with pytest.raises(DamagedLake, match="repeat the conversion"):
        convert(str(root))

    assert (root / "_lake.json").exists()


@pytest.mark.parametrize("name", ["_lake.json", "_manifests"])
def test_a_damaged_description_or_manifest_is_named_and_nothing_is_changed(tmp_path, name):
    root = unpacked(tmp_path, "archive")
    path = root / name
    if path.is_dir():
        path = min(path.glob("*.json"))
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)
    before = sorted(root.rglob("*"))

    with pytest.raises(DamagedLake, match="nothing was changed") as caught:
        convert(str(root))

    assert str(path) in str(caught.value)
    assert sorted(root.rglob("*")) == before


def test_a_directory_without_an_old_lake_is_reported(tmp_path):
    lake_at(tmp_path / "new")

    for path in (tmp_path / "new", tmp_path / "nothing"):
        with pytest.raises(NoOldLake, match="needs no conversion"):
            convert(str(path))


class FullFiles(OsFiles):
    """Cannot move files."""

    def rename(self, source, target):
        raise StorageFailed(source, "rename", OSError(errno.EROFS, "Read-only file system", target))


def test_a_file_that_cannot_be_moved_is_reported_and_the_conversion_may_be_repeated(tmp_path):
    root = unpacked(tmp_path, "archive")

    with pytest.raises(StorageFailed):
        convert(str(root), FullFiles())
    convert(str(root))

    check_archive(root)

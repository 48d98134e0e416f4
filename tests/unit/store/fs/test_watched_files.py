"""A file system that calls a function once, before the first change: any change, and nothing else."""

import pytest

from store.errors import DiskFull
from store.fs.linux.files import OsFiles
from store.fs.ports import FileWrite
from store.fs.watched_files import FirstChange, WatchedFiles
from tests.support.faulty_disk import FaultyDisk

CHANGES = {
    "make_directory": lambda files, path: files.make_directory(f"{path}/made"),
    "create": lambda files, path: files.create(f"{path}/new", 10).close(),
    "create_from": lambda files, path: files.create_from(f"{path}/new", [b"x"]),
    "replace": lambda files, path: files.replace(f"{path}/file", b"x"),
    "write_existing": lambda files, path: files.write_existing([FileWrite(f"{path}/file", 0, b"x", 4)])[0].close(),
    "rename": lambda files, path: files.rename(f"{path}/file", f"{path}/other"),
    "remove": lambda files, path: files.remove(f"{path}/file"),
    "remove_directory": lambda files, path: files.remove_directory(f"{path}/folder"),
    "write": lambda files, path: files.open(f"{path}/file").write(b"x", 0),
    "allocate": lambda files, path: files.open(f"{path}/file").allocate(0, 4),
}


def look(files, path):
    """Use all operations that change nothing."""
    files.make_directory(f"{path}/folder")
    assert files.list_directory(path) == ["file", "folder"]
    assert files.list_entries(path) == [("file", False), ("folder", True)]
    assert files.exists(f"{path}/file")
    assert files.is_directory(f"{path}/folder")
    file = files.open(f"{path}/file")
    assert (file.read(0, 4), bytes(file.view()), file.size, file.path) == (b"data", b"data", 4, f"{path}/file")
    assert file.data_ranges(0)
    file.advise_random()
    file.sync()
    files.sync_all([file], [path])
    file.close()
    assert [each.name for each in next(iter(files.scan_directories([path], is_cache_trusted=True)))] == [
        "file",
        "folder",
    ]
    assert files.read_bytes(f"{path}/file") == b"data"
    files.sync_directory(path)
    assert files.modified_time(f"{path}/file") > 0
    assert 0 <= files.disk_used_ratio(path) <= 1


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "folder").mkdir()
    return str(tmp_path)


@pytest.mark.parametrize("change", CHANGES)
def test_first_change_is_announced_before_it_is_made(path, change):
    seen = []
    first = FirstChange(
        lambda: seen.append([*sorted(OsFiles().list_entries(path)), OsFiles().read_bytes(f"{path}/file")])
    )
    files = WatchedFiles(OsFiles(), first)
    look(files, path)
    assert (seen, first.is_announced, first.is_made) == ([], False, False)

    CHANGES[change](files, path)

    assert seen == [[("file", False), ("folder", True), b"data"]]
    assert (first.is_announced, first.is_made) == (True, True)
    files.create_from(f"{path}/one more", [b"x"])
    assert len(seen) == 1


def test_change_that_did_not_fit_was_announced_and_not_made(path):
    first, disk = FirstChange(lambda: None), FaultyDisk()
    disk.is_full = True

    with pytest.raises(DiskFull):
        WatchedFiles(disk, first).create(f"{path}/new", 10)

    assert (first.is_announced, first.is_made) == (True, False)


def test_change_that_cannot_be_announced_is_not_made(path):
    def fail():
        raise DiskFull(path, 1)

    first = FirstChange(fail)

    with pytest.raises(DiskFull):
        WatchedFiles(OsFiles(), first).remove(f"{path}/file")

    assert OsFiles().exists(f"{path}/file")
    assert (first.is_announced, first.is_made) == (False, False)

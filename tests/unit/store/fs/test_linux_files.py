"""The operating system as an implementation of `store.fs.ports`."""

import errno
import itertools
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import store.fs.linux.files
from commitlog.offline.lock_probe import find_holder
from dledger import native
from store.errors import DirectoryLocked, DiskFull, ForeignFile, StorageFailed
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles


@pytest.fixture
def files():
    return OsFiles()


def test_created_file_is_zero_allocated_and_shows_writes_in_its_map(files, tmp_path):
    file = files.create(f"{tmp_path}/a", 1 << 16)

    assert Path(file.path).stat().st_blocks * 512 >= 1 << 16
    assert file.read(0, 1 << 16) == bytes(1 << 16)
    view = file.view()
    file.write(b"abc", 70)
    file.write(memoryview(b"defg")[1:], 100)
    assert bytes(view[70:73]) == b"abc"
    assert file.read(100, 3) == b"efg"
    file.sync()
    file.close()
    assert files.open(file.path).read(68, 6) == b"\0\0abc\0"


def descriptors_count():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_mapped_file_costs_one_descriptor(files, tmp_path):
    before = descriptors_count()

    opened = [files.create(str(tmp_path / str(number)), 4096, is_sparse=True) for number in range(20)]
    opened[0].write(b"abc", 0)
    found = [bytes(file.view()[:3]) for file in opened]

    assert descriptors_count() - before == 20
    for file in opened:
        file.close()
    assert descriptors_count() == before
    assert found == [b"abc", *[bytes(3)] * 19]


def test_view_is_read_only(files, tmp_path):
    file = files.create(f"{tmp_path}/a", 4096)

    with pytest.raises(TypeError):
        file.view()[0] = 1


def test_write_beyond_the_end_is_a_bug_and_the_file_does_not_grow(files, tmp_path):
    file = files.create(f"{tmp_path}/a", 4096)

    with pytest.raises(AssertionError):
        file.write(b"12345", 4092)
    assert Path(file.path).stat().st_size == 4096


def test_creating_what_exists_fails_and_leaves_it(files, tmp_path):
    (tmp_path / "a").write_bytes(b"x")

    with pytest.raises(StorageFailed) as failure:
        files.create(f"{tmp_path}/a", 4096)
    assert str(tmp_path) in str(failure.value)
    assert (tmp_path / "a").read_bytes() == b"x"


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_creating_without_space_is_a_full_disk_and_leaves_nothing(files, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", no_space)

    with pytest.raises(DiskFull, match="no space for 4096 bytes"):
        files.create(f"{tmp_path}/a", 4096)
    assert files.list_directory(str(tmp_path)) == []


def test_failed_operations_name_the_file_and_the_operation(files, tmp_path, monkeypatch):
    file = files.create(f"{tmp_path}/a", 4096)

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", fail)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageFailed, match=r"/a: write of 3 bytes at 7 failed: .*Input/output error"):
        file.write(b"abc", 7)
    with pytest.raises(StorageFailed, match=r"/a: sync failed: .*Input/output error"):
        file.sync()


def test_short_write_is_continued(files, tmp_path, monkeypatch):
    file = files.create(f"{tmp_path}/a", 4096)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: pwrite(descriptor, data[:3], position))

    file.write(b"0123456789", 5)

    assert file.read(4, 12) == b"\x000123456789\0"


def test_sync_of_a_closed_file_does_nothing_and_close_may_come_twice(files, tmp_path):
    file = files.create(f"{tmp_path}/a", 4096)
    file.close()
    file.close()

    file.sync()


def test_slices_of_the_map_outlive_the_file(files, tmp_path):
    file = files.create(f"{tmp_path}/a", 4096)
    file.write(b"abc", 0)
    part = file.view()[0:3]

    file.close()

    assert bytes(part) == b"abc"


def test_data_ranges_hold_all_data_of_a_sparse_file(files, tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as stream:
        stream.truncate(64 << 20)
        stream.seek(40 << 20)
        stream.write(b"x")
    file = files.open(str(path))

    def covers(position, ranges):
        return any(begin <= position < end for begin, end in ranges)

    assert covers(40 << 20, file.data_ranges(0))
    assert covers(40 << 20, file.data_ranges(40 << 20))
    assert all(begin >= 41 << 20 for begin, _ in file.data_ranges(41 << 20))


def test_allocate_gives_a_sparse_file_blocks_and_keeps_its_content(files, tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as stream:
        stream.write(b"abc")
        stream.truncate(1 << 20)
    file = files.open(str(path))

    file.allocate(0, 1 << 20)

    assert path.stat().st_blocks * 512 >= 1 << 20
    assert file.read(0, 4) == b"abc\0"


def test_missing_files_and_directories_count_as_empty(files, tmp_path):
    assert files.list_directory(f"{tmp_path}/nowhere") == []
    assert files.read_bytes(f"{tmp_path}/nothing") is None
    assert not files.exists(f"{tmp_path}/nothing")
    with pytest.raises(StorageFailed, match="nothing"):
        files.open(f"{tmp_path}/nothing")


def test_directories_are_made_with_their_parents(files, tmp_path):
    files.make_directory(f"{tmp_path}/a/b/c")
    files.make_directory(f"{tmp_path}/a/b/c")

    assert (tmp_path / "a/b/c").is_dir()


@pytest.mark.parametrize("is_prepared", [True, False])
def test_replace_changes_the_content_whole_and_needs_no_new_file_later(files, tmp_path, is_prepared):
    path = f"{tmp_path}/a"
    if is_prepared:
        files.prepare_replace(path)
    files.replace(path, b"first, longer than the rest")
    files.replace(path, b"second")
    inodes = {Path(path).stat().st_ino, Path(path + ".spare").stat().st_ino}

    for number in range(10):
        files.replace(path, b"content %d" % number)

        assert Path(path).read_bytes() == b"content %d" % number
        # The two files are exchanged: no further block or inode is needed, so a full disk does not matter.
        assert {Path(path).stat().st_ino, Path(path + ".spare").stat().st_ino} == inodes
        assert Path(path).stat().st_nlink == Path(path + ".spare").stat().st_nlink == 1
    assert files.list_directory(str(tmp_path)) == ["a", "a.spare"]


def test_spare_that_a_crash_left_linked_to_the_file_is_not_written_into(files, tmp_path):
    path = f"{tmp_path}/a"
    files.replace(path, b"first")
    assert not files.exists(path + ".spare")
    os.link(path, path + ".spare")
    os.link(path, path + ".kept")
    with Path(path).open("rb") as old:
        files.replace(path, b"second")

        assert old.read() == b"first"
    assert Path(path).read_bytes() == b"second"


LOCK_PROGRAM = """
import sys
from store.fs.linux.files import OsFiles
from store.errors import DirectoryLocked
try:
    OsFiles().lock(sys.argv[1])
except DirectoryLocked as error:
    print(error)
"""


def test_lock_excludes_other_processes_and_names_the_holder(files, tmp_path):
    path = f"{tmp_path}/lock"
    lock = files.lock(path)

    def try_elsewhere():
        return subprocess.run(
            [sys.executable, "-c", LOCK_PROGRAM, path], capture_output=True, text=True, check=True
        ).stdout

    assert f"process {os.getpid()}" in try_elsewhere()
    with pytest.raises(DirectoryLocked):
        files.lock(path)
    lock.release()
    lock.release()
    assert try_elsewhere() == ""
    files.lock(path).release()


def test_file_from_chunks_holds_them_and_leaves_nothing_when_they_fail(files, tmp_path, monkeypatch):
    files.create_from(f"{tmp_path}/a", (b"%d," % number for number in range(5)))
    files.create_from(f"{tmp_path}/empty", [])

    assert (tmp_path / "a").read_bytes() == b"0,1,2,3,4,"
    assert (tmp_path / "empty").read_bytes() == b""
    with pytest.raises(StorageFailed):
        files.create_from(f"{tmp_path}/a", [b"x"])
    with pytest.raises(ZeroDivisionError):
        files.create_from(f"{tmp_path}/b", (b"%d" % (1 // number) for number in (1, 0)))
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(DiskFull):
        files.create_from(f"{tmp_path}/c", [b"x"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty"]
    assert (tmp_path / "a").read_bytes() == b"0,1,2,3,4,"


def test_rename_replaces_what_has_the_name(files, tmp_path):
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")

    files.rename(f"{tmp_path}/a", f"{tmp_path}/b")

    assert files.list_directory(str(tmp_path)) == ["b"]
    assert files.read_bytes(f"{tmp_path}/b") == b"new"
    with pytest.raises(StorageFailed, match="rename to"):
        files.rename(f"{tmp_path}/a", f"{tmp_path}/b")


def test_prepared_space_is_as_large_as_asked_and_serves_every_replacement(files, tmp_path):
    path = tmp_path / "a"
    files.prepare_replace(str(path), 10_000)

    assert {name: (tmp_path / name).stat().st_size for name in ("a.spare", "a.kept")} == {
        "a.spare": 10_000,
        "a.kept": 10_000,
    }
    for number in range(4):
        files.replace(str(path), b"%d" % number * 10_000)
        assert path.read_bytes() == b"%d" % number * 10_000
        assert (tmp_path / "a.spare").stat().st_size == 10_000


def test_age_of_a_file_and_fullness_of_its_disk_are_measured(files, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    os.utime(tmp_path / "a", (1_000, 2_000.5))

    assert files.modified_time(f"{tmp_path}/a") == 2_000.5
    assert 0 < files.disk_used_ratio(str(tmp_path)) <= 1
    for ask in (files.modified_time, files.disk_used_ratio):
        with pytest.raises(StorageFailed):
            ask(f"{tmp_path}/missing")


def test_discarded_file_can_be_read_by_holders_of_a_part_of_it_and_is_closed_for_the_others(files, tmp_path):
    held, free = (files.create(f"{tmp_path}/{name}", 4096) for name in "ab")
    held.write(b"abc", 100)
    part = held.view()[100:103]
    assert free.view()[:1]
    mapped = free._map
    for file in (held, free):
        files.remove(file.path)
        file.discard()
        file.discard()
        file.sync()

    store.fs.linux.files._DISCARDS.submit(bool).result()  # the one thread has done all before

    assert bytes(part) == b"abc"
    assert mapped.closed
    assert len(free.view()) == 0


@pytest.mark.parametrize("count", [0, 1, 2, 3, 40])
def test_many_are_synced_at_a_time_and_none_is_left_out(files, tmp_path, monkeypatch, count):
    monkeypatch.setattr(native, "kernels", None)  # calls of the native module cannot be counted
    made = [files.create(f"{tmp_path}/{number}", 4096) for number in range(count)]
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    files.sync_all(made, [str(tmp_path)])
    assert len(set(synced)) == len(synced) == count


@pytest.mark.parametrize("count", [1, 40])
def test_failed_sync_among_many_is_raised_when_all_have_ended(files, tmp_path, monkeypatch, count):
    monkeypatch.setattr(native, "kernels", None)  # calls of the native module cannot be counted
    made = [files.create(f"{tmp_path}/{number}", 4096) for number in range(count)]
    # Each thread draws its own number: of several that append to a list at a time none may find its length to be 1.
    numbers, ended = itertools.count(), []

    def fail_once(descriptor):
        number = next(numbers)
        ended.append(descriptor)
        if number == 0:
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fdatasync", fail_once)
    with pytest.raises(StorageFailed, match="sync"):
        files.sync_all(made, [])
    assert len(ended) == count


@pytest.mark.parametrize("made", ["fifo", "socket", "directory"])
def test_a_path_that_is_no_regular_file_is_refused_without_blocking(tmp_path, made):
    """A FIFO would make its reader wait indefinitely for a writer."""
    path = tmp_path / "checkpoint"
    if made == "fifo":
        os.mkfifo(path)
    elif made == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))

    for look in (
        OsFiles().open,
        OsFiles().lock,
        OsFiles().read_bytes,
        ReadOnlyFiles().open,
        ReadOnlyFiles().read_bytes,
    ):
        with pytest.raises((StorageFailed, ForeignFile), match=str(path)):
            look(str(path))
    with pytest.raises(StorageFailed, match=str(path)):
        find_holder([str(path)])


def test_file_that_is_too_large_to_be_read_in_one_piece_is_refused(tmp_path):
    """A hole of 1 TiB takes no space on a disk, but would take all memory."""
    path = tmp_path / "membership"
    path.touch()
    os.truncate(path, 1 << 40)

    for files in (OsFiles(), ReadOnlyFiles()):
        with pytest.raises(StorageFailed, match=rf"{path}.* has {1 << 40} bytes, expected at most"):
            files.read_bytes(str(path))


def mode_of(path):
    return oct(path.stat().st_mode & 0o7777)


@pytest.mark.parametrize(
    ("parent", "directory", "file"),
    [(0o755, "0o700", "0o600"), (0o750, "0o700", "0o600"), (0o2755, "0o2700", "0o600"), (0o2750, "0o2750", "0o640")],
)
def test_new_files_are_for_their_owner_or_the_group_of_a_shared_directory(files, tmp_path, parent, directory, file):
    """A home directory of mode 0750 shares nothing; the setgid bit without rights of others does."""
    tmp_path.chmod(parent)
    files.make_directory(f"{tmp_path}/a/b")
    files.create(f"{tmp_path}/file", 4096).close()
    files.create_from(f"{tmp_path}/a/b/file", [b"x"])
    files.replace(f"{tmp_path}/small", b"x")
    files.lock(f"{tmp_path}/lock").release()

    assert [directory] * 2 == [mode_of(tmp_path / name) for name in ("a", "a/b")]
    assert [file] * 4 == [mode_of(tmp_path / name) for name in ("file", "a/b/file", "small", "lock")]

"""Starts of nodes without disk space, descriptors, or permission for a file: refused, twice, then repaired.

`test_refused_starts` has damage of all kinds of stores, and the same for brokers without a group.
"""

import os
import resource
from pathlib import Path

import pytest

from store.errors import DiskFull
from store.fs.descriptors import RESERVE
from store.fs.forwarding import ForwardingFile, ForwardingFiles
from store.fs.linux.files import OsFiles
from store.maintenance.lock import note_in
from tests.compat.test_refused_starts import (
    STARTS,
    NoDescriptors,
    as_nobody,
    changes,
    copy_of,
    image,
    readable,
    refusal,
    refused_twice,
    stores,
)
from tests.compat.test_verify_reports_all_damage import NOBODY_UID, kinds_of

__all__ = ("readable", "stores")  # fixtures
NO_DESCRIPTOR = "raise the limit (`ulimit -n`), or close connections, then try again"
NO_SPACE = "Free space on this file system, then try again"
# Far more than any of these starts needs.
STEPS_MAX = 64


class FullFile(ForwardingFile):
    """A file that gets no more blocks when its disk is full."""

    def __init__(self, disk, file):
        super().__init__(file)
        self._disk = disk

    def allocate(self, position, size):
        self._disk.take_space(self.path, size)
        self._file.allocate(position, size)


class FullDisk(ForwardingFiles):
    """A disk with space for a few more files, or parts of them, whatever they are for."""

    def __init__(self, left):
        super().__init__(OsFiles())
        self._left = left

    def take_space(self, path, size):
        if not self._left:
            raise DiskFull(path, size)
        self._left -= 1

    def create(self, path, size, *, is_sparse=False):
        if not is_sparse:
            self.take_space(path, size)
        return FullFile(self, super().create(path, size, is_sparse=is_sparse))

    def create_from(self, path, chunks):
        content = b"".join(chunks)
        self.take_space(path, len(content))
        super().create_from(path, [content])

    def prepare_replace(self, path, *size):
        if not self.exists(f"{path}.spare"):
            self.take_space(path, 1)
        super().prepare_replace(path, *size)

    def open(self, path, *, is_cache_trusted=False):
        return FullFile(self, super().open(path, is_cache_trusted=is_cache_trusted))


def log_of(found):
    """Return the files of a log, of what `image` found."""
    return {name: content for name, content in found.items() if "/data/" in name or name.startswith("commitlog/")}


@pytest.mark.parametrize("lost", ["nothing", "consumequeue", "index"])
def test_replicated_broker_on_a_full_disk_keeps_its_log_and_starts_when_there_is_space(stores, tmp_path, lost):
    """What is lost is built again; each step in turn is the first without space."""
    copy, outcomes = tmp_path / "store", []
    for left in (0, 1, 3, 12, STEPS_MAX):
        copy_of(stores / "replicated", copy)
        if lost != "nothing":
            (copy / lost).rename(tmp_path / f"{lost}{left}")
        before = image(copy)
        error = refusal(STARTS["replicated"], copy, FullDisk(left))
        outcomes.append(error is None)
        if error is not None:
            assert isinstance(error, DiskFull), error
            assert NO_SPACE in str(error)
            # What changed is derived, and noted: the next start builds it again.
            after = image(copy)
            assert log_of(after) == log_of(before), left
            assert (changes(before, after) == []) == (note_in(OsFiles(), str(copy)) is None), left
        assert refusal(STARTS["replicated"], copy) is None, left
    assert (outcomes[0], outcomes[-1]) == (False, True)


@pytest.mark.parametrize("store", ["raw-dledger", "mixed"])
def test_node_without_space_to_adopt_a_directory_of_java_changes_no_entry(stores, tmp_path, store):
    """It first reserves space for its small files; a directory prepared in this way is adopted by a later start."""
    copy, refusals = copy_of(stores / store, tmp_path / store), 0
    whole = log_of(image(copy))
    # One more file fits each second time, and each start uses the files of those before it.
    while refusals < 14 and (error := refusal(STARTS[store], copy, FullDisk(refusals % 2))) is not None:
        assert isinstance(error, DiskFull), error
        assert NO_SPACE in str(error)
        assert log_of(image(copy)) == whole, refusals
        refusals += 1

    assert refusals > 2
    assert refusal(STARTS[store], copy) is None
    assert log_of(image(copy)) == whole


@pytest.mark.parametrize("store", ["replicated", "raw-dledger"])
def test_node_without_space_or_descriptors_is_refused_twice_and_changes_nothing(stores, tmp_path, store):
    """Of a directory that it has run in before; descriptors are what the system gives it."""
    copy, start = copy_of(stores / store, tmp_path / store), STARTS[store]
    assert refusal(start, copy) is None
    before = image(copy)
    if store == "replicated":
        assert isinstance(refused_twice(start, copy, FullDisk(0)), DiskFull)
    else:
        assert refusal(start, copy, FullDisk(0)) is None, "all that it needs is there"

    refusals = 0
    for left in range(STEPS_MAX):
        first, second = in_child_with_descriptors(left, lambda: (str(refusal(start, copy)), str(refusal(start, copy))))
        assert first == second, left
        if first == "None":
            break
        assert NO_DESCRIPTOR in first, first
        assert changes(before, image(copy)) == [], left
        refusals += 1
    assert 3 < refusals < STEPS_MAX
    assert note_in(OsFiles(), str(copy)) is None
    assert refusal(start, copy) is None


def in_child_with_descriptors(left, run):
    """Return the two texts that `run` returns in a child that can open `left` files more."""

    def limited():
        # Spares of earlier tests in this process.
        while RESERVE.release():
            continue
        top = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        while (opened := os.open(os.devnull, os.O_RDONLY)) < top:
            continue  # a hole is filled
        top = max(top, opened) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (top + left, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        return "\n".join(run())

    first, _, second = as_nobody(limited, is_nobody=False).partition("\n")
    return first, second


@pytest.mark.parametrize("store", ["replicated", "raw-dledger"])
def test_file_of_a_node_that_may_not_be_read_is_refused_each_time(stores, readable, store):
    copy, start = copy_of(stores / store, readable / store), STARTS[store]
    assert refusal(start, copy) is None  # adopted, and what is imported late is there
    for path in (copy, *copy.rglob("*")):
        os.chown(path, NOBODY_UID, NOBODY_UID)
    before = image(copy)
    for name in kinds_of(copy):
        if not (copy / name).stat().st_size:
            continue
        (copy / name).chmod(0)

        shown = as_nobody(lambda: "\n".join(str(refusal(start, copy)) for _ in range(2)))

        (copy / name).chmod(0o644)
        first, _, second = shown.partition("\n")
        assert first == second, name
        assert str(copy / name) in first, (name, first)
        assert "Permission denied" in first, name
        assert "check the disk and the permissions" in first, name
        assert changes(before, image(copy)) == [], name
    assert refusal(start, copy) is None


def test_small_files_of_a_node_need_only_be_readable(stores, readable):
    """Each start replaces `identity`, and the file that had the name becomes the next spare: that may be read-only."""
    copy, start = copy_of(stores / "raw-dledger", readable / "protected"), STARTS["raw-dledger"]
    assert refusal(start, copy) is None  # adopted
    small = [path for name in ("identity", "currterm", "checkpoint") for path in copy.rglob(name)]
    assert len(small) == 3
    for path in (copy, *copy.rglob("*")):
        os.chown(path, NOBODY_UID, NOBODY_UID)

    def starts():
        for _ in range(3):
            for path in small:
                path.chmod(0o444)
            yield str(refusal(start, copy))

    assert as_nobody(lambda: " ".join(starts())) == "None None None"


@pytest.mark.parametrize("store", ["plain-clean", "ours", "raw-dledger", "replicated"])
def test_refused_start_keeps_no_file_open(stores, tmp_path, store):
    """A process that tries again has as many descriptors as before."""
    copy, count = copy_of(stores / store, tmp_path / store), 0
    while refusal(STARTS[store], copy, NoDescriptors(count)) is not None:
        links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        assert [link for link in links if link.is_relative_to(copy)] == [], count
        count += 1
    assert count > 3

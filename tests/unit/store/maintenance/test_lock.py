"""One process at a time has a store open, including Java's; the next one detects whether it was closed cleanly."""

import os
import subprocess
import sys
from random import Random

import pytest

from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.errors import DirectoryLocked
from store.fs.linux.files import OsFiles
from store.maintenance.directory import StoreRoot
from store.maintenance.lock import lock_store, mark_closed, mark_open, note_in
from tests.crashpoints.images import crash_images, killed
from tests.crashpoints.workload import files_on
from tests.support.waiting import PATIENCE_S

# Java's FileLock is a POSIX record lock, which `lockf` takes, too.
JAVA = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(3)
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path):
    return str(tmp_path)


def start_java(root):
    arguments = [sys.executable, "-c", JAVA, f"{root}/lock"]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(process):
    process.communicate(timeout=PATIENCE_S)
    return process.returncode


def test_lock_file_holds_what_java_writes(root, tmp_path):
    lock_store(OsFiles(), root).release()

    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_java_is_locked_out_while_the_store_is_open_and_not_afterwards(root):
    lock = lock_store(OsFiles(), root)
    assert end(start_java(root)) == 3

    lock.release()

    assert end(start_java(root)) == 0


def test_store_that_java_has_open_is_refused_with_javas_process_id(root, tmp_path):
    (tmp_path / "lock").write_bytes(b"lock")
    java = start_java(root)
    assert java.stdout.readline() == b"locked\n"
    (tmp_path / "abort").write_text("4711")

    with pytest.raises(DirectoryLocked, match=r"lock: locked by process 4711"):
        lock_store(OsFiles(), root)

    assert end(java) == 0
    lock_store(OsFiles(), root).release()


def test_second_store_of_this_process_is_refused(root):
    lock = lock_store(OsFiles(), root)

    with pytest.raises(DirectoryLocked):
        lock_store(OsFiles(), root)
    lock.release()
    lock_store(OsFiles(), root).release()


def test_closing_another_descriptor_of_the_file_does_not_release_the_lock(root):
    lock = lock_store(OsFiles(), root)
    os.close(os.open(f"{root}/lock", os.O_RDWR))

    assert end(start_java(root)) == 3
    lock.release()


def test_closed_store_is_distinguished_from_one_that_was_not(root, tmp_path):
    files = OsFiles()
    assert note_in(files, root) is None
    mark_open(files, root, b"42")
    assert (tmp_path / "abort").read_text() == "42"
    assert note_in(files, root) is not None

    mark_closed(files, root)
    mark_closed(files, root)

    assert note_in(files, root) is None


def test_open_store_is_recorded_although_opening_has_changed_nothing(root, tmp_path):
    store = StoreRoot.open(OsFiles(), root, 42)
    assert not (tmp_path / "abort").exists()

    store.note_opened()

    assert (tmp_path / "abort").read_text() == "42"
    store.close(is_clean=False)
    assert note_in(OsFiles(), root) is not None


def test_store_that_is_open_never_looks_closed_whenever_the_power_fails():
    disk = SimDisk(Random(1), FaultCounts())
    is_open = False
    seen = []

    def look(_):
        for image in crash_images(disk):
            if is_open:
                assert note_in(files_on(image.disk), "/store") is not None, image.label
                seen.append(image.label)

    files = files_on(disk, look)
    files.make_directory("/store")
    mark_open(files, "/store", b"1")
    is_open = True
    mark_open(files, "/store", b"2")
    mark_open(files, "/store", b"3")
    look(0)
    is_open = False
    mark_closed(files, "/store")

    assert seen
    assert note_in(files, "/store") is None


def test_times_that_a_killed_process_withdrew_stay_withdrawn_if_the_power_fails_after_the_next_start():
    """The next start finds them in the page cache, and removes files: the durable checkpoint must not cover these."""
    disk = SimDisk(Random(1), FaultCounts())
    store = StoreRoot.open(files_on(disk), "/store", 1)
    store.note_opened()
    store.write_checkpoint(5, 5, 5)
    store.sync_checkpoint()
    store.write_checkpoint(5, 0, 0)  # the process is killed before it syncs this
    disk = killed(disk).disk
    assert durable_times(disk) == {(5, 5), (0, 0)}

    store = StoreRoot.open(files_on(disk), "/store", 2)
    store.files.make_directory("/store/first-change")

    assert durable_times(disk) == {(0, 0)}


def durable_times(disk):
    """Return the times of queues and index found by a start after a power cut, in all cases."""
    found = set()
    for image in crash_images(disk):
        store = StoreRoot.open(files_on(image.disk), "/store", 3)
        found.add((store.last.queues_timestamp, store.last.index_timestamp))
    return found

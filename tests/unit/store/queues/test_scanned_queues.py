"""A quick look at the files of many queues gives the result of opening each of them; unusual queues are opened."""

import errno
import itertools
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest

import store.fs.linux.directory_scan
import store.queues.consume_queues
import store.queues.loading
from store.errors import StorageFailed, StoreError
from store.fs.linux.directory_scan import scan_directories
from store.fs.linux.files import OsFiles
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from store.queues.intact import are_intact
from store.queues.unit import BLANK, UNIT, UNIT_SIZE
from tests.support.dispatch_batches import batch_of

FILE_SIZE = 300 * UNIT_SIZE
SIZE = 100


def fill(root, begin, count):
    """Write a queue as after a clean close."""
    key = QueueKey("orders", 0)
    queues = ConsumeQueues(OsFiles(), str(root), FILE_SIZE)
    queues.load()
    for first in range(begin, begin + count, 100):
        last = min(first + 100, begin + count)
        queues.append(batch_of([(*key, at, at * SIZE, SIZE, at) for at in range(first, last)]))
    queues.flush()
    queues.close()


def put_at(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def first_file(root):
    return min((root / "consumequeue/orders/0").iterdir())


def last_file(root):
    return max((root / "consumequeue/orders/0").iterdir())


STATES = {
    "a page of units": lambda root: fill(root, 0, 204),
    "more than a page": lambda root: fill(root, 0, 290),
    "two files": lambda root: fill(root, 0, 350),
    "three full files": lambda root: fill(root, 0, 900),
    "begins later": lambda root: fill(root, 600, 50),
    "begins with blanks": lambda root: fill(root, 650, 50),
}

DAMAGE = {
    "none": lambda _: None,
    "a torn unit at the end": lambda root: put_at(last_file(root), 40 * UNIT_SIZE, b"\0\0\0\0\0\0\0\1"),
    "units after zeros": lambda root: put_at(last_file(root), 295 * UNIT_SIZE, UNIT.pack(5, SIZE, 0)),
    "last file zeroed": lambda root: put_at(last_file(root), 0, bytes(FILE_SIZE)),
    "first file zeroed": lambda root: put_at(first_file(root), 0, bytes(FILE_SIZE)),
    "first unit zeroed": lambda root: put_at(first_file(root), 0, bytes(UNIT_SIZE)),
    "end of the first file zeroed": lambda root: put_at(first_file(root), FILE_SIZE - UNIT_SIZE, bytes(UNIT_SIZE)),
    "a size below zero": lambda root: put_at(last_file(root), 8, b"\xff\xff\xff\xff"),
    "a blank at the end": lambda root: put_at(last_file(root), 3 * UNIT_SIZE, BLANK),
    "cut short": lambda root: last_file(root).open("r+b").truncate(100),
    "emptied": lambda root: last_file(root).open("r+b").truncate(0),
    "too long": lambda root: last_file(root).open("ab").write(b"x"),
    "a hole": lambda root: last_file(root).unlink() or fill_hole(root),
    "first file removed": lambda root: first_file(root).unlink(),
    "another name": lambda root: first_file(root).rename(first_file(root).with_name("000")),
    "another file": lambda root: (root / "consumequeue/orders/0/notes.txt").write_text("x"),
    "a directory": lambda root: (root / f"consumequeue/orders/0/{FILE_SIZE * 9:020d}").mkdir(),
}


def fill_hole(root):
    """Make the last file begin with a hole, followed by units."""
    with (root / f"consumequeue/orders/0/{0:020d}").open("wb") as file:
        file.truncate(FILE_SIZE)
        file.seek(290 * UNIT_SIZE)
        file.write(UNIT.pack(5, SIZE, 0))


def result(root, cut, *, is_truncated_next):
    """Return the result of loading, and perhaps cutting, a directory: numbers, notes or the error, and all bytes."""
    queues = ConsumeQueues(OsFiles(), str(root), FILE_SIZE)
    lost = []
    try:
        notes = queues.load(lost.append, is_truncated_next=is_truncated_next)
        if cut is not None:
            queues.truncate(cut, lambda _key, queue_offset, place, _size: place == queue_offset * SIZE)
            queues.remove_unused()
        queue = queues.get(QueueKey("orders", 0))
        numbers = [(each.begin_offset, each.min_offset, each.max_offset, each.max_physical_offset) for each in [queue]]
        queues.expire(2000)
        found = numbers, queue.min_offset, queue.unit_tuples(queue.min_offset, 1000), queues.digest(), notes, lost
    except StoreError as error:
        found = str(error)
    finally:
        queues.close()
    files = sorted((root / "consumequeue").rglob("*"))
    return found, {path.relative_to(root): path.is_file() and path.read_bytes() for path in files}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cut", [None, 1500])
def test_quick_look_at_files_agrees_with_opening_them(tmp_path, monkeypatch, state, damage, cut):
    for name in ("one", "other"):  # no copies: the positions of holes are checked, too
        STATES[state](tmp_path / name)
        DAMAGE[damage](tmp_path / name)

    found = result(tmp_path / "one", cut, is_truncated_next=cut is not None)

    monkeypatch.setattr(store.queues.loading, "scanned_queue", lambda *_: None)
    expected = result(tmp_path / "other", cut, is_truncated_next=cut is not None)
    assert str(found).replace(str(tmp_path / "one"), "") == str(expected).replace(str(tmp_path / "other"), "")


def test_ordinary_queues_are_neither_opened_nor_mapped(tmp_path, monkeypatch):
    fill(tmp_path, 0, 150)
    queues = ConsumeQueues(OsFiles(), str(tmp_path), FILE_SIZE)
    monkeypatch.setattr(OsFiles, "open", lambda _, path, **__: pytest.fail(f"{path} is opened"))

    queues.load(is_truncated_next=True)
    queues.truncate(1 << 40, lambda *_: True)
    queues.expire(0)

    assert queues.get(QueueKey("orders", 0)).max_offset == 150
    queues.close()


def test_many_directories_are_looked_at_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(store.fs.linux.directory_scan, "_AT_A_TIME", 20)
    monkeypatch.setattr(store.fs.linux.directory_scan, "_PART", 7)
    monkeypatch.setattr(store.fs.linux.directory_scan, "_OPEN_MAX", 3)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    contents = [draw.randbytes(draw.choice([0, 10, 5000])) for _ in range(100)]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").write_bytes(content)
    directories = [str(tmp_path / str(number)) for number in range(101)]

    found = list(scan_directories(directories, is_cache_trusted=False))

    assert found.pop() == []
    assert [file.size for (file,) in found] == [len(content) for content in contents]
    assert [file.head for (file,) in found] == [content[:4096] for content in contents]
    assert [file.tail for (file,) in found] == [content[-4096:] for content in contents]


@pytest.mark.parametrize("call", ["posix_fadvise", "pread"])
@pytest.mark.parametrize("number", [0, 3, 4])
def test_file_that_cannot_be_read_is_named_and_none_stays_open(tmp_path, monkeypatch, call, number):
    for name in range(5):
        (tmp_path / str(name)).mkdir()
        (tmp_path / str(name) / "file").write_bytes(b"x")
    original = getattr(os, call)
    paths = [str(tmp_path / str(name) / "file") for name in range(5)]

    def fail_at_one(descriptor, *arguments):
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()) == paths[number]:
            raise OSError(errno.EIO, "broken")
        return original(descriptor, *arguments)

    monkeypatch.setattr(os, call, fail_at_one)
    with pytest.raises(StorageFailed, match=paths[number]):
        list(scan_directories([str(tmp_path / str(name)) for name in range(5)], is_cache_trusted=False))

    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert [link for link in links if str(link) in paths] == []


def test_directories_after_one_that_had_to_wait_for_the_disk_are_looked_at_in_threads(tmp_path, monkeypatch):
    """Data in memory is read by the calling thread alone; the result is the same."""
    monkeypatch.setattr(store.fs.linux.directory_scan, "_PART", 8)
    for number in range(60):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").write_bytes(bytes([number % 255 + 1]) * (number * 100))
    directories = [str(tmp_path / str(number)) for number in range(60)]
    original = store.fs.linux.directory_scan._scan_some
    seen_by = set()

    def look(part, **options):
        seen_by.add(threading.current_thread())
        return original(part, **options)

    monkeypatch.setattr(store.fs.linux.directory_scan, "_scan_some", look)
    monkeypatch.setattr(store.fs.linux.directory_scan, "_waits", lambda: 0)
    alone = list(scan_directories(directories, is_cache_trusted=True))
    assert seen_by == {threading.current_thread()}

    waits = itertools.count(0, 100)
    monkeypatch.setattr(store.fs.linux.directory_scan, "_waits", lambda: next(waits))
    together = list(scan_directories(directories, is_cache_trusted=True))

    assert len(seen_by) > 1
    assert together == alone == list(scan_directories(directories, is_cache_trusted=False))


def units_of(*places_and_sizes):
    return b"".join(UNIT.pack(place, size, 0) for place, size in places_and_sizes)


@pytest.mark.parametrize(
    ("units", "is_intact"),
    [
        (units_of((0, 100)), True),
        (units_of((0, 100), (100, 100), (500, 100)), True),
        (units_of((0, 100), (1000, 100)), False),
        (units_of((999, 100)), True),
        (units_of((100, 100), (199, 100)), False),
        (units_of((100, 0), (200, 100)), False),
        (units_of((100, -5), (200, 100)), False),
        (units_of((-1, 100)), False),
        (units_of((0, 0x7FFFFFFF)), False),
        (units_of((0, 100), (0, 0x7FFFFFFF)), False),
    ],
)
def test_queues_are_intact_if_all_units_are_plausible_and_begin_below_the_offset(units, is_intact):
    """Each is judged alone, whatever the previous queue contains."""
    before, after = units_of((900, 100)), units_of((0, 10))

    assert are_intact([before, units, after], 1000).tolist() == [True, is_intact, True]
    assert are_intact([], 1000).tolist() == []


# In the runs of the first seeds some queue that looks intact ends with a unit of a message that the log lacks.
@pytest.mark.parametrize("seed", [1, 2, 3, "random"])
def test_truncating_many_queues_at_once_has_the_result_of_truncating_each(tmp_path, monkeypatch, seed):
    """Random units, random damage, the log lacks some messages: with the pass over all queues, and without it."""
    seed = random.randrange(1 << 32) if seed == "random" else seed
    print(f"seed {seed}")
    results = []
    for name, is_used in (("one", True), ("other", False)):
        draw = random.Random(seed)
        queues = ConsumeQueues(OsFiles(), str(tmp_path / name), FILE_SIZE)
        queues.load()
        ends = [0] * 40
        for place in range(1500):
            number = draw.randrange(40)
            queues.append(batch_of([("orders", number, ends[number], place * SIZE, SIZE)]))
            ends[number] += 1
        queues.flush()
        queues.close()
        for number in draw.sample(range(40), 12):
            path = tmp_path / name / f"consumequeue/orders/{number}/{0:020d}"
            put_at(path, draw.randrange(ends[number]) * UNIT_SIZE, draw.choice([BLANK, bytes(20), UNIT.pack(7, 3, 0)]))
        if not is_used:
            monkeypatch.setattr(store.queues.consume_queues, "are_intact", lambda found, _: np.zeros(len(found), bool))
        queues.load(is_truncated_next=True)
        queues.truncate(1480 * SIZE, lambda _key, _offset, place, size: size == SIZE and place % 7 and not place % SIZE)
        results.append(
            sorted(
                (key, each.min_offset, each.max_offset, each.unit_bytes(0, 1000))
                for key in queues
                for each in [queues.get(key)]
            )
        )
        queues.close()
        files = sorted((tmp_path / name / "consumequeue").rglob("0*0"))
        results[-1].append([path.read_bytes() for path in files if path.is_file()])

    assert results[0] == results[1]

"""Replacing a small file on the real file system, with a kill or a power cut at any of its system calls.

`replace` is atomic on the simulated disk; here the implementation in `store.fs.linux.files` is tested. A crash keeps a
prefix of the changes of names (a journal), and all or nothing of unsynced contents.
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState
from store.fs.linux.files import OsFiles

FIRST, SECOND, THIRD = HardState(1, "n1"), HardState(2, "n0"), HardState(3, "another-node")
CALLS = ("open", "write", "pwrite", "ftruncate", "fsync", "posix_fallocate", "link", "rename", "unlink")


class Killed(BaseException):
    """The process ends before its next system call."""


@dataclass(frozen=True)
class Moment:
    """A directory between two system calls.

    Attributes:
        names: inode numbers by name.
        contents: by inode number, as seen by programs.
        synced: the durable contents.
        is_directory_synced: all names are durable.
    """

    names: dict[str, int]
    contents: dict[int, bytes]
    synced: dict[int, bytes]
    is_directory_synced: bool


class Recorder:
    """A layer between the program and the operating system; kills it before its n-th call."""

    def __init__(self, monkeypatch, directory):
        self.directory = directory
        self.moments = []
        self.kill_at = None
        self.count = 0
        self._synced = {}
        self._monkeypatch = monkeypatch

    def __enter__(self):
        for name in CALLS:
            self._monkeypatch.setattr(os, name, self._around(name, getattr(os, name)))
        self._note(is_directory_synced=True)
        return self

    def __exit__(self, *_):
        self._monkeypatch.undo()

    def _around(self, name, original):
        def call(*arguments, **named):
            if self.count == self.kill_at:
                raise Killed
            self.count += 1
            result = original(*arguments, **named)
            is_directory = name == "fsync" and os.path.samestat(os.fstat(arguments[0]), self.directory.stat())
            status = os.fstat(arguments[0]) if name == "fsync" else None
            if status is not None and not stat.S_ISDIR(status.st_mode):
                self._synced[status.st_ino] = Path(f"/proc/self/fd/{arguments[0]}").read_bytes()
            self._note(is_directory_synced=is_directory)
            return result

        return call

    def _note(self, *, is_directory_synced):
        names = {entry.name: entry.inode() for entry in os.scandir(self.directory)}
        contents = {}
        for name, number in names.items():
            with (self.directory / name).open("rb") as stream:
                contents[number] = stream.read()
        if not self.moments:
            self._synced.update(contents)
        self.moments.append(Moment(names, contents, dict(self._synced), is_directory_synced))


def power_cuts(moments):
    """Yield all (names, contents) that are possible after a power cut after the last of `moments`."""
    now = moments[-1]
    since = max(number for number, moment in enumerate(moments) if moment.is_directory_synced)
    for moment in moments[since:]:
        for is_kept in (False, True):
            kept = now.contents if is_kept else {}
            contents = {number: kept.get(number, now.synced.get(number, b"")) for number in moment.names.values()}
            yield moment.names, contents


def lay_out(directory, names, contents):
    directory.mkdir()
    places = {}
    for name, number in sorted(names.items()):
        if number in places:
            os.link(places[number], directory / name)
        else:
            (directory / name).write_bytes(contents[number])
            places[number] = directory / name


def states_in(directory):
    """Start a node there: load, vote again, load again."""
    file = HardStateFile.open(OsFiles(), str(directory))
    found = file.load()
    file.save(THIRD)
    assert HardStateFile.open(OsFiles(), str(directory)).load() == THIRD
    return found


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False], ids=["the first vote", "a later vote"])
def test_vote_is_the_old_or_the_new_one_after_a_crash_at_any_call(tmp_path, monkeypatch, is_first, capsys):
    calls, images = 0, set()
    while True:
        directory = tmp_path / f"n{calls}"
        directory.mkdir()
        old = HardState() if is_first else FIRST
        if not is_first:
            HardStateFile.open(OsFiles(), str(directory)).save(FIRST)
        with Recorder(monkeypatch, directory) as recorder:
            recorder.kill_at = calls
            with suppress(Killed):
                HardStateFile.open(OsFiles(), str(directory)).save(SECOND)
        is_whole = recorder.count < calls
        allowed = {SECOND} if is_whole else {old, SECOND}
        for names, contents in power_cuts(recorder.moments):
            image = (is_whole, *sorted((name, number, contents[number]) for name, number in names.items()))
            if image not in images:
                images.add(image)
                place = tmp_path / f"image{len(images)}"
                lay_out(place, names, contents)
                assert states_in(place) in allowed, (calls, names)
        assert states_in(directory) in allowed, calls
        if is_whole:
            break
        calls += 1

    with capsys.disabled():
        print(f"\nsystem calls of a vote: {calls - 1}, images {len(images)}")
    assert calls > 8

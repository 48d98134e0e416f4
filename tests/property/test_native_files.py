"""A group of files is written and synced alike in C and in Python: the same bytes, the same errors.

Hypothesis prints the smallest group of which this is not true.
"""

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger import native
from store.errors import OutOfDescriptors, StorageFailed
from store.fs import descriptors
from store.fs.descriptors import Reserve
from store.fs.linux.files import OsFiles
from store.fs.ports import FileWrite
from tests.property.failing_calls import build_failing_calls
from tests.property.file_groups import outcome_of
from tests.support.forms import NATIVE, both_forms, needs_native
from tests.support.waiting import PATIENCE_S

__all__ = ["both_forms"]

ROOT = Path(__file__).parents[2]
SIZE = 10_000
KINDS = ("file", "file", "file", "file", "missing", "directory", "fifo", "no parent", "parent is a file", "dangling")
FAULTS = [
    (call, code)
    for call, codes in {
        "open": (errno.EIO, errno.EMFILE, errno.EACCES),
        "posix_fallocate": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
        "pwrite": (errno.EIO, errno.ENOSPC),
        "fdatasync": (errno.EIO, errno.ENOSPC),
    }.items()
    for code in codes
]

pytestmark = needs_native


def make(folder, kind, number):
    """Make what is at the path of a write; return its name."""
    path = folder / f"{kind.replace(' ', '-')}-{number}"
    if kind == "file":
        path.write_bytes(b"x" * SIZE)
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to(folder / "nowhere")
    elif kind == "no parent":
        path = path / "file"
    elif kind == "parent is a file":
        path.write_bytes(b"")
        path = path / "file"
    return str(path.relative_to(folder))


def contents(folder):
    """Return the bytes of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def open_descriptors():
    """Return the descriptors of this process; the last one is that of the listing itself."""
    return sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())


def open_count():
    return len(open_descriptors())


def outcomes(kinds, places):
    """Return, for both forms, outcome and bytes of the same group in a folder of its own."""
    found = []
    before = open_count()
    for kernels in (None, NATIVE):
        folder = Path(tempfile.mkdtemp())
        try:
            names = [make(folder, kind, number) for number, kind in enumerate(kinds)]
            writes = [(name, *place) for name, place in zip(names, places, strict=True)]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(native, "kernels", kernels)
                found.append((outcome_of(folder, writes), contents(folder)))
        finally:
            shutil.rmtree(folder)
    assert open_count() == before
    return found


PLACES = st.tuples(st.integers(0, SIZE), st.binary(max_size=300), st.integers(1, 300)).map(
    lambda place: (place[0], place[1], max(place[2], len(place[1]), 1))
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), PLACES), max_size=8))
def test_groups_are_written_alike(group):
    in_python, in_c = outcomes([kind for kind, _ in group], [place for _, place in group])

    assert in_c == in_python


@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_what_is_no_file_is_refused_and_nothing_stays_open(kind):
    place = (0, b"unit", 4)

    in_python, in_c = outcomes(["file", kind, "file"], [place] * 3)

    assert in_c == in_python
    assert in_c[0][0] in {"ForeignFile", "StorageFailed"}


def test_c_itself_writes_what_a_queue_appends(tmp_path):
    for number in range(3):
        (tmp_path / str(number)).write_bytes(bytes(100))
    writes = [(f"{tmp_path}/{number}", 20 * number, memoryview(bytearray(b"unit")), 40) for number in range(5)]

    found = NATIVE.write_files(writes)

    for descriptor in found[:3]:
        os.close(descriptor)
    assert found[3:] == [None, None]
    expected = [bytes(20 * number) + b"unit" + bytes(96 - 20 * number) for number in range(3)]
    assert [(tmp_path / str(number)).read_bytes() for number in range(3)] == expected


@pytest.mark.parametrize("threads", [1, 4, 16])
def test_c_itself_syncs_and_names_those_that_failed(tmp_path, threads):
    opened = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(20)]
    reader, writer = os.pipe()  # a pipe cannot be synced
    try:
        assert NATIVE.sync_files(tuple(opened), threads) == []
        assert NATIVE.sync_files((*opened, reader, *opened, writer), threads) == [
            (20, errno.EINVAL),
            (41, errno.EINVAL),
        ]
        assert NATIVE.sync_files((), threads) == []
    finally:
        for descriptor in (*opened, reader, writer):
            os.close(descriptor)


@pytest.mark.parametrize("hostile", [[()], [("a", 0, b"", 0)], [("a", -1, b"", 1)], [("a", 1 << 63, b"", 1)], [("a",)]])
def test_other_arguments_are_left_to_python(hostile):
    assert NATIVE.write_files(hostile) is None
    assert NATIVE.write_files([("a", 0, b"", 1)] * 5_000) is None
    assert NATIVE.sync_files([], 1) is None
    assert NATIVE.sync_files((-1,), 1) is None
    assert NATIVE.sync_files((1,), 17) is None


@pytest.mark.parametrize(("path", "data"), [("a\0b", b""), (7, b""), ("a", "text"), ("a", None)])
def test_arguments_of_another_type_are_errors(path, data):
    with pytest.raises((TypeError, ValueError)):
        NATIVE.write_files([("b", 0, b"", 1), (path, 0, data, 1)])


@pytest.mark.parametrize("names", [("a.short.1", "b"), *((f"a.{call}.{code}", "b") for call, code in FAULTS)])
def test_failing_calls_give_the_same_errors(tmp_path, names):
    environment = build_failing_calls(tmp_path)
    folder = tmp_path / "files"
    folder.mkdir()
    every = ["first", *names, "last"]
    for name in every:
        (folder / name).write_bytes(bytes(SIZE))
    (folder / ".writes").write_text("".join(f"{name} 4090 30 100\n" for name in every), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "tests.property.file_groups", folder],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 0, done.stderr
    in_python, in_c = done.stdout.splitlines()
    assert in_c == in_python
    name = names[0].rpartition(".")[0]
    is_refused = not name.endswith("short")
    assert is_refused == (in_c != "('written', [True, True, True, True], None)"), in_c


def test_group_that_needs_more_descriptors_than_are_left_leaves_none_open(tmp_path, monkeypatch, both_forms):
    del both_forms
    monkeypatch.setattr(descriptors, "RESERVE", Reserve(0))
    for number in range(40):
        (tmp_path / str(number)).write_bytes(bytes(100))
    writes = [FileWrite(f"{tmp_path}/{number}", 0, b"unit", 20) for number in range(40)]
    before = open_count()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = open_descriptors()[-1]
    fillers = []
    while not fillers or fillers[-1] < highest:  # so that none is free below
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 10, hard))
    try:
        with pytest.raises(OutOfDescriptors):
            OsFiles().write_existing(writes)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
    assert open_count() == before


def test_all_syncs_of_a_group_end_before_the_first_failure_is_raised(tmp_path, both_forms):
    del both_forms
    files = OsFiles()
    opened = [files.create(f"{tmp_path}/{number}", 100) for number in range(70)]
    reader, writer = os.pipe()
    failing = opened[40]
    os.close(failing._descriptor)
    os.dup2(reader, failing._descriptor)
    opened[50].close()
    with pytest.raises(StorageFailed, match=r"/40: sync failed: \[Errno 22\]"):
        files.sync_all(opened, ())
    for file in opened:
        file.close()
    os.close(reader)
    os.close(writer)

"""Whatever is in place of a derived file, `dledger verify` names it and `dledger rebuild` replaces it."""

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from tests.support.message_stores import open_small

SIZES = ("--queue-file-size", "1000", "--index-slots", "100", "--index-items", "400")


@pytest.fixture
def store(unpack):
    """Return the folder of an intact store."""
    return unpack("plain-clean")


def dledger(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def queue_file(store):
    return store / "consumequeue" / "TopicTest" / "2" / f"{0:020d}"


def index_file(store):
    (path,) = (store / "index").iterdir()
    return path


def make_loop(path):
    path.symlink_to(path.name)


def make_dangling(path):
    path.symlink_to("nowhere")


def make_full_directory(path):
    path.mkdir()
    (path / "inside").write_bytes(b"x")


STRANGE = {
    "a directory": Path.mkdir,
    "a directory with a file": make_full_directory,
    "a FIFO": os.mkfifo,
    "a link to itself": make_loop,
    "a link to nothing": make_dangling,
    "a short file": lambda path: path.write_bytes(b"short"),
    "a long file": lambda path: path.write_bytes(bytes(9999)),
}
DERIVED = {
    "files": lambda store: [store / "checkpoint", queue_file(store), index_file(store)],
    "directories": lambda store: [queue_file(store).parent, store / "index"],
    "all queues": lambda store: [store / "consumequeue"],
}


@pytest.mark.parametrize(
    ("derived", "strange"),
    [
        *(("files", each) for each in STRANGE),
        *(("directories", each) for each in ("a FIFO", "a link to itself", "a link to nothing", "a short file")),
        ("all queues", "a FIFO"),
        ("all queues", "a link to nothing"),
    ],
)
def test_rebuild_replaces_anything_in_place_of_derived_files(store, derived, strange):
    """Nothing that can be rebuilt from the log is a dead end; verify names it."""
    paths = DERIVED[derived](store)
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        STRANGE[strange](path)

    reported = dledger("verify", store)
    done = dledger("rebuild", store, *SIZES)

    assert reported.exit_code == 1, reported.output
    missing = [path for path in paths if str(path) not in reported.stderr]
    assert missing == [] or strange == "a link to nothing", reported.output  # it counts as missing
    assert done.exit_code == 0, done.output
    assert dledger("verify", store).exit_code == 0
    open_small(store).close()

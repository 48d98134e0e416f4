"""`dledger rebuild` killed at every file operation: the store has its old queues and index, the new ones, or none.

The second part opens the store afterwards, like a node, and reads the messages.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog.offline.directory import find_store
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.swap import finish_begun
from commitlog.offline.verify import StoreParts, Verification
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.model.config import MessageStoreConfig
from store.model.message import Message

if TYPE_CHECKING:
    from store.model.finding import Finding

CONFIG = PlainStoreConfig(
    CommitLogConfig(mapped_file_size=8192),
    MessageStoreConfig(mapped_file_size_consume_queue=400, max_hash_slot_num=10, max_index_num=50),
)
COUNT = 40
OPERATIONS_MAX = 400


class Stopped(Exception):
    """Simulates the kill of the process."""


class StoppingFiles(OsFiles):
    """The file system of a process that is killed at its n-th operation that changes a name or makes one durable."""

    def __init__(self, operations: int) -> None:
        self.operations_left = operations

    def _count(self) -> None:
        if not self.operations_left:
            raise Stopped
        self.operations_left -= 1

    def make_directory(self, path, *, is_durable=True):
        self._count()
        super().make_directory(path, is_durable=is_durable)

    def create(self, path, size, *, is_sparse=False):
        self._count()
        return super().create(path, size, is_sparse=is_sparse)

    def create_from(self, path, chunks):
        self._count()
        super().create_from(path, chunks)

    def rename(self, path, new_path):
        self._count()
        super().rename(path, new_path)

    def remove(self, path):
        self._count()
        super().remove(path)

    def sync_directory(self, path):
        self._count()
        super().sync_directory(path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with damaged queues, so that old and new queues differ."""
    folder = tmp_path / "store"
    opened = open_plain_store(OsFiles(), str(folder), CONFIG)
    for number in range(COUNT):
        properties = {"KEYS": f"key-{number}", "TAGS": "a", "UNIQ_KEY": f"{number:032X}"}
        opened.messages.put(Message("orders", b"body %d" % number * 20, number % 2, properties))
    opened.close()
    assert findings_of(folder) == []
    queue = folder / "consumequeue" / "orders" / "1" / f"{0:020d}"
    queue.write_bytes(bytes(20) + queue.read_bytes()[20:])
    return folder


def findings_of(folder: Path) -> list[Finding]:
    files = ReadOnlyFiles()
    return list(Verification(StoreParts(files, find_store(files, str(folder)))).findings())


def rebuild(folder: Path, files: OsFiles) -> None:
    finish_begun(files, str(folder), is_old_kept=False)
    Rebuild(files, StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), str(folder))), Layout()).run()


def images(folder: Path) -> dict[str, bytes]:
    derived = [*(folder / "consumequeue").rglob("*/*/*"), *(folder / "index").glob("*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in derived}


def test_interrupted_rebuild_leaves_old_or_new_files_and_the_next_one_completes_it(store, tmp_path):
    old = images(store)
    reference = tmp_path / "reference"
    shutil.copytree(store, reference)
    rebuild(reference, OsFiles())
    new = images(reference)
    assert old != new
    assert findings_of(reference) == []
    is_stopped, operations, seen = True, 0, set()
    while is_stopped:
        assert operations < OPERATIONS_MAX
        folder = tmp_path / "copy"
        shutil.copytree(store, folder)
        try:
            rebuild(folder, StoppingFiles(operations))
            is_stopped = False
        except Stopped:
            pass
        here = images(folder)
        old_index = {name: content for name, content in old.items() if name.startswith("index")}
        new_index = {name: content for name, content in new.items() if name.startswith("index")}
        states = {"old": old, "new": new, "no queues": old_index, "neither": {}, "no queues, new index": new_index}
        (state, *_) = [name for name, files in states.items() if files == here] or [None]
        assert state is not None, (operations, sorted(here))
        seen.add(state)
        rebuild(folder, OsFiles())
        assert images(folder) == new, operations
        assert findings_of(folder) == [], operations
        assert not list(folder.glob("rebuild.*"))
        shutil.rmtree(folder)
        operations += 1
    assert {"old", "new", "no queues"} <= seen


@pytest.mark.parametrize("missing", [("consumequeue",), ("consumequeue", "index")])
def test_store_with_an_interrupted_rebuild_builds_its_queues_from_the_log(store, missing):
    rebuild(store, OsFiles())
    new = images(store)
    for name in missing:
        (store / name).rename(store / f"gone-{name}")

    opened = open_plain_store(OsFiles(), str(store), CONFIG)
    opened.dispatch()
    assert sum(opened.messages.max_offset("orders", queue_id) for queue_id in range(2)) == COUNT
    opened.close()

    assert findings_of(store) == []
    assert images(store) == new

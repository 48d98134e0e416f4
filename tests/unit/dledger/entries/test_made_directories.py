"""A process may be killed after it made a directory, before it synced the one above: the next one syncs it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, SimulatedCrash
from dledger.types import HardState
from store.errors import StorageFailed
from store.fs.linux import files as os_files
from store.fs.linux.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = "/data/store"
SEEDS = 8
CONFIG = EntryStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=512)


def save_vote(files: SimFiles) -> None:
    HardStateFile.open(files, ROOT).save(HardState(3, "n1"))


def check_vote(files: SimFiles) -> None:
    assert HardStateFile.open(files, ROOT).load().term == 3


def append(files: SimFiles) -> None:
    store = EntryStore.open(files, ROOT, CONFIG)
    store.append([b"x"], store.last_index + 1, 1)
    ticket = store.begin_flush()
    ticket.sync()
    store.end_flush(ticket)


def check_append(files: SimFiles) -> None:
    assert EntryStore.open(files, ROOT, CONFIG).last_index >= 0


@pytest.mark.parametrize(("work", "check"), [(save_vote, check_vote), (append, check_append)], ids=["vote", "entries"])
def test_acknowledgements_after_a_kill_survive_a_power_cut(
    work: Callable[[SimFiles], None], check: Callable[[SimFiles], None]
) -> None:
    for seed in range(SEEDS):
        for operation in range(1, 7):
            disk = SimDisk(Random(seed), FaultCounts())
            first = SimFiles(disk, Random(seed), FaultCounts())
            first.crash_point.arm(operation)
            with suppress(SimulatedCrash):
                work(first)
            work(SimFiles(disk, Random(seed), FaultCounts()))

            disk.cut_power()

            assert disk.directories, f"seed {seed}, operation {operation}"
            check(SimFiles(disk, Random(seed), FaultCounts()))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All directories that are synced, in order."""
    paths: list[str] = []
    sync = os_files.sync_path

    def noted(path: str, flags: int) -> None:
        paths.append(path)
        sync(path, flags)

    monkeypatch.setattr(os_files, "sync_path", noted)
    return paths


def test_name_of_an_existing_directory_is_synced_unless_the_caller_does_it(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "a").mkdir()

    OsFiles().make_directory(f"{tmp_path}/a", is_durable=False)
    assert not synced
    OsFiles().make_directory(f"{tmp_path}/a")
    assert synced == [f"{tmp_path}"]
    OsFiles().make_directory(f"{tmp_path}/a/b/c")
    assert synced == [f"{tmp_path}", f"{tmp_path}", f"{tmp_path}/a", f"{tmp_path}/a/b"]


def test_directory_with_an_unreadable_parent_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its creator could have synced its name; one that this process created would need it."""
    (tmp_path / "a").mkdir()
    opened = os.open

    def refused(path: str, *more: int, **named: int) -> int:
        if str(path) == str(tmp_path):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refused)

    OsFiles().make_directory(f"{tmp_path}/a")
    with pytest.raises(StorageFailed, match="Permission denied"):
        OsFiles().make_directory(f"{tmp_path}/b")


def test_directory_on_a_disk_of_its_own_has_no_name_to_sync(synced: list[str]) -> None:
    OsFiles().make_directory("/proc")

    assert not synced

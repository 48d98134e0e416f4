"""Backups of real nodes, made by the command: under load, from a follower, killed in the middle, damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.backup.folder import BackupFolder
from cluster.backup.verify import BackupReader
from cluster.cli.entry_kinds import AnyLogChecks
from store.fs.linux.files import OsFiles
from tests.integration.cluster.local_nodes.conftest import client_of
from tests.integration.cluster.local_nodes.test_commands import dledger
from tests.support.waiting import SCENARIO_LIMIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.local.cluster import LocalCluster


def entries_in(folder: Path) -> dict[int, bytes]:
    """Return the bodies of all entries of a backup, also of leaders' own, by index."""
    backup = BackupFolder(OsFiles(), str(folder))
    reader = BackupReader(backup, backup.existing(), AnyLogChecks())
    return {entry.index: entry.body for part in reader for entry in part}


def entries_of(cluster: LocalCluster, end: int) -> dict[int, bytes]:
    with client_of(cluster.endpoints) as client:
        return {entry.index: entry.body for entry in client.read(0, max_entries=end, include_internal=True)}


@contextmanager
def appending(cluster: LocalCluster) -> Iterator[None]:
    """Append entries in a thread until the block ends."""
    is_over = threading.Event()

    def append() -> None:
        with client_of(cluster.endpoints) as client:
            while not is_over.is_set():
                client.append_many([os.urandom(500) for _ in range(20)])

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_backup_under_load_has_all_that_was_acknowledged_before(cluster: LocalCluster, tmp_path: Path) -> None:
    with client_of(cluster.endpoints) as client, appending(cluster):
        for number in range(3):
            place = client.append(b"acknowledged %d" % number)
            done = dledger(cluster, "backup", "create", tmp_path / "b")
            assert 0 == done.returncode, done.stderr
            assert b"acknowledged %d" % number == entries_in(tmp_path / "b")[place.index]

    stored = entries_in(tmp_path / "b")
    assert list(range(len(stored))) == list(stored)
    assert entries_of(cluster, len(stored)) == stored
    rows = dledger(cluster, "backup", "list", tmp_path / "b", "--json").stdout.splitlines()
    assert [1, 2, 3] == [json.loads(row)["serial"] for row in rows]
    assert max(stored) == json.loads(rows[-1])["endIndex"]


def test_backup_is_read_from_a_follower(cluster: LocalCluster, tmp_path: Path) -> None:
    with client_of(cluster.endpoints) as client:
        client.append_many([b"entry"] * 100)

        def read_by_role() -> dict[str, int]:
            found = {"LEADER": 0, "FOLLOWER": 0}
            for status in client.statuses().values():
                assert not isinstance(status, str)
                found[status.role] += status.read_entries
            return found

        before = read_by_role()
        assert 0 == dledger(cluster, "backup", "create", tmp_path / "b").returncode
        after = read_by_role()
        assert 0 == dledger(cluster, "backup", "create", tmp_path / "c", "--from-leader").returncode
        last = read_by_role()

    count = len(entries_in(tmp_path / "b"))
    assert (0, count) == (after["LEADER"] - before["LEADER"], after["FOLLOWER"] - before["FOLLOWER"])
    assert (count, 0) == (last["LEADER"] - after["LEADER"], last["FOLLOWER"] - after["FOLLOWER"])


def test_killed_backup_is_continued_and_damage_in_it_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    with client_of(cluster.endpoints) as client:
        for _ in range(10):
            client.append_many([os.urandom(200_000) for _ in range(20)])

    folder = wait_until(lambda: killed_in_the_middle(cluster, tmp_path), "a backup that is killed in the middle")
    first_part = min((folder / "parts").glob("*.entries"))
    written = first_part.stat()
    assert 2 == dledger(cluster, "backup", "verify", folder).returncode

    done = dledger(cluster, "backup", "create", folder)
    assert 0 == done.returncode, done.stderr
    assert (written.st_ino, written.st_mtime_ns) == (first_part.stat().st_ino, first_part.stat().st_mtime_ns)
    stored = entries_in(folder)
    assert entries_of(cluster, len(stored)) == stored
    assert 0 == dledger(cluster, "backup", "verify", folder).returncode

    raw = first_part.read_bytes()
    first_part.write_bytes(raw[:1000] + bytes([raw[1000] ^ 1]) + raw[1001:])
    found = dledger(cluster, "backup", "verify", folder, "--json")
    assert (1, 1) == (found.returncode, json.loads(found.stdout)["damages"])
    assert str(first_part).encode() in found.stderr


def killed_in_the_middle(cluster: LocalCluster, tmp_path: Path) -> Path | None:
    """Kill a backup when its first part is stored; None: it was faster than this process, on a busy machine."""
    folder = tmp_path / f"b{len(list(tmp_path.iterdir()))}"
    command = [sys.executable, "-m", "cluster.cli", "backup", "create", str(folder), "--rate", "8000000"]
    process = subprocess.Popen(command, env={**os.environ, "DLEDGER_ENDPOINTS": cluster.endpoints})
    try:
        wait_until(lambda: list((folder / "parts").glob("*.entries")), "the first part")
    finally:
        process.kill()
        process.wait(SCENARIO_LIMIT_S)
    return None if list((folder / "manifests").glob("*.json")) else folder


def test_backup_of_a_group_that_does_not_answer_fails_and_stores_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cluster.cli", "backup", "create", str(tmp_path / "b"), "-e", "127.0.0.1:1"]

    done = subprocess.run(command, capture_output=True, check=False, timeout=SCENARIO_LIMIT_S)

    assert 1 == done.returncode
    assert b"127.0.0.1:1" in done.stderr
    assert not list((tmp_path / "b").rglob("*.*"))

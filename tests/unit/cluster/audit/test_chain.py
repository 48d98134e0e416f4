"""The hash chain of an audit log: every change of its files but the loss of its ends is found."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

import cluster.audit.chain
from cluster.audit.chain import FIRST, ChainReport, verify_chain
from cluster.audit.log import AuditLog
from cluster.audit.record import AuditRecord, RecordKind

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, count: int, **settings: int) -> Path:
    """Write records in two runs of a process; return the newest file."""
    for part in (count // 2, count - count // 2):
        log = AuditLog(folder, "n0", **settings)
        for number in range(part):
            log.add(AuditRecord(number, RecordKind.ADMIN, f"u{number}"))
        log.close()
    return folder / "n0-admin.jsonl"


def test_each_line_has_the_hash_of_the_one_before(tmp_path: Path) -> None:
    newest = write(tmp_path, 6)
    lines = newest.read_bytes().splitlines()

    expected = [FIRST, *(sha256(line).hexdigest() for line in lines)]
    assert [json.loads(line)["before"] for line in lines] == expected[:-1]
    assert verify_chain(newest) == ChainReport(6, 0, 0, True, expected[-1], True, ())


def test_chain_goes_over_files_and_outlives_deleted_ones(tmp_path: Path) -> None:
    newest = write(tmp_path, 60, size_bytes_max=1_000, files_max=4)
    report = verify_chain(newest)

    assert sorted(path.name for path in tmp_path.iterdir() if "admin" in path.name) == [
        "n0-admin.1.jsonl",
        "n0-admin.2.jsonl",
        "n0-admin.3.jsonl",
        "n0-admin.jsonl",
    ]
    assert (report.faults, report.is_complete) == ((), False)
    assert 6 < report.lines < 60


@pytest.mark.parametrize("what", ["change", "remove", "repeat", "swap", "forge"])
def test_a_change_of_a_line_is_found(tmp_path: Path, what: str) -> None:
    """Method: one change of a line in the middle, of several files."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    newest = write(tmp_path, 40, size_bytes_max=2_000, files_max=9)
    paths = sorted(path for path in tmp_path.iterdir() if "admin." in path.name and path.read_bytes().count(b"\n") > 4)
    path = random.Random(seed).choice(paths)
    lines = path.read_bytes().splitlines(keepends=True)
    place = random.Random(seed).randrange(1, len(lines) - 2)
    changes = {
        "change": [lines[place].replace(b'"user":"u', b'"user":"v')],
        "remove": [],
        "repeat": [lines[place]] * 2,
        "swap": [lines[place + 1], lines[place], *lines[place + 2 : place + 3]],
        "forge": [lines[place], b'{"time":"2026-01-01T00:00:00.000Z","user":"x"}\n'],
    }
    taken = 3 if what == "swap" else 1
    path.write_bytes(b"".join([*lines[:place], *changes[what], *lines[place + taken :]]))

    assert verify_chain(newest).faults


def test_a_file_that_is_missing_in_the_middle_is_found(tmp_path: Path) -> None:
    newest = write(tmp_path, 40, size_bytes_max=2_000, files_max=9)
    (tmp_path / "n0-admin.2.jsonl").unlink()

    (fault,) = verify_chain(newest).faults
    assert "n0-admin.1.jsonl:1: expected the line after" in fault


@pytest.mark.parametrize("is_written_again", [False, True], ids=["cut", "written again"])
def test_a_noted_hash_finds_that_the_end_was_removed(tmp_path: Path, is_written_again: bool) -> None:
    """Without a noted hash nothing is found: a process that can write the files can write a valid chain."""
    newest = write(tmp_path, 9)
    noted = verify_chain(newest).head
    newest.write_bytes(b"".join(newest.read_bytes().splitlines(keepends=True)[:4]))
    if is_written_again:
        write(tmp_path, 9)

    assert verify_chain(newest).faults == ()
    assert not verify_chain(newest, noted).is_known


def test_a_noted_hash_is_found_after_more_lines(tmp_path: Path) -> None:
    noted = verify_chain(write(tmp_path, 9)).head

    assert verify_chain(write(tmp_path, 9), noted).is_known


def test_a_line_that_a_crash_cut_is_no_fault(tmp_path: Path) -> None:
    newest = write(tmp_path, 4)
    with newest.open("ab") as file:
        file.write(b'{"time":"2026-')
    assert verify_chain(newest)[:3] == (4, 0, 0)
    write(tmp_path, 2)

    assert verify_chain(newest)[:3] == (6, 0, 1)
    assert verify_chain(newest).faults == ()


def test_lines_of_an_older_version_are_the_first_ones_only(tmp_path: Path) -> None:
    old = b'{"time":"2026-01-01T00:00:00.000Z","user":"old"}\n'
    (tmp_path / "n0-admin.jsonl").write_bytes(old * 3)
    newest = write(tmp_path, 4)
    assert verify_chain(newest)[:3] == (4, 3, 0)
    assert verify_chain(newest).faults == ()

    # The first line of the chain covers the last one before it.
    newest.write_bytes(newest.read_bytes().replace(old * 3, old * 2 + old.replace(b"old", b"new")))
    assert len(verify_chain(newest).faults) == 1


def test_faults_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.audit.chain, "FAULTS_MAX", 3)
    newest = write(tmp_path, 20)
    newest.write_bytes(b"".join(reversed(newest.read_bytes().splitlines(keepends=True))))

    assert len(verify_chain(newest).faults) == 3

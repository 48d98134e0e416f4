"""`dledger audit verify`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cluster.audit.log import AuditLog
from cluster.audit.record import AuditRecord, RecordKind
from cluster.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def verified(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", "verify", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = AuditLog(tmp_path / "audit", "n0")
    for number in range(3):
        log.add(AuditRecord(number, RecordKind.ADMIN, f"u{number}"))
        log.add(AuditRecord(number, RecordKind.ACCESS, f"u{number}"))
    log.close()
    return tmp_path / "audit"


def test_both_series_of_a_folder_are_checked(folder: Path) -> None:
    found = verified(folder, "--json")

    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert found.exit_code == 0
    assert [(row["file"], row["lines"], row["fault"]) for row in rows] == [
        (str(folder / "n0-access.jsonl"), 3, None),
        (str(folder / "n0-admin.jsonl"), 3, None),
    ]


def test_a_removed_line_is_a_failure_with_its_place(folder: Path) -> None:
    path = folder / "n0-admin.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])

    found = verified(folder)

    assert found.exit_code == 1
    assert f"{path}:2: expected the line after" in found.stderr


def test_a_head_that_was_noted_is_looked_for(folder: Path) -> None:
    path = folder / "n0-admin.jsonl"
    head = json.loads(verified(path, "--json").stdout)["head"]

    assert verified(path, "--noted", head).exit_code == 0
    unknown = verified(path, "--noted", "0" * 64)
    assert (unknown.exit_code, "the noted hash is of no line" in unknown.stderr) == (1, True)
    assert verified(path, "--noted", "123").exit_code == 2
    assert verified(folder, "--noted", head).exit_code == 2


@pytest.mark.parametrize("name", ["absent", "audit/absent.jsonl", "empty"])
def test_what_is_no_audit_log_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "empty").mkdir()

    assert verified(folder.parent / name).exit_code == 1

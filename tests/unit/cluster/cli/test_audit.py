"""`dledger audit verify`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cluster.audit.chain import verify_chain
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


def rows_of(found: Result) -> list[tuple[str, int, str | None]]:
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    return [(row["file"].rpartition("/")[2], row["lines"], row["fault"]) for row in rows]


def test_all_series_of_a_folder_are_checked_with_their_summaries(folder: Path) -> None:
    log = AuditLog(folder, "n0", clock_ms=lambda: 0)
    for number in range(200):
        log.add(AuditRecord(number, RecordKind.ADMIN, "eve"))
        log.add(AuditRecord(number, RecordKind.ADMIN_READ, "eve"))
        log.add(AuditRecord(number, RecordKind.REFUSAL, "eve"))
    log.close()

    found = verified(folder, "--json")

    assert found.exit_code == 0
    assert rows_of(found) == [
        ("n0-access.jsonl", 3 + 10 + 1, None),
        ("n0-admin.jsonl", 3 + 100 + 1, None),
        ("n0-refusals.jsonl", 10 + 1, None),
    ]


def test_a_folder_of_a_version_with_two_series_is_checked_and_continued(folder: Path) -> None:
    """Refusals were in the series of access: their lines stay there, and the chain of each series continues."""
    (folder / "n0-refusals.jsonl").unlink()
    before = [("n0-access.jsonl", 3, None), ("n0-admin.jsonl", 3, None)]
    assert rows_of(verified(folder, "--json")) == before
    heads = {name: verify_chain(folder / name).head for name, _, _ in before}

    log = AuditLog(folder, "n0")
    log.add(AuditRecord(9, RecordKind.REFUSAL, "eve"))
    log.add(AuditRecord(9, RecordKind.ADMIN_READ, "eve"))
    log.close()

    assert rows_of(verified(folder, "--json")) == [
        ("n0-access.jsonl", 4, None),
        ("n0-admin.jsonl", 3, None),
        ("n0-refusals.jsonl", 1, None),
    ]
    for name, head in heads.items():
        assert verified(folder / name, "--noted", head).exit_code == 0


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

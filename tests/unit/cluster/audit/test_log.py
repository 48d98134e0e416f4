"""The thread of the audit log: what is lost is counted and reported, and administration comes first."""

from __future__ import annotations

import errno
import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

import cluster.audit.log
from cluster.audit.files import RotatedFile
from cluster.audit.line_window import WINDOW_MS
from cluster.audit.log import WAITING_MAX, AuditLog, AuditUnusable
from cluster.audit.record import AuditRecord, RecordKind
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def record(kind: RecordKind, number: int = 0) -> AuditRecord:
    return AuditRecord(number, kind, f"u{number}", result="OK")


def lines(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / f"n0-{name}.jsonl").open()]


def test_changes_and_refusals_have_files_of_their_own(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit", "n0")
    kinds = (RecordKind.ADMIN, RecordKind.ACCESS, RecordKind.LOGIN, RecordKind.ADMIN, RecordKind.ADMIN_READ)
    for number, kind in enumerate(kinds):
        log.add(record(kind, number))
    log.add(record(RecordKind.LOGIN, 8)._replace(result="NOT_AUTHENTICATED"), "local")
    log.add(record(RecordKind.REFUSAL, 9), "local")
    log.close()

    assert [line["user"] for line in lines(tmp_path / "audit", "admin")] == ["u0", "u3"]
    assert [line["user"] for line in lines(tmp_path / "audit", "access")] == ["u1", "u2", "u4"]
    assert [line["user"] for line in lines(tmp_path / "audit", "refusals")] == ["u8", "u9"]
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700
    assert log.written == {"admin": 2, "admin_read": 1, "access": 1, "login": 2, "refusal": 1, "lost": 0}


def test_more_than_may_wait_is_lost_counted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk stalls: access to messages is lost, and an action of an administrator after it is not."""
    begun, may_go, append = threading.Event(), threading.Event(), RotatedFile.append

    def stalling(self: RotatedFile, line: bytes) -> None:
        begun.set()
        may_go.wait()
        append(self, line)

    monkeypatch.setattr(RotatedFile, "append", stalling)
    log = AuditLog(tmp_path, "n0")
    log.add(record(RecordKind.ACCESS))
    begun.wait()
    for number in range(WAITING_MAX + 7):
        log.add(record(RecordKind.ACCESS, number))
    log.add(record(RecordKind.ADMIN, 1))
    with caplog.at_level(logging.ERROR, "cluster.audit.log"):
        may_go.set()
        log.close()

    assert log.lost["access"] == 7
    assert log.written["access"] == WAITING_MAX + 1
    assert [line["user"] for line in lines(tmp_path, "admin")] == ["u1"]
    assert [line["count"] for line in lines(tmp_path, "access") if line["kind"] == "lost"] == [7]


def test_a_full_disk_loses_records_and_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = RotatedFile.append

    def full(self: RotatedFile, line: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = AuditLog(tmp_path, "n0")
    with caplog.at_level(logging.ERROR, "cluster.audit.log"):
        monkeypatch.setattr(RotatedFile, "append", full)
        for number in range(5):
            log.add(record(RecordKind.ADMIN, number))
        wait_until(lambda: log.lost["admin"] == 5)
        monkeypatch.setattr(RotatedFile, "append", append)
        log.add(record(RecordKind.ADMIN, 9))
        log.close()

    assert [(line["kind"], line.get("count")) for line in lines(tmp_path, "admin")] == [("lost", 5), ("admin", None)]
    assert [each.getMessage().split()[0] for each in caplog.records] == ["audit_lost"]
    assert "No space left" in caplog.text


def test_summaries_of_refusals_come_when_their_window_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No later call is needed: the thread looks at the clock."""
    monkeypatch.setattr(cluster.audit.log, "_SUMMARY_PAUSE_S", 0.001)
    now_ms = [1_000]
    log = AuditLog(tmp_path, "n0", clock_ms=lambda: now_ms[0])
    for _ in range(30):
        log.add(record(RecordKind.REFUSAL, 1_000), "local")
    wait_until(lambda: log.written["refusal"] == 10)
    now_ms[0] += WINDOW_MS
    wait_until(lambda: log.written["refusal"] == 11)
    log.close()

    assert [line.get("count", 1) for line in lines(tmp_path, "refusals")] == [1] * 10 + [20]
    assert log.summarized["refusal"] == 20


def test_summaries_are_written_at_the_end(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, "n0", clock_ms=lambda: 0)
    for _ in range(12):
        log.add(record(RecordKind.REFUSAL), "local")
    log.close()

    assert lines(tmp_path, "refusals")[-1]["count"] == 2


def test_changes_without_a_line_of_their_own_are_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path, "n0", clock_ms=lambda: 1_000)
    for number in range(150):
        change = record(RecordKind.ADMIN, 1_000)
        log.add(change._replace(user="eve", method="SetTopic", resources=(f"Topic:t{number}",)))
    log.close()

    assert log.summarized["admin"] == 50
    (text,) = [each.getMessage() for each in caplog.records]
    assert text.startswith("audit_summarized changes=50 most=50 user='eve' address= method=SetTopic")


def test_a_user_with_many_addresses_has_one_share_of_the_changes(tmp_path: Path) -> None:
    """Callers without a user are counted by their address."""
    log = AuditLog(tmp_path, "n0", clock_ms=lambda: 0)
    for number in range(300):
        log.add(record(RecordKind.ADMIN)._replace(user="eve", address=f"10.0.0.{number}"), f"10.0.0.{number}")
        log.add(record(RecordKind.ADMIN)._replace(user="", address=f"10.0.0.{number % 3}"), f"10.0.0.{number % 3}")
    log.close()

    found = lines(tmp_path, "admin")
    assert [(line["count"], line["address"]) for line in found if line["user"] == "eve" and "count" in line] == [
        (200, "(several)")
    ]
    assert sum(line["user"] == "" for line in found) == 300


def test_ages_are_of_the_series_that_have_records(tmp_path: Path) -> None:
    now_ms = [5_000]
    log = AuditLog(tmp_path, "n0", clock_ms=lambda: now_ms[0])
    assert log.ages_s() == {}
    log.add(record(RecordKind.ADMIN, 2_000))
    log.close()

    assert log.ages_s() == {"admin": 3.0}
    assert AuditLog(tmp_path, "n0", clock_ms=lambda: 9_000).ages_s() == {"admin": 7.0}
    # A clock that was set back.
    now_ms[0] = 0
    assert log.ages_s() == {"admin": 0}


def test_the_name_of_a_broker_is_no_path(tmp_path: Path) -> None:
    AuditLog(tmp_path / "audit", "../x/é").close()

    names = sorted(each.name for each in (tmp_path / "audit").iterdir())
    assert names == [f".._x__-{series}.jsonl" for series in ("access", "admin", "refusals")]


def test_a_folder_that_cannot_be_written_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file")

    with pytest.raises(AuditUnusable, match="audit: expected a folder"):
        AuditLog(tmp_path / "audit", "n0")

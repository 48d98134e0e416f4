"""A series of files: where records belong, how old the oldest one is, and files that rotation deletes too early."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import cluster.audit.files
from cluster.audit.record import AuditRecord, RecordKind
from cluster.audit.series import RecordSeries, SeriesName, series_of

if TYPE_CHECKING:
    from pathlib import Path

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_764_000_000_000


class Clock:
    """The time of day of a test."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


def opened(path: Path, clock: Clock, **settings: Any) -> RecordSeries:
    given = {"size_bytes_max": 2_000, "files_max": 3, "keep_days": 30} | settings
    return RecordSeries(path, "n0", SeriesName.ADMIN, "n0", clock_ms=clock, **given)


def write(series: RecordSeries, clock: Clock, *, until_rotated: int = 0, step_ms: int = 1_000) -> None:
    """Write one record, or records until files were rotated a number of times."""
    rotated = 0
    while True:
        before = series.file.path.stat().st_ino
        clock.now_ms += step_ms
        series.append(AuditRecord(clock.now_ms, RecordKind.ADMIN, "alice"))
        rotated += series.file.path.stat().st_ino != before
        if rotated >= until_rotated:
            return


@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        (RecordKind.ADMIN, "OK", SeriesName.ADMIN),
        (RecordKind.ADMIN, "UNKNOWN_TOPIC", SeriesName.ADMIN),
        (RecordKind.ADMIN_READ, "OK", SeriesName.ACCESS),
        (RecordKind.ACCESS, "OK", SeriesName.ACCESS),
        (RecordKind.LOGIN, "OK", SeriesName.ACCESS),
        (RecordKind.LOGIN, "NOT_AUTHENTICATED", SeriesName.REFUSALS),
        (RecordKind.REFUSAL, "ACCESS_DENIED", SeriesName.REFUSALS),
    ],
)
def test_refusals_successes_and_changes_are_apart(kind: RecordKind, result: str, expected: SeriesName) -> None:
    assert series_of(AuditRecord(0, kind, result=result)) is expected


def test_a_file_that_rotation_deletes_too_early_is_logged_at_most_once_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    series = opened(tmp_path, clock)
    write(series, clock, until_rotated=2)
    assert caplog.records == []

    write(series, clock, until_rotated=5)
    assert [each.getMessage().split(":")[0] for each in caplog.records] == ["audit_rotated_early series=admin"]
    assert "expected audit_keep_days=30 at least" in caplog.text

    clock.now_ms += HOUR_MS
    write(series, clock, until_rotated=1)
    assert len(caplog.records) == 2
    series.file.close()


@pytest.mark.parametrize("keep_days", [0, 1])
def test_a_file_whose_records_were_kept_long_enough_is_deleted_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keep_days: int
) -> None:
    clock = Clock()
    series = opened(tmp_path, clock, keep_days=keep_days)
    # A file has some ten records: of two days, if it is not to matter.
    step_ms = 1_000 if not keep_days else DAY_MS // 4
    with caplog.at_level(logging.WARNING):
        write(series, clock, until_rotated=6, step_ms=step_ms)

    assert caplog.records == []
    series.file.close()


def test_age_of_the_oldest_record_is_known_after_a_restart_and_falls_with_its_file(tmp_path: Path) -> None:
    clock = Clock()
    series = opened(tmp_path, clock)
    assert series.oldest_ms is None

    write(series, clock)
    first_ms = clock.now_ms
    write(series, clock, until_rotated=2)
    assert series.oldest_ms == first_ms
    series.file.close()
    series = opened(tmp_path, clock)
    assert series.oldest_ms == first_ms

    write(series, clock, until_rotated=1)
    assert series.oldest_ms is not None
    assert first_ms < series.oldest_ms < clock.now_ms
    series.file.close()


def test_an_oldest_file_that_cannot_be_read_does_not_stop_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    series = opened(tmp_path, clock)
    write(series, clock, until_rotated=2)

    def fails(*_: object) -> bytes:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.audit.files, "_last_line_of", fails)
        patch.setattr(series.file, "first_line", fails)
        write(series, clock, until_rotated=1)

    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "n0-admin.1.jsonl",
        "n0-admin.2.jsonl",
        "n0-admin.jsonl",
    ]
    assert caplog.records == []
    series.file.close()

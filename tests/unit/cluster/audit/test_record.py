"""Lines of the audit log: one line of ASCII each, whatever a request contains."""

from __future__ import annotations

import json

from cluster.audit.record import TEXT_LENGTH_MAX, AuditRecord, RecordKind

HOSTILE = 'x"}\n{"time":"forged\x1b[2J\u2028\x00é\ud800'


def test_a_line_has_every_field() -> None:
    record = AuditRecord(
        1_764_000_000_123,
        RecordKind.ADMIN,
        "admin",
        "session",
        "10.0.0.1",
        "BrokerService/SetTopic",
        ("Topic:orders",),
    )

    assert json.loads(record.line("n0")) == {
        "time": "2025-11-24T16:00:00.123Z",
        "node": "n0",
        "kind": "admin",
        "user": "admin",
        "via": "session",
        "address": "10.0.0.1",
        "method": "BrokerService/SetTopic",
        "resources": ["Topic:orders"],
        "result": "OK",
    }


def test_text_of_a_request_cannot_begin_a_line_or_control_a_terminal() -> None:
    """Line feeds, escapes, separators of Unicode, NUL and half a surrogate pair are in names and in the detail."""
    record = AuditRecord(0, RecordKind.REFUSAL, HOSTILE, resources=(HOSTILE,), result="ACCESS_DENIED", detail=HOSTILE)

    line = record.line("n0")

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line[:-1].decode("ascii").isprintable()
    found = json.loads(line)
    assert (found["user"], found["resources"], found["detail"]) == (HOSTILE, [HOSTILE], HOSTILE)


def test_a_line_is_bounded() -> None:
    record = AuditRecord(
        0, RecordKind.ACCESS, "u" * 9_000, resources=("é" * 9_000,) * 9, detail="d" * 9_000, result="OK"
    )

    found = json.loads(record.line("n0"))

    assert len(record.line("n0")) < 20_000
    assert [len(each) for each in found["resources"]] == [TEXT_LENGTH_MAX] * 8
    assert found["has_more"]


def test_a_summary_says_for_how_many_it_is() -> None:
    record = AuditRecord(1_000, RecordKind.REFUSAL, result="ACCESS_DENIED", number=7, until_ms=5_000)

    found = json.loads(record.line("n0"))

    assert (found["time"], found["until"], found["count"]) == (
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:00:05.000Z",
        7,
    )

"""Lines of the audit log: one line of ASCII each, whatever a request contains."""

from __future__ import annotations

import json

import pytest

from cluster.audit.chain import FIRST, linked
from cluster.audit.record import RECORD_SIZE_BYTES_MAX, TEXT_LENGTH_MAX, AuditRecord, RecordKind, time_of_line

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


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\n", '"', "\x7f", "\ud800", "\x00"])
def test_escaped_size_of_a_line_is_bounded(character: str) -> None:
    """Every text has thousands of characters; some need twelve bytes each."""
    text = character * 9_000
    record = AuditRecord(
        253_402_300_799_999,
        RecordKind.ADMIN_READ,
        text,
        text,
        text,
        text,
        (text,) * 9,
        text,
        text,
        1 << 62,
        253_402_300_799_999,
    )
    line = linked(record.line(text), FIRST)

    found = json.loads(line)
    assert len(line) <= RECORD_SIZE_BYTES_MAX
    assert found["has_more"]
    # As much is left as fits: less than one more character is unused.
    for each in (found["user"], found["detail"], *found["resources"]):
        assert TEXT_LENGTH_MAX - 12 < len(json.dumps(each)) - 2 <= TEXT_LENGTH_MAX
        assert set(each) == {character}


def test_longest_names_that_a_broker_accepts_are_not_cut() -> None:
    name = "Topic:" + "n" * 255
    record = AuditRecord(0, RecordKind.ADMIN, name, resources=(name,) * 8, detail=name)

    found = json.loads(record.line("n0"))

    assert (found["user"], found["detail"], found["resources"]) == (name, name, [name] * 8)
    assert "has_more" not in found


def test_time_of_a_line_is_found_unless_a_crash_cut_it() -> None:
    line = AuditRecord(1_764_000_000_123, RecordKind.ADMIN).line("n0")

    assert time_of_line(line) == 1_764_000_000_123
    assert time_of_line(line[:20]) is None
    assert time_of_line(b'{"time":"2025-99-99T"}') is None
    assert time_of_line(b"") is None


def test_a_summary_says_for_how_many_it_is() -> None:
    record = AuditRecord(1_000, RecordKind.REFUSAL, result="ACCESS_DENIED", number=7, until_ms=5_000)

    found = json.loads(record.line("n0"))

    assert (found["time"], found["until"], found["count"]) == (
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:00:05.000Z",
        7,
    )

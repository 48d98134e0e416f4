"""A log record is one line, whatever its content."""

import logging
import sys

import pytest

from cluster.process.serving import LineFormatter


def formatted(*arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("a.b", logging.INFO, __file__, 1, "address=%s", arguments, exc_info)
    return LineFormatter("%(levelname)s %(message)s").format(record)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("x\n2026-01-01 CRITICAL stopped", "x\\n2026-01-01 CRITICAL stopped"),
        ("\r\x1b[2J\x00", "\\r\\x1b[2J\\x00"),
        ("\u2028\x85\u202e", "\\u2028\\x85\\u202e"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_no_argument_can_begin_another_line(found: str, line: str) -> None:
    assert formatted(found) == f"INFO address={line}"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        int("x")
    except ValueError:
        lines = formatted("y", exc_info=sys.exc_info()).splitlines()

    assert lines[0] == "INFO address=y"
    assert lines[-1].startswith("ValueError: ")

"""The trace file: lines are appended to those of an earlier run, up to the size limit."""

from __future__ import annotations

from pathlib import Path

from cluster.process.trace_file import TraceFile


def test_lines_follow_those_of_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for line in ("one", "two"):
        trace = TraceFile(path)
        trace.write(line)
        trace.close()
    assert path.read_text() == "one\ntwo\n"


def test_no_line_exceeds_the_limit_and_none_is_written_after_it_was_reached(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    trace = TraceFile(path, size_bytes_max=10)
    for line in ("12345", "123456", "1"):
        trace.write(line)
    trace.close()
    assert path.read_text() == "12345\n"

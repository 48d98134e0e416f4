"""`dledger bench-broker` measures every part on nodes of its own, leaves nothing behind, and refuses unknown parts."""

import json

import pytest
from typer.testing import CliRunner

from cluster.bench_broker import TARGETS
from cluster.cli import app


@pytest.mark.slow
def test_every_part_is_measured_and_nothing_is_left(tmp_path):
    options = ["--runs", "1", "--seconds", "0.3", "--size", "2", "--folder", str(tmp_path), "--json", "-"]

    result = CliRunner().invoke(app, ["bench-broker", *options])

    assert result.exit_code == 0, result.output
    figures = [json.loads(line) for line in result.stdout.splitlines()]
    assert [figure["figure"] for figure in figures] == list(TARGETS)
    assert all(figure["median"] > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"), [(["puts"], "no part is called 'puts'"), (["--flush", "x"], "expected sync or async")]
)
def test_what_cannot_be_measured_is_refused(tmp_path, arguments, text):
    result = CliRunner().invoke(app, ["bench-broker", *arguments, "--folder", str(tmp_path)])

    assert result.exit_code == 2
    assert text in result.stderr

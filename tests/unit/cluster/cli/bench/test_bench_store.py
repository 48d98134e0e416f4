"""`dledger bench-store` measures every part on a temporary store, leaves no files, and refuses unknown parts."""

import json

import pytest
from typer.testing import CliRunner

from cluster.bench.store import TARGETS, BenchTarget, Figure
from cluster.cli.app import app


@pytest.mark.slow
def test_every_part_is_measured_and_no_files_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster.bench.store._PUT_MANY_S", 0.1)
    monkeypatch.setattr("cluster.bench.queues._WRITTEN_S", 0.1)
    options = ["--runs", "1", "--size", "2", "--index-items", "20000", "--folder", str(tmp_path), "--json", "-"]

    result = CliRunner().invoke(app, ["bench-store", *options, "--queues", "50"])

    assert result.exit_code == 0, result.output
    figures = [json.loads(line) for line in result.stdout.splitlines()]
    assert {figure["figure"] for figure in figures} == set(TARGETS)
    assert all(figure["median"] > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_unknown_part_is_refused_with_a_list_of_parts(tmp_path):
    result = CliRunner().invoke(app, ["bench-store", "puts", "--folder", str(tmp_path)])

    assert result.exit_code == 2
    assert "unknown part 'puts'" in result.stderr
    assert "dispatch" in result.stderr


@pytest.mark.parametrize(("is_less_better", "is_met"), [(False, True), (True, False)])
def test_target_is_met_by_the_median_on_its_side(is_less_better, is_met):
    figure = Figure("put", BenchTarget("messages/s", 10, is_less_better), 1, [1, 11, 12])

    assert figure.median == 11
    assert figure.is_met is is_met

"""`make bench-spark`: the parts that workers, or a node, take part in measure a small log."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "bench_spark.py"


def test_workers_find_the_functions_of_the_script_and_a_node_serves_the_log(tmp_path):
    """They did not when the parts had become a module of their own; the node refused a log without identity."""
    written = tmp_path / "figures.json"
    options = ["--folder", tmp_path / "bench", "--size", 4, "--cores", 1, "--runs", 1, "--json", written]
    command = [sys.executable, SCRIPT, *options, "--only", "queues", "index", "online"]

    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=10 * PATIENCE_S)

    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(figures) == 3
    assert all(figure["value"] > 0 for figure in figures)

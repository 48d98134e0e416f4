"""A seed determines a complete run: the same on every machine and in every process."""

import os
import subprocess
import sys

import pytest

from dledger.testing.options import draw_options
from dledger.testing.runner import run_seed

SEEDS = (1, 2, 3, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_same_seed_twice_is_the_same_run(seed):
    first, second = run_seed(seed), run_seed(seed)

    assert first.summary is not None, first.failure
    assert first == second


def test_different_seeds_are_different_runs():
    hashes = {run_seed(seed).summary.state_hash for seed in SEEDS}

    assert len(hashes) == len(SEEDS)


def test_printing_the_trace_does_not_change_it():
    trace: list[str] = []

    result = run_seed(SEEDS[0], emit=trace.append)

    assert result == run_seed(SEEDS[0])
    assert any("LEADER" in line for line in trace)


def test_run_does_not_depend_on_the_hash_seed():
    lines = {_run_in_process(hash_seed) for hash_seed in ("0", "1", "4242", "random")}

    assert len(lines) == 1
    assert f"seed={SEEDS[0]} ok" in lines.pop()


def test_number_of_nodes_can_be_given_without_changing_the_rest():
    drawn = draw_options(7)
    three, five = draw_options(7, 3), draw_options(7, 5)

    assert (three.node_count, five.node_count) == (3, 5)
    assert three.nemesis_ops == five.nemesis_ops == drawn.nemesis_ops
    assert three.network == five.network


def test_violation_ends_with_status_1_and_how_to_replay(monkeypatch, capsys):
    from dledger.testing import __main__ as program
    from dledger.testing.runner import Result

    failure = Result(seed=9, node_count=5, shape="nodes=5", summary=None, failure="Violation: term: went back")
    monkeypatch.setattr(program, "run_seeds", lambda *_, **__: iter([failure]))

    status = program.main(["--seed", "9"])

    assert status == 1
    output = capsys.readouterr()
    assert "seed=9 FAILED Violation: term: went back" in output.out
    assert "python -m dledger.testing --seed 9 --nodes 5 --trace" in output.err


def _run_in_process(hash_seed: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "dledger.testing", "--seed", str(SEEDS[0])],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return finished.stdout

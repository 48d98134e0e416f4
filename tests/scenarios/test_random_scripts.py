"""Random scripts: no guarantee is broken under faults, and without faults the group recovers automatically.

`make scenarios` runs thousands.
"""

from __future__ import annotations

import io
import sys

import pytest

from dledger.testing.faults import Violation
from dledger.testing.script.__main__ import main
from dledger.testing.script.random_scripts import RandomScript

SEEDS_PER_TEST = 25


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 100, SEEDS_PER_TEST))
def test_no_random_script_breaks_a_guarantee(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        script = RandomScript(seed, length=60)
        try:
            script.run()
        except (Violation, AssertionError) as error:
            pytest.fail(f"seed {seed}: {error!r}\n{script.text}")


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 50, SEEDS_PER_TEST))
def test_a_node_on_an_old_copy_breaks_no_guarantee(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        script = RandomScript(seed, length=60, has_old_copies=True)
        try:
            script.run()
        except (Violation, AssertionError) as error:
            pytest.fail(f"seed {seed}: {error!r}\n{script.text}")


def test_command_line_runs_random_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--random", "2", "--seed", "7", "--length", "10"]) == 0

    assert "2 random scripts of 10 commands, 0 failed" in capsys.readouterr().out


def test_command_line_prints_the_trace_of_a_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("# t\n# Source: s\n\nnodes 1\ncampaign 1\n----\n"))

    assert main([]) == 0

    assert "n1            leads term 1" in capsys.readouterr().out


def test_command_line_reports_errors_of_a_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("nodes 1\n"))

    assert main([]) == 1

    assert "title" in capsys.readouterr().err


def test_one_seed_gives_one_script() -> None:
    first, second = RandomScript(3, 30), RandomScript(3, 30)
    first.run()
    second.run()

    assert first.text == second.text

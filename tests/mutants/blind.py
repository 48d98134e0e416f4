"""Finds the test of the default gate that catches a planted bug, independent of the bug's level.

If the level of a bug is a test, a scenario or a workload of the gate, that test catches it. If the level consists of
simulated runs with special options, the tests below are run, the fastest first.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from dledger.testing.shell.runner import run_shell_seed
from tests.mutants.levels import VARIABLE
from tests.mutants.mutant import CrashPoints, Mutant, Scenario, Tests
from tests.simulation.test_seeds import FIRST_SEED, SEEDS
from tests.simulation.test_shell import FIRST_SEED as FIRST_SHELL_SEED
from tests.simulation.test_shell import SEEDS as SHELL_SEEDS

ROOT = Path(__file__).resolve().parents[2]
# Some tests wait for their whole timeout if a bug blocks all progress.
TESTS_S = 1_800
QUICK_SEEDS = 60
GATE_SEEDS = range(FIRST_SEED, FIRST_SEED + SEEDS)
GATE_SHELL_SEEDS = range(FIRST_SHELL_SEED, FIRST_SHELL_SEED + SHELL_SEEDS)


def judge(mutant: Mutant) -> str | None:
    """Return the test of the default gate that finds a planted bug first; None: all pass."""
    match mutant.level:
        case Tests(node_id):
            return node_id
        case Scenario(name):
            return f"tests/scenarios/{name}.txt"
        case CrashPoints(workload):
            return f"tests/crashpoints, workload {workload}"
    return (
        first_seed(mutant, GATE_SEEDS[:QUICK_SEEDS])
        or first_shell_seed(mutant, GATE_SHELL_SEEDS[:QUICK_SEEDS])
        or first_test(mutant, "tests/scenarios", "-m", "not slow")
        or first_test(mutant, "tests/unit", "-m", "not slow and not spark")
        or first_shell_seed(mutant, GATE_SHELL_SEEDS[QUICK_SEEDS:])
        or first_seed(mutant, GATE_SEEDS[QUICK_SEEDS:])
    )


def first_test(mutant, *arguments):
    """Return the first test that fails with the bug planted; None: all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
    with TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*command, f"--basetemp={folder}/pytest", *arguments],
                cwd=ROOT,
                env={**os.environ, VARIABLE: mutant.name, "TEST_PATIENCE_S": "15"},
                capture_output=True,
                text=True,
                check=False,
                timeout=TESTS_S,
            )
        except subprocess.TimeoutExpired:
            return f"{arguments[0]}: nothing ended within {TESTS_S} s"
    failures = [line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failures[0] if failures else None


def first_seed(mutant, seeds):
    """Return the first simulated run with default options that fails with the bug planted, and the failure."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.put_into(patch)
        for seed in seeds:
            _, failure = run_options(draw_options(seed))
            if failure:
                return f"simulation, seed {seed}: {failure.splitlines()[0]}"
    return None


def first_shell_seed(mutant, seeds):
    """Return the first simulated run of the shell with default options that fails with the bug, and the failure."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.put_into(patch)
        for seed in seeds:
            result = run_shell_seed(seed)
            if result.summary is None:
                return f"simulation of the shell, seed {seed}: {result.failure.splitlines()[0]}"
    return None

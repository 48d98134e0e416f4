"""Judges a planted bug by the default gate as it is, whatever rung was chosen for the bug.

A bug whose rung is a test, a scenario or a workload of the gate is found by that one. A bug whose rung is simulated
runs of a shape that was made for it is judged by the parts of the gate below, the quickest first.
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
from tests.mutants.mutant import CrashPoints, Mutant, Scenario, Tests
from tests.mutants.rungs import VARIABLE
from tests.simulation.test_seeds import FIRST_SEED, SEEDS
from tests.simulation.test_shell import FIRST_SEED as FIRST_SHELL_SEED
from tests.simulation.test_shell import SEEDS as SHELL_SEEDS

ROOT = Path(__file__).resolve().parents[2]
# Bugs that stop everything keep some tests waiting for all of their patience.
TESTS_S = 1_800
QUICK_SEEDS = 60


def judge(mutant: Mutant) -> str | None:
    """Return the test of the default gate that finds a planted bug first; None: all pass."""
    match mutant.rung:
        case Tests(node_id):
            return node_id
        case Scenario(name):
            return f"tests/scenarios/{name}.txt"
        case CrashPoints(workload):
            return f"tests/crashpoints, workload {workload}"
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    shell_seeds = range(FIRST_SHELL_SEED, FIRST_SHELL_SEED + SHELL_SEEDS)
    return (
        first_seed(mutant, seeds[:QUICK_SEEDS])
        or first_shell_seed(mutant, shell_seeds[:QUICK_SEEDS])
        or first_test(mutant, "tests/scenarios", "-m", "not slow")
        or first_test(mutant, "tests/unit", "-m", "not slow and not spark")
        or first_shell_seed(mutant, shell_seeds[QUICK_SEEDS:])
        or first_seed(mutant, seeds[QUICK_SEEDS:])
    )


def first_test(mutant, *arguments):
    """Return the first test that fails with the bug in it; None: all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
    with TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*command, f"--basetemp={folder}/pytest", *arguments],
                cwd=ROOT,
                env={**os.environ, VARIABLE: mutant.name, "DLEDGER_TEST_PATIENCE_S": "15"},
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
    """Return the first simulated run, as its seed draws it, that fails with the bug in it, and how."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in seeds:
            _, failure = run_options(draw_options(seed))
            if failure:
                return f"simulation, seed {seed}: {failure.splitlines()[0]}"
    return None


def first_shell_seed(mutant, seeds):
    """Return the first simulated run of the shell, as its seed draws it, that fails with the bug in it, and how."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in seeds:
            result = run_shell_seed(seed)
            if result.summary is None:
                return f"simulation of the shell, seed {seed}: {result.failure.splitlines()[0]}"
    return None

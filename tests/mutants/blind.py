"""Judges a planted bug by a rung as the gate runs it, whatever rung was chosen for the bug."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from tests.mutants.rungs import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
# Bugs that stop everything keep some tests waiting for all of their patience.
TESTS_S = 1_800


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
            return f"nothing ended within {TESTS_S} s"
    failures = [line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failures[0] if failures else None


def first_seed(mutant, count):
    """Return the first of `count` simulated runs, as seeds draw them, that fails with the bug in it, and how."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        for seed in range(1, count + 1):
            _, failure = run_options(draw_options(seed))
            if failure:
                return f"{seed}: {failure.splitlines()[0]}"
    return None

"""The ladder can fail: each planted bug is caught by the rung that is named for it.

Where simulated runs must catch a bug, the seed that once did is tried first, and others when it no longer does;
`make mutants` looks for it anew and writes it into known_seeds.json.
"""

import json
from pathlib import Path

import pytest

from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from tests.mutants.catalogue import MUTANTS
from tests.mutants.rungs import FIRST_SEED, run
from tests.mutants.shapes import SOUND

KNOWN_SEEDS = json.loads((Path(__file__).parent / "known_seeds.json").read_text("utf-8"))
BLIND = json.loads((Path(__file__).parent / "blind.json").read_text("utf-8"))
MUTANTS_MIN = 36


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    catch = run(MUTANTS[name], KNOWN_SEEDS.get(name))

    print(f"{name}: {catch}")
    assert catch.is_caught, catch


def test_names_are_different_and_seeds_are_of_mutants_that_are_there():
    assert len(MUTANTS) >= MUTANTS_MIN
    assert set(KNOWN_SEEDS) <= set(MUTANTS)
    assert set(BLIND) <= set(MUTANTS)


@pytest.mark.parametrize("shape", SOUND)
def test_shapes_of_the_mutants_hold_without_them(shape):
    for seed in range(FIRST_SEED, FIRST_SEED + 5):
        _, failure = run_options(shape(draw_options(seed, is_focused=False)))

        assert failure == "", f"seed {seed}: {failure}"

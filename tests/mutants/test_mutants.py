"""Each planted bug is caught by its level.

For simulated runs, the known seed is run first, and further seeds if it no longer catches the bug; `make mutants`
searches for a new seed and writes it to known_seeds.json.
"""

import json
import re
from pathlib import Path

import pytest

from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from dledger.testing.shell.options import draw_shell_options
from dledger.testing.shell.simulation import ShellSimulation
from tests.mutants.blind import GATE_SEEDS, GATE_SHELL_SEEDS
from tests.mutants.bugs.shell import directories, general, snapshots
from tests.mutants.catalogue import MUTANTS
from tests.mutants.levels import FIRST_SEED, run
from tests.mutants.mutant import Seeds, ShellSeeds, Tests, as_drawn, shell_as_drawn
from tests.mutants.shapes import SOUND, acknowledged_from_the_page_cache

ROOT = Path(__file__).parents[2]
KNOWN_SEEDS = json.loads((Path(__file__).parent / "known_seeds.json").read_text("utf-8"))
BLIND = json.loads((Path(__file__).parent / "blind.json").read_text("utf-8"))
MUTANTS_MIN = 36
SHELL_SEEDS = 3


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    catch = run(MUTANTS[name], KNOWN_SEEDS.get(name))

    print(f"{name}: {catch}")
    assert catch.is_caught, catch


def test_names_are_unique_and_seeds_belong_to_existing_mutants():
    assert len(MUTANTS) >= MUTANTS_MIN
    assert set(KNOWN_SEEDS) <= set(MUTANTS)


def test_every_planted_bug_is_found_by_the_gate_without_a_configuration_for_it():
    """`make mutants-blind` judges new ones; one row of the catalogue is a setting, which plants nothing."""
    assert set(BLIND) == {name for name, mutant in MUTANTS.items() if not mutant.is_setting}
    assert [name for name, finder in BLIND.items() if finder is None] == []


def test_every_seed_that_found_a_planted_bug_is_run_by_the_gate():
    ranges = {"simulation": GATE_SEEDS, "simulation of the shell": GATE_SHELL_SEEDS}
    found = {name: re.match(r"(simulation(?: of the shell)?), seed (\d+)", finder) for name, finder in BLIND.items()}
    seeds = {name: (match[1], int(match[2])) for name, match in found.items() if match}
    assert seeds
    assert {name: place for name, place in seeds.items() if place[1] not in ranges[place[0]]} == {}


def test_every_test_that_a_planted_bug_names_exists():
    finders = [finder for finder in BLIND.values() if finder.startswith("tests/") and "::" in finder]
    named = {mutant.level.node_id for mutant in MUTANTS.values() if isinstance(mutant.level, Tests)} | set(finders)

    assert [node_id for node_id in sorted(named) if not is_a_test(node_id)] == []


def is_a_test(node_id):
    """Return whether the file of a node id exists, with a function of its name; parameters are not compared."""
    path, _, name = node_id.partition("::")
    function = name.partition("[")[0].rpartition("::")[2]
    return (ROOT / path).is_file() and (not function or f"def {function}(" in (ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize("shape", [*general.SOUND, *snapshots.SOUND, *directories.SOUND])
def test_shapes_of_the_shells_mutants_pass_without_them(shape):
    for seed in range(FIRST_SEED, FIRST_SEED + SHELL_SEEDS):
        print(f"seed {seed}")
        ShellSimulation(shape(draw_shell_options(seed, may_have_state=False))).run()


def test_every_shape_of_a_mutant_is_tried_without_it():
    shapes = {mutant.level.shape for mutant in MUTANTS.values() if isinstance(mutant.level, (Seeds, ShellSeeds))}

    assert shapes - {*SOUND, *general.SOUND, *snapshots.SOUND, *directories.SOUND} == {
        as_drawn,
        shell_as_drawn,
        acknowledged_from_the_page_cache,
    }


@pytest.mark.parametrize("shape", SOUND)
def test_shapes_of_the_mutants_pass_without_them(shape):
    for seed in range(FIRST_SEED, FIRST_SEED + 5):
        _, failure = run_options(shape(draw_options(seed, is_focused=False)))

        assert failure == "", f"seed {seed}: {failure}"

"""Runs the tests of a mutant's level, and returns which test caught it."""

import time
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dledger.testing.options import draw_options
from dledger.testing.script import script
from dledger.testing.shell.options import draw_shell_options
from dledger.testing.shell.simulation import ShellSimulation
from dledger.testing.simulation import Simulation
from tests.crashpoints.inspector import Inspector
from tests.crashpoints.workload import WORKLOADS, Workload
from tests.mutants.forks import Forks
from tests.mutants.mutant import CrashPoints, Mutant, Scenario, Seeds, ShellSeeds, Tests, as_drawn
from tests.support.waiting import SCENARIO_LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "tests" / "scenarios"
FIRST_SEED = 10_001
# The pytest plugin reads the name of the bug to plant from this variable.
VARIABLE = "PLANTED_BUG"
FORKS = Forks()


@dataclass(frozen=True)
class Catch:
    """The result of testing a mutant.

    Attributes:
        is_caught: its level failed with an expected failure. where: the seed, script, operation or test that failed.
        failure: first line of the failure, or the reason why the bug was not caught. event_count: simulated events,
        disk images or tests until then. seconds: until then.
    """

    is_caught: bool
    where: str
    failure: str
    event_count: int
    seconds: float

    @property
    def seed(self):
        """The seed that caught the bug; None: another test did."""
        return int(self.where.removeprefix("seed ")) if self.where.startswith("seed ") else None


def run(mutant: Mutant, known_seed: int | None = None) -> Catch:
    """Plant a bug, run its level, and remove the bug.

    Args:
        mutant: the bug.
        known_seed: the first seed to run, if the level consists of seeds.
    """
    began = time.perf_counter()
    level = mutant.level
    if isinstance(level, Tests):
        return _tests(mutant, level, began)
    with pytest.MonkeyPatch.context() as patch:
        mutant.put_into(patch)
        if isinstance(level, Seeds):
            return _seeds(level, known_seed, began)
        if isinstance(level, ShellSeeds):
            return _shell_seeds(level, known_seed, began)
        if isinstance(level, Scenario):
            return _scenario(level, began)
        return _crash_points(level, began)


def _seeds(level: Seeds, known_seed: int | None, began: float) -> Catch:
    events = 0
    known = [] if known_seed is None else [known_seed]
    for seed in (*known, *range(FIRST_SEED, FIRST_SEED + level.count_max)):
        simulation = Simulation(level.shape(draw_options(seed, is_focused=level.shape is as_drawn)))
        failure = ""
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what caught the bug
            failure = f"{type(error).__name__}: {error}"
        events += simulation._world.scheduler.event_count
        if failure:
            is_caught = failure.startswith(level.expected)
            return Catch(is_caught, f"seed {seed}", _first_line(failure), events, time.perf_counter() - began)
    found = f"not found within {level.count_max} seeds"
    return Catch(False, "", found, events, time.perf_counter() - began)


def _shell_seeds(level: ShellSeeds, known_seed: int | None, began: float) -> Catch:
    events = 0
    known = [] if known_seed is None else [known_seed]
    for seed in (*known, *range(FIRST_SEED, FIRST_SEED + level.count_max)):
        simulation = ShellSimulation(level.shape(draw_shell_options(seed, may_have_state=False)))
        failure = ""
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what caught the bug
            failure = f"{type(error).__name__}: {error}"
        events += simulation.event_count
        if failure:
            is_caught = failure.startswith(level.expected)
            return Catch(is_caught, f"seed {seed}", _first_line(failure), events, time.perf_counter() - began)
    found = f"not found within {level.count_max} seeds"
    return Catch(False, "", found, events, time.perf_counter() - began)


def _scenario(level: Scenario, began: float) -> Catch:
    written = (SCENARIOS / f"{level.name}.txt").read_text("utf-8")
    try:
        happened = script.run(written)
        failure = "" if happened == written else _first_difference(written, happened)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what caught the bug
        failure = f"{type(error).__name__}: {error}"
    where = f"scenario {level.name}"
    return Catch(bool(failure), where, _first_line(failure or "the same trace"), 1, time.perf_counter() - began)


def _first_difference(written: str, happened: str) -> str:
    pairs = zip_longest(written.splitlines(), happened.splitlines(), fillvalue="the end")
    number, line = next((number, there) for number, (here, there) in enumerate(pairs, start=1) if here != there)
    return f"another trace from line {number} on: {line}"


def _crash_points(level: CrashPoints, began: float) -> Catch:
    inspector = Inspector()
    failure = ""
    try:
        work = Workload(inspector.see)
        WORKLOADS[level.workload](work)
        work.end()
    except AssertionError as error:
        failure = str(error)
    where = f"crash points {level.workload}"
    seconds = time.perf_counter() - began
    return Catch(bool(failure), where, _first_line(failure or "all held"), inspector.counts["images"], seconds)


def _tests(mutant: Mutant, level: Tests, began: float) -> Catch:
    """Run the test in a separate process, in which the bug is planted first."""
    options = ["-q", "-x", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
    # Shorter timeouts than in the gate: a bug may prevent an event that a test waits for.
    environment = {VARIABLE: mutant.name, "TEST_PATIENCE_S": "5"}
    with TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        arguments = [*options, f"--basetemp={folder}/pytest", level.node_id]
        code = FORKS.run(arguments, environment, output, SCENARIO_LIMIT_S)
        printed = output.read_text("utf-8", "replace")
    failures = [line for line in printed.splitlines() if line.startswith("FAILED ")]
    is_caught = code == pytest.ExitCode.TESTS_FAILED and bool(failures)
    failure = failures[0].partition(" - ")[2] if failures else printed[-400:]
    where = f"test {level.node_id.rpartition('::')[2]}"
    return Catch(is_caught, where, _first_line(failure), 1, time.perf_counter() - began)


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]

"""Runs a mutant against its rung, and says what caught it."""

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
from tests.support.waiting import STORY_S

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "tests" / "scenarios"
FIRST_SEED = 10_001
# The plugin that plants a bug in a process of its own reads its name here.
VARIABLE = "DLEDGER_MUTANT"
FORKS = Forks()


@dataclass(frozen=True)
class Catch:
    """How a mutant fared.

    Attributes:
        is_caught: its rung failed, in a way in which it may.
        where: the seed, script, operation or test that failed.
        failure: its first line; why it is not caught, if it is not.
        event_count: simulated events, disk images or tests until then.
        seconds: until then.
    """

    is_caught: bool
    where: str
    failure: str
    event_count: int
    seconds: float

    @property
    def seed(self):
        """The seed that caught it; None: something else did."""
        return int(self.where.removeprefix("seed ")) if self.where.startswith("seed ") else None


def run(mutant: Mutant, known_seed: int | None = None) -> Catch:
    """Plant a bug, run its rung, take the bug out again.

    Args:
        mutant: the bug.
        known_seed: the first seed to try, where seeds are the rung.
    """
    began = time.perf_counter()
    rung = mutant.rung
    if isinstance(rung, Tests):
        return _tests(mutant, rung, began)
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        if isinstance(rung, Seeds):
            return _seeds(rung, known_seed, began)
        if isinstance(rung, ShellSeeds):
            return _shell_seeds(rung, known_seed, began)
        if isinstance(rung, Scenario):
            return _scenario(rung, began)
        return _crash_points(rung, began)


def _seeds(rung: Seeds, known_seed: int | None, began: float) -> Catch:
    events = 0
    known = [] if known_seed is None else [known_seed]
    for seed in (*known, *range(FIRST_SEED, FIRST_SEED + rung.count_max)):
        simulation = Simulation(rung.shape(draw_options(seed, is_focused=rung.shape is as_drawn)))
        failure = ""
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what caught the bug
            failure = f"{type(error).__name__}: {error}"
        events += simulation._world.scheduler.event_count
        if failure:
            is_caught = failure.startswith(rung.expected)
            return Catch(is_caught, f"seed {seed}", _first_line(failure), events, time.perf_counter() - began)
    found = f"not found within {rung.count_max} seeds"
    return Catch(False, "", found, events, time.perf_counter() - began)


def _shell_seeds(rung: ShellSeeds, known_seed: int | None, began: float) -> Catch:
    events = 0
    known = [] if known_seed is None else [known_seed]
    for seed in (*known, *range(FIRST_SEED, FIRST_SEED + rung.count_max)):
        simulation = ShellSimulation(rung.shape(draw_shell_options(seed, may_have_state=False)))
        failure = ""
        try:
            simulation.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what caught the bug
            failure = f"{type(error).__name__}: {error}"
        events += simulation.event_count
        if failure:
            is_caught = failure.startswith(rung.expected)
            return Catch(is_caught, f"seed {seed}", _first_line(failure), events, time.perf_counter() - began)
    found = f"not found within {rung.count_max} seeds"
    return Catch(False, "", found, events, time.perf_counter() - began)


def _scenario(rung: Scenario, began: float) -> Catch:
    written = (SCENARIOS / f"{rung.name}.txt").read_text("utf-8")
    try:
        happened = script.run(written)
        failure = "" if happened == written else _first_difference(written, happened)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what caught the bug
        failure = f"{type(error).__name__}: {error}"
    where = f"scenario {rung.name}"
    return Catch(bool(failure), where, _first_line(failure or "the same story"), 1, time.perf_counter() - began)


def _first_difference(written: str, happened: str) -> str:
    pairs = zip_longest(written.splitlines(), happened.splitlines(), fillvalue="the end")
    number, line = next((number, there) for number, (here, there) in enumerate(pairs, start=1) if here != there)
    return f"another story from line {number} on: {line}"


def _crash_points(rung: CrashPoints, began: float) -> Catch:
    inspector = Inspector()
    failure = ""
    try:
        work = Workload(inspector.see)
        WORKLOADS[rung.workload](work)
        work.end()
    except AssertionError as error:
        failure = str(error)
    where = f"crash points {rung.workload}"
    seconds = time.perf_counter() - began
    return Catch(bool(failure), where, _first_line(failure or "all held"), inspector.counts["images"], seconds)


def _tests(mutant: Mutant, rung: Tests, began: float) -> Catch:
    """Run the test in a process of its own, in which the bug is planted before anything else happens."""
    options = ["-q", "-x", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider"]
    # What a bug keeps away need not be waited for as long as what only is slow.
    environment = {VARIABLE: mutant.name, "DLEDGER_TEST_PATIENCE_S": "15"}
    with TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        arguments = [*options, f"--basetemp={folder}/pytest", rung.node_id]
        code = FORKS.run(arguments, environment, output, STORY_S)
        printed = output.read_text("utf-8", "replace")
    failures = [line for line in printed.splitlines() if line.startswith("FAILED ")]
    is_caught = code == pytest.ExitCode.TESTS_FAILED and bool(failures)
    failure = failures[0].partition(" - ")[2] if failures else printed[-400:]
    where = f"test {rung.node_id.rpartition('::')[2]}"
    return Catch(is_caught, where, _first_line(failure), 1, time.perf_counter() - began)


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]

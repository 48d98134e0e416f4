"""What a planted bug is: a name, what it breaks, how it is put in, and the rung of the ladder that must catch it.

A bug is put in by replacing a function of the production code for a while. `plant` gets a `pytest.MonkeyPatch`, which
takes everything back.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dledger.testing.options import SimOptions
from dledger.testing.shell.options import ShellOptions

Plant = Callable[[pytest.MonkeyPatch], object]
# A member found that what another one says contradicts what is committed, before any check of the whole run did.
NOT_BELIEVED = "Violation: trust"


def as_drawn(options):
    """Take a run as its seed draws it."""
    return options


@dataclass(frozen=True)
class Seeds:
    """Simulated runs.

    Attributes:
        expected: beginnings of what a run may end with.
        shape: makes a run in which the bug can bite; the same shapes without a bug are tested, too.
        count_max: it must be found within this many seeds.
    """

    expected: tuple[str, ...]
    shape: Callable[[SimOptions], SimOptions] = as_drawn
    count_max: int = 150


def shell_as_drawn(options):
    """Take a run of the shell as its seed draws it."""
    return options


@dataclass(frozen=True)
class ShellSeeds:
    """Simulated runs of the shell: clients, services, connections and nodes.

    Attributes:
        expected: beginnings of what a run may end with.
        shape: makes a run in which the bug can bite.
        count_max: it must be found within this many seeds.
    """

    expected: tuple[str, ...]
    shape: Callable[[ShellOptions], ShellOptions] = shell_as_drawn
    count_max: int = 30


@dataclass(frozen=True)
class Scenario:
    """A script in tests/scenarios, by the name of its file: its story must come out differently, or not at all."""

    name: str


@dataclass(frozen=True)
class CrashPoints:
    """A workload of tests/crashpoints."""

    workload: str


@dataclass(frozen=True)
class Tests:
    """An ordinary test, as pytest names it; it must fail."""

    node_id: str


Rung = Seeds | ShellSeeds | Scenario | CrashPoints | Tests


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Attributes:
        plant: puts it in; its name, with blanks, is the mutant's.
        breaks: what it breaks, in a few words.
        rung: must catch it.
    """

    plant: Plant
    breaks: str
    rung: Rung

    @property
    def name(self):
        return self.plant.__name__.replace("_", " ")

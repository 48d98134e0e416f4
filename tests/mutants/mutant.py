"""A planted bug: its name, its effect, the function that plants it, and the test level that must catch it.

A bug is planted by temporarily replacing a function of the production code. `plant` receives a `pytest.MonkeyPatch`,
which reverts the change.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dledger import native
from dledger.testing.options import SimOptions
from dledger.testing.shell.options import ShellOptions

Plant = Callable[[pytest.MonkeyPatch], object]
# A node detected that a message of another node contradicts a committed entry, before any check of the run did.
NOT_TRUSTED = "Violation: trust"


def as_drawn(options):
    """Return the options of a run unchanged."""
    return options


@dataclass(frozen=True)
class Seeds:
    """Simulated runs.

    Attributes:
        expected: allowed prefixes of the failure message.
        shape: sets options of a run in which the bug can have an effect; the same shapes are also tested without a bug.
        count_max: number of seeds within which it must be found.
    """

    expected: tuple[str, ...]
    shape: Callable[[SimOptions], SimOptions] = as_drawn
    count_max: int = 150


def shell_as_drawn(options):
    """Return the options of a run of the shell unchanged."""
    return options


@dataclass(frozen=True)
class ShellSeeds:
    """Simulated runs of the shell: clients, services, connections and nodes.

    Attributes:
        expected: allowed prefixes of the failure message.
        shape: sets options of a run in which the bug can have an effect.
        count_max: number of seeds within which it must be found.
    """

    expected: tuple[str, ...]
    shape: Callable[[ShellOptions], ShellOptions] = shell_as_drawn
    count_max: int = 30


@dataclass(frozen=True)
class Scenario:
    """A script in tests/scenarios, by file name: its trace must differ, or the run must fail."""

    name: str


@dataclass(frozen=True)
class CrashPoints:
    """A workload of tests/crashpoints."""

    workload: str


@dataclass(frozen=True)
class Tests:
    """A pytest node id; the test must fail."""

    __test__ = False  # Pytest collects classes of this name.
    node_id: str


Level = Seeds | ShellSeeds | Scenario | CrashPoints | Tests


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Attributes:
        plant: plants the bug; its name, with blanks for underscores, is the name of the bug.
        breaks: its effect, in a few words. level: the tests that must catch it.
        is_setting: nothing is planted; the shape of its level sets an option that gives up the guarantee. Only runs
            with that option can fail, so the default gate is not expected to.
    """

    plant: Plant
    breaks: str
    level: Level
    is_setting: bool = False

    @property
    def name(self):
        return self.plant.__name__.replace("_", " ")

    def put_into(self, patch):
        """Plant the bug; without the native module, because bugs are planted in Python."""
        patch.setattr(native, "kernels", None)
        self.plant(patch)

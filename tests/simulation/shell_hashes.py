"""Prints the hashes of some runs of the shell's simulator, in a process in which objects have other hashes.

    python -m tests.simulation.shell_hashes SALT SEED[:SHAPE] ...

Sets of objects that hash by address are iterated in another order here. No run may depend on that order.
"""

import asyncio
import gc
import sys
from contextlib import suppress

from dledger.testing.shell.options import draw_shell_options
from dledger.testing.shell.simulation import ShellSimulation
from tests.mutants.bugs.shell import general


def hash_of(run):
    """Return the hash of one run: `SEED` as drawn, or `SEED:SHAPE`."""
    seed, _, shape = run.partition(":")
    options = draw_shell_options(int(seed), may_have_state=not shape)
    return ShellSimulation(getattr(general, shape)(options) if shape else options).run().state_hash


def salt_hashes(salt):
    """Change the hashes of all objects that hash by address: tasks, futures, and our classes."""

    def salted(self):
        return hash((salt, id(self) >> 4))

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("dledger", "store"):
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__module__ == name and kind.__hash__ is object.__hash__:
                    with suppress(TypeError):
                        kind.__hash__ = salted
    asyncio.Task = type("Task", (asyncio.Task,), {"__hash__": salted})
    asyncio.Future = type("Future", (asyncio.Future,), {"__hash__": salted})


if __name__ == "__main__":
    salt_hashes(int(sys.argv[1]))
    # Keep the objects alive, so that finalizers do not run during the runs.
    gc.set_threshold(50)
    print(*map(hash_of, sys.argv[2:]))

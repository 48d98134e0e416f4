"""Prints the hashes of some runs of the shell's simulator, in a process whose objects hash unlike those of any other.

    python -m tests.simulation.shell_hashes SALT SEED[:SHAPE] ...

Sets and dictionaries of objects that hash by their address are walked through in another order here, wherever the
memory lies: nothing of a run may hang on that order.
"""

import asyncio
import gc
import sys
from contextlib import suppress

from dledger.testing.shell.options import draw_shell_options
from dledger.testing.shell.simulation import ShellSimulation
from tests.mutants.bugs import shell


def hash_of(run):
    """Return the hash of one run: `SEED` as drawn, or `SEED:SHAPE`."""
    seed, _, shape = run.partition(":")
    options = draw_shell_options(int(seed), may_have_state=not shape)
    return ShellSimulation(getattr(shell, shape)(options) if shape else options).run().state_hash


def salt_hashes(salt):
    """Let all that hashes by its address hash otherwise: tasks, futures, and the classes of the product."""

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
    # What is collected later is finalized later.
    gc.set_threshold(50)
    print(*map(hash_of, sys.argv[2:]))

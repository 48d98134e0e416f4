"""Runs the targets of the native module with that at a path: `python -m tests.fuzz.sanitized PATH INPUTS`.

For a module with checks of addresses and of undefined behaviour: those end the process at the first fault.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random

from dledger import native
from tests.fuzz import columns, kernels, record_kernels
from tests.fuzz.mutation import changed_inputs

SEED = 1
# An input of these takes milliseconds, most of them in NumPy and Arrow.
_SLOWER_BY = {"columns": 20}


def main() -> None:
    """Run kept inputs, and as many changed ones as wanted, of each target; fewer of those that take long."""
    path, count = sys.argv[1:]
    spec = spec_from_loader("dledger.native._kernels", ExtensionFileLoader("dledger.native._kernels", path))
    native.kernels = module_from_spec(spec)
    spec.loader.exec_module(native.kernels)
    for target in (*kernels.TARGETS, *record_kernels.TARGETS, *columns.TARGETS):
        kept, wanted = target.corpus(), int(count) // _SLOWER_BY.get(target.name, 1)
        for number, data in enumerate([*kept, *changed_inputs(kept, Random(f"{SEED} sanitized"), wanted)]):
            try:
                target.run(data)
            except BaseException:
                print(f"seed {SEED}, target {target.name}, input {number}: {data!r}")
                raise
    print(f"{count} inputs")


if __name__ == "__main__":
    main()

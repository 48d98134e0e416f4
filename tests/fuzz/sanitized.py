"""Runs the targets of the native module with that at a path: `python -m tests.fuzz.sanitized PATH INPUTS`.

For a module with checks of addresses and of undefined behaviour: those end the process at the first fault.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random

from dledger import native
from tests.fuzz import kernels, record_kernels
from tests.fuzz.mutation import changed_inputs

SEED = 1


def main() -> None:
    """Run kept inputs, and as many changed ones as wanted, of each target."""
    path, count = sys.argv[1:]
    spec = spec_from_loader("dledger.native._kernels", ExtensionFileLoader("dledger.native._kernels", path))
    native.kernels = module_from_spec(spec)
    spec.loader.exec_module(native.kernels)
    for target in (*kernels.TARGETS, *record_kernels.TARGETS):
        kept = target.corpus()
        for number, data in enumerate([*kept, *changed_inputs(kept, Random(f"{SEED} sanitized"), int(count))]):
            try:
                target.run(data)
            except BaseException:
                print(f"seed {SEED}, target {target.name}, input {number}: {data!r}")
                raise
    print(f"{count} inputs")


if __name__ == "__main__":
    main()

"""Runs the target `kernels` with the native module at a path: `python -m tests.fuzz.sanitized PATH INPUTS`.

For a module with checks of addresses and of undefined behaviour: those end the process at the first fault.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random

from dledger import native
from tests.fuzz.kernels import TARGETS
from tests.fuzz.mutation import changed_inputs

SEED = 1


def main() -> None:
    """Run kept inputs, and as many changed ones as wanted."""
    path, count = sys.argv[1:]
    spec = spec_from_loader("dledger.native._kernels", ExtensionFileLoader("dledger.native._kernels", path))
    native.kernels = module_from_spec(spec)
    spec.loader.exec_module(native.kernels)
    (target,) = TARGETS
    kept = target.corpus()
    for number, data in enumerate([*kept, *changed_inputs(kept, Random(f"{SEED} sanitized"), int(count))]):
        try:
            target.run(data)
        except BaseException:
            print(f"seed {SEED}, input {number}: {data!r}")
            raise
    print(f"{count} inputs")


if __name__ == "__main__":
    main()

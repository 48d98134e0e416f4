"""One target under atheris: `python -m tests.fuzz.worker TARGET ARGUMENTS`, started by `python -m tests.fuzz`.

The modules are instrumented when they are imported, so the fuzzer sees which branches an input takes; the native module
when it is built (`instrumented`).
"""

import os
import sys

import atheris

with atheris.instrument_imports(include=["store", "dledger", "commitlog", "cluster", "prometheus_client"]):
    from tests.fuzz.instrumented import MODULE_VARIABLE, use_module
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until the arguments end it, or an error is found."""
    name, *arguments = sys.argv[1:]
    if MODULE_VARIABLE in os.environ:
        use_module(os.environ[MODULE_VARIABLE])
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

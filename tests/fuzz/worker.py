"""One target under atheris: `python -m tests.fuzz.worker TARGET ARGUMENTS`, started by `python -m tests.fuzz`.

The modules are instrumented when they are imported, so the fuzzer sees which branches an input takes.
"""

import sys

import atheris

with atheris.instrument_imports(include=["store", "dledger", "commitlog", "cluster"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until the arguments end it, or an error is found."""
    name, *arguments = sys.argv[1:]
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

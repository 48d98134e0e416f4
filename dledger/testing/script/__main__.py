"""`python -m dledger.testing.script`: run a script from standard input, or random ones.

Exit status: 0 without a violation; 1 otherwise, with the script that causes it.
"""

from __future__ import annotations

import argparse
import sys

from dledger.testing.faults import Violation
from dledger.testing.script.random_scripts import RandomScript
from dledger.testing.script.script import run
from dledger.testing.script.transcript import ScriptError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m dledger.testing.script", description="Print the transcript of the script on standard input."
    )
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="run this many random scripts instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first random script (default: %(default)s)")
    parser.add_argument("--length", type=int, default=60, help="commands in a random script (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.random:
        return _run_random(range(options.seed, options.seed + options.random), options.length)
    try:
        sys.stdout.write(run(sys.stdin.read()))
    except (ScriptError, Violation) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _run_random(seeds: range, length: int) -> int:
    failed = []
    for seed in seeds:
        script = RandomScript(seed, length)
        try:
            script.run()
        except Exception as error:  # noqa: BLE001 - whatever the code under test raises is this script's result
            failed.append(seed)
            sys.stdout.write(f"seed {seed}: {error!r}\n{script.text}\n")
    sys.stdout.write(f"{len(seeds)} random scripts of {length} commands, {len(failed)} failed {failed or ''}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Judges every planted bug by the default gate as it is, and writes down what finds it.

    python scripts/mutants_blind.py [--jobs N] [--only WORD] [--again]

Most bugs have a test or a scenario of the gate as their rung. The others have simulated runs of a shape that was made
for the bug: they are judged by the runs, scenarios and unit tests that the gate has without that shape. What is found
goes into tests/mutants/blind.json after each bug, and a bug that is in it is not judged again, so that hours of work
can be done in pieces.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOUND = ROOT / "tests" / "mutants" / "blind.json"


def main() -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description="Judge planted bugs by the default gate as it is.")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="WORD", help="only bugs whose name contains this")
    parser.add_argument("--again", action="store_true", help="also bugs that were judged before")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    names: list[str] = list(importlib.import_module("tests.mutants.catalogue").MUTANTS)
    found: dict[str, str | None] = json.loads(FOUND.read_text("utf-8"))
    wanted = [name for name in names if options.only.replace("_", " ") in name and (options.again or name not in found)]
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        running = {pool.submit(judge, name): name for name in wanted}
        for verdict in as_completed(running):
            found[running[verdict]] = verdict.result()
            kept = {known: found[known] for known in names if known in found}
            FOUND.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
            print(f"{running[verdict]:64} {verdict.result()}", flush=True)
    survivors = [name for name, verdict in found.items() if verdict is None]
    print(
        f"\n{len(found)} of {len(names)} planted bugs judged; the gate does not find: {', '.join(survivors) or 'none'}"
    )
    return 1 if survivors else 0


def judge(name: str) -> str | None:
    """Return the test of the gate that finds a bug; None: no test."""
    sys.path.insert(0, str(ROOT))
    mutant = importlib.import_module("tests.mutants.catalogue").MUTANTS[name]
    verdict: str | None = importlib.import_module("tests.mutants.blind").judge(mutant)
    return verdict


if __name__ == "__main__":
    sys.exit(main())

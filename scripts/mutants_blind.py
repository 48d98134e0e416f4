"""Runs the default gate against every planted bug, and records which test finds it.

    python scripts/mutants_blind.py [--jobs N] [--only WORD] [--again]

Most bugs are assigned to a test or a scenario of the gate. The others are assigned to simulated runs with a
configuration for that bug; here they are tested with the runs, scenarios and unit tests of the gate without that
configuration. Each result is written to tests/mutants/blind.json, and bugs in that file are skipped, so that a run of
several hours can be interrupted.
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
    mutants = importlib.import_module("tests.mutants.catalogue").MUTANTS
    names: list[str] = [name for name, mutant in mutants.items() if not mutant.is_setting]
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
    """Return the test of the gate that finds a bug; None: no test finds it."""
    sys.path.insert(0, str(ROOT))
    mutant = importlib.import_module("tests.mutants.catalogue").MUTANTS[name]
    verdict: str | None = importlib.import_module("tests.mutants.blind").judge(mutant)
    return verdict


if __name__ == "__main__":
    sys.exit(main())

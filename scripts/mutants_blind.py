"""Judges every planted bug by rungs that were not chosen for it, and writes down which of them find it.

    python scripts/mutants_blind.py [--jobs N] [--only WORD] [--seeds N] [--again]

The rungs are those of the gate as they are: all quick unit tests, all scenarios, the simulated runs of seeds 1 to N.
What is found goes into tests/mutants/blind.json after each bug, and bugs that stand there are passed over, so that
hours of it can be done in pieces.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOUND = ROOT / "tests" / "mutants" / "blind.json"


def main() -> int:
    """Run what the command line asks for and return the exit status."""
    parser = argparse.ArgumentParser(description="Judge planted bugs by rungs that were not chosen for them.")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="WORD", help="only bugs whose name holds this")
    parser.add_argument("--seeds", type=int, default=1_000, help="simulated runs for each (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="also those that were judged before")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    names: list[str] = list(importlib.import_module("tests.mutants.catalogue").MUTANTS)
    found: dict[str, Any] = json.loads(FOUND.read_text("utf-8"))
    wanted = [name for name in names if options.only in name and (options.again or name not in found)]
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        for name, verdict in zip(wanted, pool.map(judge, wanted, [options.seeds] * len(wanted)), strict=True):
            found[name] = verdict
            kept = {known: found[known] for known in names if known in found}
            FOUND.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
            print(f"{name:64} {verdict}")
    survivors = [name for name, verdict in found.items() if not any(verdict.values())]
    print(
        f"\n{len(found)} of {len(names)} planted bugs judged blind; found by no rung: {', '.join(survivors) or 'none'}"
    )
    return 1 if survivors else 0


def judge(name: str, seeds: int) -> dict[str, str | None]:
    """Return what each rung says of one bug: the first test, scenario or seed that finds it; None: it finds nothing."""
    sys.path.insert(0, str(ROOT))
    mutant = importlib.import_module("tests.mutants.catalogue").MUTANTS[name]
    blind = importlib.import_module("tests.mutants.blind")
    return {
        "unit": blind.first_test(mutant, "tests/unit", "-m", "not slow and not spark"),
        "scenario": blind.first_test(mutant, "tests/scenarios", "-m", "not slow"),
        "simulation": blind.first_seed(mutant, seeds),
    }


if __name__ == "__main__":
    sys.exit(main())

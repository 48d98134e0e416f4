"""Plants each bug of tests/mutants/ in turn and prints what caught it; exit status 1 if one survives.

    python scripts/mutants.py [--jobs N] [--only WORD] [--write]

--write writes the table to docs/testing.md and the seeds to tests/mutants/known_seeds.json. With --only, the rows and
seeds of other bugs are kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "testing.md"
SEEDS = ROOT / "tests" / "mutants" / "known_seeds.json"
_PLACE = re.compile(r"(<!-- mutants -->\n).*?(<!-- end of mutants -->)", re.DOTALL)
_HEAD = ("planted bug", "what it breaks", "level", "caught by", "events", "seconds")


def main() -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description="Plant bugs and see that each is caught.")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="WORD", help="only bugs whose name holds this")
    parser.add_argument("--write", action="store_true", help="write the table and the seeds into the repository")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    mutants: dict[str, Any] = importlib.import_module("tests.mutants.catalogue").MUTANTS
    # Function names have underscores, names of planted bugs have blanks.
    names = [name for name in mutants if options.only.replace("_", " ") in name]
    if not names:
        parser.error(f"no planted bug has {options.only!r} in its name; they are in docs/testing.md")
    began = time.perf_counter()
    catches: dict[str, Any] = {}
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        for name, catch in zip(names, pool.map(run, names), strict=True):
            catches[name] = catch
            said = catch.where if catch.is_caught else f"SURVIVED {catch.where}"
            print(f"{name:64} {said}: {catch.failure[:120]} ({catch.event_count} events, {catch.seconds:.1f} s)")
    survivors = [name for name, catch in catches.items() if not catch.is_caught]
    seconds = time.perf_counter() - began
    print(f"\n{len(names) - len(survivors)} of {len(names)} planted bugs caught in {seconds:.0f} s.")
    if options.write and not survivors:
        write(mutants, catches)
    return 1 if survivors else 0


def run(name: str) -> Any:
    """Plant one bug; runs in a separate process."""
    sys.path.insert(0, str(ROOT))
    mutants: dict[str, Any] = importlib.import_module("tests.mutants.catalogue").MUTANTS
    return importlib.import_module("tests.mutants.levels").run(mutants[name])


def write(mutants: dict[str, Any], catches: dict[str, Any]) -> None:
    """Write the table to docs/testing.md and the seeds to their file; rows of other bugs are kept."""
    page = PAGE.read_text("utf-8")
    found = _PLACE.search(page)
    assert found is not None, PAGE
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in found[0].splitlines() if row.startswith("| ")}
    seeds = json.loads(SEEDS.read_text("utf-8"))
    for name, catch in catches.items():
        level = LEVELS[type(mutants[name].level).__name__]
        cells = (name, mutants[name].breaks, level, _caught_by(catch), f"{catch.event_count:,}", f"{catch.seconds:.1f}")
        rows[name] = f"| {' | '.join(cells)} |"
        seeds[name] = catch.seed
    known = [name for name in mutants if name in rows]
    seconds = sum(float(rows[name].split(" | ")[-1].removesuffix(" |").replace(",", "")) for name in known)
    summary = f"{len(known)} of {len(mutants)} planted bugs caught, in {seconds:.0f} s of work."
    untried = [name for name in mutants if name not in rows]
    summary += f" Not tried by this command yet: {', '.join(untried)}." if untried else ""
    head = [f"| {' | '.join(cells)} |" for cells in (_HEAD, ("---", "---", "---", "---", "---:", "---:"))]
    table = "\n".join([*head, *(rows[name] for name in known)])
    PAGE.write_text(_PLACE.sub(lambda place: f"{place[1]}{summary}\n\n{table}\n{place[2]}", page), "utf-8")
    kept = {name: seeds[name] for name in mutants if seeds.get(name) is not None}
    SEEDS.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


LEVELS = {
    "Seeds": "simulation",
    "ShellSeeds": "shell",
    "Scenario": "scenario",
    "CrashPoints": "crash points",
    "Tests": "unit",
}


def _caught_by(catch: Any) -> str:
    """Return the seed and the violated invariant, or the name of the script, workload or test."""
    if catch.seed is None:
        return f"`{catch.where.removeprefix('test ')}`"
    invariant = ":".join(catch.failure.split(":")[:2]) if catch.failure.startswith("Violation") else catch.failure
    return f"{catch.where}: {invariant.removeprefix('Violation: ').split(':')[0].strip()}"


if __name__ == "__main__":
    sys.exit(main())

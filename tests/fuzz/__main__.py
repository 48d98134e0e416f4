"""Fuzzes every decoder that reads untrusted bytes: `make fuzz`, or `python -m tests.fuzz --executions 10000000`.

Each target runs in a process of its own under atheris, from its inputs in `corpus`; each run is bounded in time and
memory. The native module is built with counters of its branches where there is clang (`CLANG` names another one). An
input that a target does not handle is written to build/fuzz, and the exit code is 1. With `--keep` the inputs that
reach new branches are added to the corpus.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.fuzz.instrumented import build_instrumented
from tests.fuzz.mutation import SIZE_MAX
from tests.fuzz.target import CORPUS, Target
from tests.fuzz.targets import NATIVE, TARGETS

FOUND = Path("build/fuzz")
# Of one input; the slowest takes some milliseconds.
INPUT_S_MAX = 10
MEMORY_MIB_MAX = 2048
# Then a process is replaced: instrumented calls of NumPy keep some 5 KB of memory each.
PROCESS_EXECUTIONS_MAX = 100_000
# Inputs of one target in the repository; the smallest of those that libFuzzer wants.
KEPT_MAX = 24
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_COVERED = re.compile(r"cov: (\d+)")


def main() -> int:
    """Fuzz; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--executions", type=int, default=10_000_000, help="of all targets together (10,000,000)")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the changes of inputs (1)")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach new branches to the corpus")
    options = parser.parse_args()
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    FOUND.mkdir(parents=True, exist_ok=True)
    native = build_instrumented(FOUND) if any(target.name in NATIVE for target in chosen) else {}
    if isinstance(native, str):
        print(f"native code: not instrumented: {native}", flush=True)
        native = {}
    failed, total = [], 0
    wanted = executions_of_each(options.executions, len(chosen))
    for target in chosen:
        begin_s = time.monotonic()
        environment = native if target.name in NATIVE else {}
        executed, branches, is_good = fuzz(target, wanted, options.seed, environment, keep=options.keep)
        total += executed
        if not is_good:
            failed.append(target.name)
        spent_s = time.monotonic() - begin_s
        result = "ok" if is_good else f"FOUND: see {FOUND}/{target.name}.log"
        print(
            f"{target.name:16} {executed:>10,} executions {branches:>6,} branches {spent_s:7.1f} s  {result}",
            flush=True,
        )
    print(f"{len(chosen)} targets, {total:,} executions, seed {options.seed}, {len(failed)} with findings", *failed)
    return 1 if failed else 0


def executions_of_each(executions: int, targets_count: int) -> int:
    """Return the executions of each target, so that all together have no fewer than `executions`."""
    return -(-executions // targets_count)


def fuzz(
    target: Target, executions: int, seed: int, environment: Mapping[str, str], *, keep: bool
) -> tuple[int, int, bool]:
    """Fuzz one target; return the number of executions, of branches, and whether all inputs were handled.

    Args:
        target: the decoder.
        executions: at least; the last process may exceed them by some.
        seed: of the changes of inputs.
        environment: variables of the processes, in addition to those of this one.
        keep: add inputs that reach new branches to the corpus.
    """
    corpus = CORPUS / target.name
    corpus.mkdir(exist_ok=True)
    log = FOUND / f"{target.name}.log"
    executed = covered = ended = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, data in enumerate(target.seeds()):
            (folder / f"seed-{number}").write_bytes(data)
        bounds = (f"-max_len={SIZE_MAX}", f"-timeout={INPUT_S_MAX}", f"-rss_limit_mb={MEMORY_MIB_MAX}")
        while executed < executions and ended == 0:
            runs = min(executions - executed, PROCESS_EXECUTIONS_MAX)
            run = (f"-runs={runs}", f"-seed={seed + executed}", "-print_final_stats=1")
            found = f"-artifact_prefix={FOUND}/{target.name}-"
            ended = _work(target, log, environment, *bounds, *run, found, folder, corpus)
            text = log.read_text(encoding="utf-8", errors="replace")
            done = _EXECUTED.search(text)
            # Without statistics it did not start.
            ended = ended if done else 1
            executed += int(done[1]) if done else 0
            covered = max([covered, *map(int, _COVERED.findall(text))])
        if keep and ended == 0:
            _keep(target, corpus, folder, environment)
    return executed, covered, ended == 0


def _work(target: Target, log: Path, environment: Mapping[str, str], *arguments: str | Path) -> int:
    command = [sys.executable, "-m", "tests.fuzz.worker", target.name, *map(str, arguments)]
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, check=False, env={**os.environ, **environment}
        )
    return done.returncode


def _keep(target: Target, corpus: Path, found: Path, environment: Mapping[str, str]) -> None:
    """Replace the corpus with the smallest inputs that together reach every branch, and the seeds."""
    with tempfile.TemporaryDirectory() as name:
        merged = Path(name)
        log = FOUND / f"{target.name}-merge.log"
        _work(target, log, environment, "-merge=1", f"-max_len={SIZE_MAX}", merged, corpus, found)
        inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data))[:KEPT_MAX]
    for path in corpus.iterdir():
        path.unlink()
    for number, data in enumerate(dict.fromkeys([*target.seeds(), *inputs])):
        (corpus / f"{number:02d}").write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())

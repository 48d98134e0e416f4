"""Production clients, connections and nodes on simulated loops: no guarantee is violated, and faults took effect.

`python -m dledger.testing --shell --seed N --trace` prints the trace of one run.
"""

import pytest

from dledger.testing.shell.options import ShellFault
from dledger.testing.shell.runner import run_shell_seed, run_shell_seeds

FIRST_SEED = 1
SEEDS = 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_runs_of_the_shell_break_no_guarantee():
    """Split over two processes; `make sim-shell` runs more."""
    faults = dict.fromkeys((fault.value for fault in ShellFault), 0)
    work: dict[str, int] = {}
    failed = []
    for result in run_shell_seeds(range(FIRST_SEED, FIRST_SEED + SEEDS), jobs=2):
        if result.summary is None:
            failed.append(result)
            print(result.line)
            continue
        for sums, counts in ((faults, result.summary.faults), (work, result.summary.work)):
            for name, count in counts.items():
                sums[name] = sums.get(name, 0) + count
    print(f"seeds {FIRST_SEED}..{FIRST_SEED + SEEDS - 1}: faults that took effect {faults}")
    print(f"what was done: {work}")

    assert failed == [], "\n\n".join(f"{result.line}\n{result.failure}" for result in failed[:3])
    assert min(faults.values()) > 0, f"a fault that never bites proves nothing: {faults}"
    assert min(work.values()) > 0, f"what is never done is never checked: {work}"


@pytest.mark.parametrize("seed", [70577, 70787])
def test_runs_that_once_failed_pass(seed):
    """70577: the leader accepted more than its pushes carried; 70787: a candidate of a split founding was reported."""
    result = run_shell_seed(seed)

    assert result.failure == ""

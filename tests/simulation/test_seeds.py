"""More than a hundred simulated runs: no invariant is violated, and every kind of fault and operation took effect.

Split over two processes; `python -m dledger.testing --seed N --trace` prints the trace of one. `make sim` and
`make sim-long` run thousands.
"""

import pytest

from dledger.testing.faults import Fault
from dledger.testing.runner import run_seeds
from dledger.testing.work import SimWork

FIRST_SEED = 1
# Enough that each fault and each kind of work occurs in several of them.
SEEDS = 160
JOBS = 2


@pytest.mark.slow
# Runs at low priority next to Spark's tests; alone on two cores it takes some minutes.
@pytest.mark.timeout(3600)
def test_first_seeds_violate_no_invariant():
    faults = dict.fromkeys((fault.value for fault in Fault), 0)
    work = dict.fromkeys((kind.value for kind in SimWork), 0)
    node_counts = {3: 0, 5: 0}
    failed = []
    for result in run_seeds(range(FIRST_SEED, FIRST_SEED + SEEDS), jobs=JOBS):
        if result.summary is None:
            failed.append(result)
            print(result.line)
            continue
        node_counts[3 if "nodes=3" in result.shape else 5] += 1
        for sums, counts in ((faults, result.summary.faults), (work, result.summary.work)):
            for name, count in counts.items():
                sums[name] += count
    print(f"seeds {FIRST_SEED}..{FIRST_SEED + SEEDS - 1}: nodes {node_counts}, faults that took effect {faults}")
    print(f"what was done: {work}")

    assert failed == [], "\n\n".join(f"{result.line}\n{result.failure}" for result in failed[:3])
    assert min(node_counts.values()) > SEEDS // 10
    assert min(faults.values()) > 0, f"a fault that never bites proves nothing: {faults}"
    assert min(work.values()) > 0, f"what is never done is never checked: {work}"

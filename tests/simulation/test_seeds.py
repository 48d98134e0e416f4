"""A thousand simulated runs of three and five nodes: no invariant is violated, and the faults bit.

Split over two processes; `python -m dledger.testing --seed N --trace` tells the story of one.
"""

import pytest

from dledger.testing.faults import Fault
from dledger.testing.runner import run_seeds

FIRST_SEED = 1
SEEDS = 1_000
JOBS = 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thousand_seeds_violate_no_invariant():
    faults = dict.fromkeys((fault.value for fault in Fault), 0)
    node_counts = {3: 0, 5: 0}
    failed = []
    for result in run_seeds(range(FIRST_SEED, FIRST_SEED + SEEDS), jobs=JOBS):
        if result.summary is None:
            failed.append(result)
            print(result.line)
            continue
        node_counts[3 if "nodes=3" in result.shape else 5] += 1
        for name, count in result.summary.faults.items():
            faults[name] += count
    print(f"seeds {FIRST_SEED}..{FIRST_SEED + SEEDS - 1}: nodes {node_counts}, faults that took effect {faults}")

    assert failed == [], "\n\n".join(f"{result.line}\n{result.failure}" for result in failed[:3])
    assert min(node_counts.values()) > SEEDS // 10
    assert min(faults.values()) > 0, f"a fault that never bites proves nothing: {faults}"

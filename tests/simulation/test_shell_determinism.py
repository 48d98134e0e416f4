"""A run of the shell depends only on its seed: run twice here, and in a process with other hashes and addresses."""

import os
import subprocess
import sys

from tests.simulation.shell_hashes import hash_of
from tests.support.waiting import SCENARIO_LIMIT_S

# The last seed has a client that cancels several calls at once; a fixed bug did so in the order of a set.
RUNS = ("3", "14", "12", "10037:with_elections")


def hashes_of_another_process(hash_seed):
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.shell_hashes", str(hash_seed), *RUNS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        timeout=SCENARIO_LIMIT_S,
    )
    return done.stdout.split()


def test_equal_seeds_give_equal_runs_in_every_process():
    first = [hash_of(run) for run in RUNS]
    assert first[0] == hash_of(RUNS[0])
    assert first == hashes_of_another_process(hash_seed=12_345)
    assert first == hashes_of_another_process(hash_seed=7)
    assert len(set(first)) == len(RUNS)

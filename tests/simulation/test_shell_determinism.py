"""A run of the shell follows from its seed alone: twice here, and in a process with other hashes and addresses."""

import os
import subprocess
import sys

from dledger.testing.shell.runner import run_shell_seed
from tests.waiting import STORY_S

SEEDS = (3, 14)


def hashes_of_another_process(hash_seed):
    code = (
        "from dledger.testing.shell.runner import run_shell_seed\n"
        # Other objects before shift all addresses.
        "kept = [object() for _ in range(100_003)]\n"
        f"print(*(run_shell_seed(seed).summary.state_hash for seed in {SEEDS}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        timeout=STORY_S,
    )
    return done.stdout.split()


def test_equal_seeds_give_equal_runs_in_every_process():
    first = [run_shell_seed(seed).summary.state_hash for seed in SEEDS]
    again = [run_shell_seed(seed).summary.state_hash for seed in SEEDS]
    assert first == again
    assert first == hashes_of_another_process(hash_seed=12_345)
    assert len(set(first)) == len(SEEDS)

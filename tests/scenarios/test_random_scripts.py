"""Random scripts: no promise is broken in chaos, and in peace the group goes on by itself."""

from __future__ import annotations

import pytest

from dledger.testing.faults import Violation
from dledger.testing.script.wild import WildScript

SEEDS_PER_TEST = 25


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 200, SEEDS_PER_TEST))
def test_no_random_script_breaks_a_promise(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        wild = WildScript(seed, length=60)
        try:
            wild.run()
        except (Violation, AssertionError) as error:
            pytest.fail(f"seed {seed}: {error!r}\n{wild.text}")

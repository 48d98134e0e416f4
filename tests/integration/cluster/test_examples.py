"""The programs in docs/examples do what their text says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.mark.slow
def test_dictionary_outlives_its_leader_and_a_lost_disk():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "key_value.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Fifty-one puts, and a swap tried three times: [False, True, False]"
    answers = [line.split("  ")[-1] for line in lines if line.startswith("  n")]
    assert answers == [
        *['{"colour": "blue", "count": 49, "stock": 7}'] * 3,
        *['{"colour": "green", "count": 49, "stock": 7}'] * 2,
        *['{"colour": "green", "count": null, "stock": 7}'] * 3,
    ]

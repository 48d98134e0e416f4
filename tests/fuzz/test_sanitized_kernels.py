"""The native module reads no byte that is not its own, and has no undefined behaviour, for hostile input."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import SCENARIO_LIMIT_S

ROOT = Path(__file__).parents[2]
BUILD = runpy.run_path(str(ROOT / "scripts/build_native.py"))
CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
# Of each target.
INPUTS = 1500


def library(name):
    """Return the path of a library of the compiler, or None."""
    command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    path = Path(found.stdout.strip())
    return path if path.is_absolute() and path.exists() else None


@pytest.mark.parametrize("more", [(), ("-DPORTABLE_CHECKSUMS",)], ids=["instruction", "tables"])
def test_native_module_has_no_fault_for_hostile_input(tmp_path, monkeypatch, more):
    monkeypatch.delenv("DLEDGER_NATIVE", raising=False)
    try:
        address = library("libasan.so")
    except OSError:
        pytest.skip("no C compiler")
    module = tmp_path / BUILD["NAME"]
    if address is None or BUILD["build"](ROOT, module, *CHECKS, *more) is not None:
        pytest.skip("the compiler has no such checks")
    # Of each object its own block, so that a byte beyond one is noticed; what Python itself never frees is no leak.
    checked = {"LD_PRELOAD": str(address), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}

    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.sanitized", module, str(INPUTS)],
        cwd=ROOT,
        env={**os.environ, **checked},
        capture_output=True,
        text=True,
        check=False,
        timeout=SCENARIO_LIMIT_S,
    )

    assert (done.returncode, done.stdout) == (0, f"{INPUTS} inputs\n"), done.stdout + done.stderr[-8000:]

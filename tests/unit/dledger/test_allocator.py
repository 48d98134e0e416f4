"""Large blocks are reused without new pages, by the count of page faults of a separate process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from dledger.allocator import keep_large_blocks

size = keep_large_blocks() // 4
if not size:
    sys.exit(f"left={size}")
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * size
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(size // resource.getpagesize(), *faults)
"""


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment | variables, capture_output=True, text=True, check=False
    )


def test_a_freed_block_is_used_again_without_page_faults():
    done = run()
    if "left=0" in done.stderr:
        pytest.skip("not glibc")
    pages, first, *others = map(int, done.stdout.split())
    # With huge pages the first use has fewer faults than pages.
    assert first > 0
    assert max(others) < pages // 100, (pages, first, others)


@pytest.mark.parametrize(
    "variables", [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}]
)
def test_settings_of_the_environment_have_precedence(variables: dict[str, str]):
    assert "left=0" in run(**variables).stderr
